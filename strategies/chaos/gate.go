package chaos

import (
	"context"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/random"
	"github.com/weir-go/weir/pipeline"
)

// A gate is what the strategies of this package have in common; O is the type of their options. The zero gate injects
// nothing.
type gate[O any] struct {
	options O       // with the defaults filled in
	common  Options // those of options
	problem error   // what Validate returns
	on      bool    // something can be injected
	injector
}

// An injector is what the strategies of this package differ in.
type injector struct {
	event    string
	replaces bool // what is injected takes the place of the callback
	// injection returns what to inject: the Result, Err and Duration of the event. ok is false for nothing.
	injection func(ctx context.Context, next pipeline.Next) (e pipeline.Event, ok bool)
}

// newGate makes the gate of a strategy whose options are full, and whose Validate returns problem. common are those of
// full.
func newGate[O any](full O, common Options, problem error, i injector) gate[O] {
	on := (common.Enabled || common.EnabledFunc != nil) && (common.Rate >= 0 || common.RateFunc != nil)
	return gate[O]{options: full, common: common, problem: problem, on: on, injector: i}
}

// Name returns [Options.Name], or the default.
func (g *gate[O]) Name() string { return g.common.Name }

// Options returns the [FaultOptions], [LatencyOptions], [OutcomeOptions] or [BehaviorOptions] with the defaults filled in.
func (g *gate[O]) Options() O { return g.options }

// Describe returns the options. It is for [pipeline.Pipeline.Describe].
func (g *gate[O]) Describe() (options, state any) { return g.options, nil }

// Validate returns what is wrong with the options, or nil.
func (g *gate[O]) Validate() error { return g.problem }

// Execute injects something, or runs next, or both. It implements [pipeline.Strategy].
func (g *gate[O]) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if !g.injects(ctx) {
		return proceed(ctx, next)
	}
	if ctx.Err() != nil { // a function of the options can have taken long
		return nil, pipeline.ContextError(ctx)
	}
	e, ok := g.injection(ctx, next)
	if !ok {
		return proceed(ctx, next)
	}
	e.Name, e.Severity = g.event, pipeline.SeverityInformation
	next.Report(ctx, e)
	clock.Sleep(ctx, e.Duration)
	if e.Duration > 0 && ctx.Err() != nil {
		return nil, pipeline.ContextError(ctx)
	}
	if g.common.OnInjected != nil {
		e.Source = next.Source()
		g.common.OnInjected(ctx, e)
	}
	if g.replaces || e.Err != nil {
		return e.Result, e.Err
	}
	return proceed(ctx, next)
}

// injects reports whether something is injected in an execution.
func (g *gate[O]) injects(ctx context.Context) bool {
	if !g.on || g.common.EnabledFunc != nil && !g.common.EnabledFunc(ctx) {
		return false
	}
	rate := g.common.Rate
	if g.common.RateFunc != nil {
		rate = g.common.RateFunc(ctx)
	}
	// A NaN stays one here, and no number is below it.
	rate = min(max(rate, 0), 1)
	if g.common.Rand != nil {
		return g.common.Rand() < rate
	}
	return random.Float64(ctx) < rate
}

// proceed runs next after a function of the program or a wait, during which the context can have ended.
func proceed(ctx context.Context, next pipeline.Next) (any, error) {
	if ctx.Err() != nil { // the strategy that comes next need not check it
		return nil, pipeline.ContextError(ctx)
	}
	return next.Run(ctx)
}
