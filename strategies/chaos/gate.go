package chaos

import (
	"context"
	"math/rand/v2"

	"github.com/weir-go/weir/pipeline"
)

// A gate decides whether something is injected. Every strategy embeds one. The zero gate injects nothing.
type gate struct {
	common  Options // with the defaults filled in
	on      bool    // injects can return true
	problem error   // what Validate returns
}

// newGate makes the gate of a strategy with that default name, whose Validate returns problem.
func newGate(o Options, name string, problem error) gate {
	return gate{
		common:  o.withDefaults(name),
		on:      (o.Enabled || o.EnabledFunc != nil) && (o.Rate >= 0 || o.RateFunc != nil),
		problem: problem,
	}
}

// Name returns the strategy's name in telemetry.
func (g *gate) Name() string { return g.common.Name }

// Validate returns what is wrong with the options, or nil.
func (g *gate) Validate() error { return g.problem }

// injects reports whether something is injected in an execution. The error is a ContextError; the context is checked
// after each function of the program, because the function can take long.
func (g *gate) injects(ctx context.Context) (bool, error) {
	if !g.on {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, pipeline.ContextError(ctx)
	}
	if g.common.EnabledFunc != nil {
		enabled := g.common.EnabledFunc(ctx)
		if ctx.Err() != nil {
			return false, pipeline.ContextError(ctx)
		}
		if !enabled {
			return false, nil
		}
	}
	rate := g.common.Rate
	if g.common.RateFunc != nil {
		rate = g.common.RateFunc(ctx)
		if ctx.Err() != nil {
			return false, pipeline.ContextError(ctx)
		}
	}
	// A NaN stays one here, and no number is below it.
	return g.random() < min(max(rate, 0), 1), nil
}

// random returns a number from 0 up to but not including 1.
func (g *gate) random() float64 {
	if g.common.Rand != nil {
		return g.common.Rand()
	}
	return rand.Float64()
}

// report sends the event of an injection.
func (g *gate) report(ctx context.Context, next pipeline.Next, event string, i Injection) {
	next.Report(ctx, pipeline.Event{
		Name:     event,
		Severity: pipeline.SeverityInformation,
		Result:   i.Value,
		Err:      i.Err,
		Duration: i.Latency,
	})
}

// call calls [Options.OnInjected].
func (g *gate) call(ctx context.Context, next pipeline.Next, i Injection) {
	if g.common.OnInjected != nil {
		i.Source = next.Source()
		g.common.OnInjected(ctx, i)
	}
}

// proceed runs next after a function of the program or a wait, during which the context can have ended.
func proceed(ctx context.Context, next pipeline.Next) (any, error) {
	if ctx.Err() != nil { // the strategy that comes next need not check it
		return nil, pipeline.ContextError(ctx)
	}
	return next.Run(ctx)
}

// A weightedPicker picks an index by weights. It holds, for each index, the sum of the weights up to it.
type weightedPicker []float64

// add appends an index with that weight, or with [DefaultWeight] if it is 0.
func (w *weightedPicker) add(weight int) {
	if weight == 0 {
		weight = DefaultWeight
	}
	sum := float64(weight)
	if n := len(*w); n > 0 {
		sum += (*w)[n-1]
	}
	*w = append(*w, sum)
}

// pick returns the index for a random number from 0 up to but not including 1.
func (w weightedPicker) pick(random float64) int {
	last := len(w) - 1
	for i, sum := range w[:last] {
		if random*w[last] < sum {
			return i
		}
	}
	return last
}
