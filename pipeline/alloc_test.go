package pipeline_test

import (
	"context"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

// allocates asserts how many allocations one call of f makes.
func allocates(t *testing.T, what string, want float64, f func()) {
	t.Helper()
	if got := testing.AllocsPerRun(200, f); got != want {
		t.Errorf("%s: %v allocations, want %v", what, got, want)
	}
}

func TestAllocations(t *testing.T) {
	ctx, number := t.Context(), new(int)
	fails := func(context.Context) error { return errBoom }
	pointer := func(context.Context) (*int, error) { return number, nil }
	integer := func(context.Context) (int, error) { return 1 << 20, nil }

	for _, n := range []int{0, 1, 5} {
		p := weir.Must(pipeline.New("p", passThroughs(n)...))
		allocates(t, "Execute", 0, func() { _ = p.Execute(ctx, fails) })
		allocates(t, "ExecuteValue, pointer", 0, func() { _, _ = pipeline.ExecuteValue(ctx, p, pointer) })
	}
	empty, one := weir.Must(pipeline.New("p")), weir.Must(pipeline.New("p", passThrough{}))
	allocates(t, "ExecuteValue, int, no strategy", 0, func() { _, _ = pipeline.ExecuteValue(ctx, empty, integer) })
	allocates(t, "ExecuteValue, int, boxed", 1, func() { _, _ = pipeline.ExecuteValue(ctx, one, integer) })

	embedded := weir.Must(pipeline.New("p", pipeline.Embed(one)))
	allocates(t, "Embed", 1, func() { _ = embedded.Execute(ctx, fails) })

	listener := pipeline.ListenerFunc(func(context.Context, pipeline.Event) {})
	observed := weir.Must(pipeline.Config{Strategies: []pipeline.Strategy{passThrough{}}, Listener: listener}.Build())
	allocates(t, "with a Listener", 0, func() { _ = observed.Execute(ctx, fails) })

	operation := pipeline.WithOperation(ctx, "read")
	allocates(t, "Operation", 0, func() { _ = pipeline.Operation(operation) })
}

// A Listener of what is out of the ordinary costs an execution that succeeds no allocation.
func TestAllocations_WithoutExecutions(t *testing.T) {
	ctx := t.Context()
	succeeds := func(context.Context) error { return nil }
	for _, n := range []int{0, 1, 5} {
		p := weir.Must(pipeline.Config{Strategies: passThroughs(n), Listener: &journal{rare: true}}.Build())
		allocates(t, "Execute", 0, func() { _ = p.Execute(ctx, succeeds) })
	}
}
