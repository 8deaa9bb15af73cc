package chaos

import (
	"context"
	"math/rand/v2"

	"github.com/weir-go/weir/pipeline"
)

// A gate is what the strategies have in common: it decides whether something is
// injected. The zero gate never opens.
type gate struct {
	common  Options // with the defaults filled in
	on      bool    // it may open
	problem error   // what Validate returns
}

func newGate(o Options, name string, problem error) gate {
	return gate{
		common:  o.withDefaults(name),
		on:      (o.Enabled || o.EnabledFunc != nil) && (o.Rate >= 0 || o.RateFunc != nil),
		problem: problem,
	}
}

// Name returns how the strategy is called in telemetry.
func (g *gate) Name() string { return g.common.Name }

// Validate returns what is wrong with the options, or nil.
func (g *gate) Validate() error { return g.problem }

// opens decides for one execution. Each function of the program's may take its time,
// so the context is looked at after each; the error is its.
func (g *gate) opens(ctx context.Context) (bool, error) {
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
	// One that is not a number stays so, and is never more than another.
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

// proceed runs what comes next after something was done that may have taken its time.
func proceed(ctx context.Context, next pipeline.Next) (any, error) {
	if ctx.Err() != nil { // a strategy that comes next might not look
		return nil, pipeline.ContextError(ctx)
	}
	return next.Run(ctx)
}

// A wheel picks one of several by their weights. It holds the sums of the weights up
// to each.
type wheel []float64

// add adds the weight of one more; 0 is [DefaultWeight].
func (w *wheel) add(weight int) {
	if weight == 0 {
		weight = DefaultWeight
	}
	sum := float64(weight)
	if n := len(*w); n > 0 {
		sum += (*w)[n-1]
	}
	*w = append(*w, sum)
}

// pick returns the index that belongs to a number from 0 up to 1.
func (w wheel) pick(random float64) int {
	last := len(w) - 1
	for i, sum := range w[:last] {
		if random*w[last] < sum {
			return i
		}
	}
	return last
}
