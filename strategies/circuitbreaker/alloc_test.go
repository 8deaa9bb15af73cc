package circuitbreaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

func TestAllocations(t *testing.T) {
	measure := func(o circuitbreaker.Options, before, fn func(context.Context) error) float64 {
		p, ctx := weir.Must(pipeline.New("orders", circuitbreaker.New(&o))), t.Context()
		_ = p.Execute(ctx, before)
		return testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, fn) })
	}
	handle := func(_ any, err error) bool { return err != nil }
	isolated := new(circuitbreaker.Control)
	isolated.Isolate()

	assert.Zero(t, measure(circuitbreaker.Options{}, succeed, succeed), "closed")
	assert.Zero(t, measure(circuitbreaker.Options{
		ConsecutiveFailures: 5, Handle: handle, Control: new(circuitbreaker.Control),
	}, succeed, succeed), "closed, with everything")
	assert.Zero(t, measure(circuitbreaker.Options{MinimumThroughput: 1 << 30, ConsecutiveFailures: 1 << 30}, succeed, fail), "a failure")
	assert.EqualValues(t, 1, measure(circuitbreaker.Options{
		ConsecutiveFailures: 1, BreakDuration: time.Hour,
	}, fail, succeed), "a rejection, for its error")
	assert.EqualValues(t, 1, measure(circuitbreaker.Options{Control: isolated}, succeed, succeed), "isolated")
}
