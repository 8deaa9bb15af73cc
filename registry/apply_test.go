package registry_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

type builds = map[string]registry.BuildFunc

func names(r *registry.Registry) []string {
	var all []string
	for name := range r.Pipelines() {
		all = append(all, name)
	}
	return all
}

func TestApply_InvalidChange(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("orders", with()))
	for what, c := range map[string]registry.Change{
		"empty name":     {Define: builds{"": with()}},
		"nil function":   {Define: builds{"a": nil}},
		"both":           {Define: builds{"orders": with()}, Remove: []string{"orders"}},
		"unknown":        {Remove: []string{"a"}},
		"not known, too": {Define: builds{"b": with()}, Remove: []string{"orders", "a"}},
	} {
		assert.Error(t, r.Apply(t.Context(), c), what)
	}
	assert.Equal(t, 1, r.Definitions())
	require.NoError(t, r.Apply(t.Context(), registry.Change{}))
	err := r.Reload(t.Context(), "orders", "payments", "refunds")
	assert.ErrorContains(t, err, "payments")
	assert.ErrorContains(t, err, "refunds")
}

// An execution that begins while a change comes into force finds every pipeline that the new version uses.
func TestRegistry_ApplyNewPipelineFirstConcurrentSafe(t *testing.T) {
	r := registry.New(nil)
	defer func() { require.NoError(t, r.Close(t.Context())) }()
	change := func(version int) registry.Change {
		inner := fmt.Sprintf("inner-%d", version) // by its name it would come after the outer one
		return registry.Change{Define: map[string]registry.BuildFunc{
			inner: func(*registry.Builder) error { return nil },
			"a-outer": func(b *registry.Builder) error {
				p, err := b.Pipeline(inner)
				b.Add(pipeline.Embed(p))
				return err
			},
		}}
	}
	require.NoError(t, r.Apply(t.Context(), change(0)))
	outer, err := r.Get("a-outer")
	require.NoError(t, err)
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := outer.Execute(t.Context(), func(context.Context) error { return nil }); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for version := 1; version <= 300; version++ {
		require.NoError(t, r.Apply(t.Context(), change(version)))
	}
	close(stop)
	running.Wait()
}
