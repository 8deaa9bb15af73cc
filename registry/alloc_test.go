package registry_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// The next instance costs what the first did, however many there are. What grew with
// them would allocate.
func TestGetInstance_CostDoesNotDependOnTheirNumber(t *testing.T) {
	r := open(t, &registry.Options{MaxInstances: -1})
	require.NoError(t, r.Define("tenants", func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.Concurrency("l "+b.Instance, one(1)), nil))
		return nil
	}))
	last := 0
	next := func() {
		last++
		_, err := r.GetInstance("tenants", fmt.Sprint(last))
		require.NoError(t, err)
	}
	few := testing.AllocsPerRun(50, next)
	for range 3000 {
		next()
	}
	assert.InDelta(t, few, testing.AllocsPerRun(50, next), 500, "and not thousands: others allocate, too")
}

func TestPipeline_Allocations(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("none", with()))
	require.NoError(t, r.Define("one", with(passThrough{})))
	ctx, number := t.Context(), new(int)
	fails := func(context.Context) error { return errBoom }
	pointer := func(context.Context) (*int, error) { return number, nil }
	for _, name := range []string{"none", "one"} {
		p := get(t, r, name)
		for range 2 {
			assert.Zero(t, testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, fails) }), name)
			assert.Zero(t, testing.AllocsPerRun(200, func() { _, _ = pipeline.ExecuteValue(ctx, p, pointer) }), name)
			require.NoError(t, r.Reload(ctx))
		}
	}
}
