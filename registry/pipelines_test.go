package registry_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/registry"
)

func TestPipelines_TellVersionsAndReloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		n := &numbered{}
		fails := false
		require.NoError(t, r.Define("stock", func(*registry.Builder) error {
			if fails {
				return errBoom
			}
			return nil
		}))
		start := time.Now()
		orders := define(t, r, "orders", n.build)
		eu, err := r.GetInstance("orders", "eu-1")
		require.NoError(t, err)
		stock := get(t, r, "stock")
		names, infos := []string{}, maps.Collect(r.Pipelines())
		for name := range r.Pipelines() {
			names = append(names, name)
		}
		assert.Equal(t, []string{"orders", "orders/eu-1", "stock"}, names)
		assert.Equal(t, registry.PipelineInfo{Name: "orders", Pipeline: orders, Version: 1, Built: start}, infos["orders"])
		assert.Equal(t, registry.PipelineInfo{Name: "orders", Instance: "eu-1", Pipeline: eu, Version: 1, Built: start}, infos["orders/eu-1"])

		end := hold(t, orders)
		time.Sleep(time.Second)
		require.NoError(t, r.Reload(t.Context(), "orders"))
		synctest.Wait()
		infos = maps.Collect(r.Pipelines())
		later := start.Add(time.Second)
		assert.Equal(t, registry.PipelineInfo{Name: "orders", Pipeline: orders, Version: 2, Built: later, LastReload: later, Draining: 1}, infos["orders"])
		assert.Zero(t, infos["orders/eu-1"].Draining)
		assert.Equal(t, registry.PipelineInfo{Name: "stock", Pipeline: stock, Version: 1, Built: start}, infos["stock"])
		end()
		synctest.Wait()
		assert.Zero(t, maps.Collect(r.Pipelines())["orders"].Draining)

		// A reload that fails is known from each pipeline that was to be reloaded.
		time.Sleep(time.Second)
		fails = true
		require.ErrorIs(t, r.Reload(t.Context()), errBoom)
		infos = maps.Collect(r.Pipelines())
		assert.EqualError(t, infos["stock"].Err, "registry: building pipeline stock: boom")
		assert.EqualError(t, infos["orders"].Err,
			"registry: pipeline orders was not reloaded, because the reload failed: registry: building pipeline stock: boom")
		assert.Equal(t, 2, infos["orders"].Version)
		assert.Equal(t, later, infos["orders"].Built)
		assert.Equal(t, later.Add(time.Second), infos["orders"].LastReload)

		fails = false
		require.NoError(t, r.Reload(t.Context()))
		for name, info := range r.Pipelines() {
			assert.NoError(t, info.Err, name)
		}

		// A call that only removes reloads nothing.
		require.NoError(t, r.Remove(t.Context(), "stock"))
		assert.Equal(t, []string{"orders", "orders/eu-1"}, slices.Sorted(maps.Keys(maps.Collect(r.Pipelines()))))
	})
}
