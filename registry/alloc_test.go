package registry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
)

func TestAllocations(t *testing.T) {
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
