package weirfailsafe_test

import (
	"context"
	"testing"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/weirfailsafe"
)

var policies = map[string]func() []failsafe.Policy[any]{
	"bulkhead": func() []failsafe.Policy[any] { return []failsafe.Policy[any]{bulkhead.New[any](100)} },
	"breaker":  func() []failsafe.Policy[any] { return []failsafe.Policy[any]{circuitbreaker.NewWithDefaults[any]()} },
	"retry, breaker, bulkhead": func() []failsafe.Policy[any] {
		return []failsafe.Policy[any]{retrypolicy.NewWithDefaults[any](), circuitbreaker.NewWithDefaults[any](), bulkhead.New[any](100)}
	},
}

// What the bridge adds to failsafe-go's own: a context, an execution, a goroutine
// with its channel, and a copy of the executor.
func TestAllocations(t *testing.T) {
	for name, some := range policies {
		ctx := t.Context()
		executor := failsafe.With(some()...).WithContext(ctx)
		theirs := testing.AllocsPerRun(200, func() { _, _ = executor.Get(func() (any, error) { return nil, nil }) })
		p := weir.Must(pipeline.New("orders", weirfailsafe.New(nil, some()...)))
		ours := testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, func(context.Context) error { return nil }) })
		t.Logf("%s: %v allocations, %v without the bridge", name, ours, theirs)
		if ours > theirs+12 {
			t.Errorf("%s: %v allocations, more than 12 above the %v of failsafe-go", name, ours, theirs)
		}
	}
}
