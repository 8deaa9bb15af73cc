package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// The defaults of the options.
const (
	defaultRate    = 0.001
	defaultLatency = 30 * time.Second
)

// The events of this package. Each says that something was injected. All are Information.
const (
	// EventFault: an error is about to be returned, which is Err.
	EventFault = "Chaos.OnFault"
	// EventLatency: a wait is about to begin, whose length is Duration.
	EventLatency = "Chaos.OnLatency"
	// EventOutcome: an outcome is about to be returned, which is Result and Err.
	EventOutcome = "Chaos.OnOutcome"
	// EventBehavior: the behavior was run; Err is the error that it returned.
	EventBehavior = "Chaos.OnBehavior"
)

// Options say when something is injected. All strategies of this package have them. The zero Options inject nothing,
// because they are not enabled.
//
// The functions are called by many executions at once.
type Options struct {
	// Name is the strategy's name in telemetry. The default is "Chaos.Fault", "Chaos.Latency", "Chaos.Outcome" or
	// "Chaos.Behavior".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Enabled switches the strategy on.
	Enabled bool `json:"enabled,omitempty" yaml:"enabled,omitempty"`
	// EnabledFunc reports whether the strategy is on for an execution. If it is not nil, Enabled is ignored.
	EnabledFunc func(ctx context.Context) bool `json:"-" yaml:"-"`
	// Rate is the share of the executions in which something is injected, up to 1 for all. The default is 0.001; -1 is
	// none.
	Rate float64 `json:"rate,omitempty" yaml:"rate,omitempty" reload:"off,default=0.001"`
	// RateFunc returns the rate for an execution: 0 or less is never, and 1 or more is always. If it is not nil, Rate is
	// ignored.
	RateFunc func(ctx context.Context) float64 `json:"-" yaml:"-"`
	// Rand returns a random number from 0 up to but not including 1. If nil, it is that of math/rand/v2, or in a simulation
	// that of its seed. It is for tests.
	Rand func() float64 `json:"-" yaml:"-"`
	// OnInjected, if it is not nil, is called with the event; for a [Latency], after the wait, and not if the context ended
	// during the wait.
	OnInjected func(ctx context.Context, e pipeline.Event) `json:"-" yaml:"-"`
}

// setDefaults fills in the defaults. name is that of the Name.
func (o *Options) setDefaults(name string) {
	o.Name = cmp.Or(o.Name, name)
	o.Rate = cmp.Or(o.Rate, defaultRate)
}

// validate adds what is wrong with o to p.
func (o *Options) validate(p *validate.Problems) {
	if o.Rate != -1 && !(o.Rate >= 0 && o.Rate <= 1) { // also if it is NaN
		p.Add("Rate", o.Rate, "must be from 0 to 1, or -1 for never")
	}
}

// ErrInjected is the default error of a [Fault]. It is wrapped in a text that names the strategy.
var ErrInjected = errors.New("injected fault")

// FaultOptions are the options of a [Fault].
type FaultOptions struct {
	Options `yaml:",inline"`
	// Err is the error. If it and ErrFunc are nil, it is [ErrInjected].
	Err error `json:"-" yaml:"-"`
	// ErrFunc returns the error, in place of Err. If it returns nil, nothing is injected.
	ErrFunc func(ctx context.Context) error `json:"-" yaml:"-"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Making a pipeline calls it; a
// program that reads options from a file can call it earlier.
func (o *FaultOptions) Validate() error {
	o = cmp.Or(o, new(FaultOptions))
	var p validate.Problems
	o.validate(&p)
	if o.Err != nil && o.ErrFunc != nil {
		p.Add("", nil, "must have at most one of {Err} and {ErrFunc}")
	}
	return p.Err("chaos")
}

// A Fault is a strategy that fails in place of what comes after it. Make one with [NewFault]. The zero Fault injects
// nothing. It is safe for concurrent use.
type Fault struct{ gate[FaultOptions] }

// NewFault makes a strategy that injects errors. If o is nil, the defaults apply, and it is off. If o is invalid, making a
// pipeline of the strategy fails.
func NewFault(o *FaultOptions) *Fault {
	full := *cmp.Or(o, new(FaultOptions))
	full.setDefaults("Chaos.Fault")
	return &Fault{newGate(full, full.Options, o.Validate(), injector{
		event:    EventFault,
		replaces: true,
		injection: func(ctx context.Context, next pipeline.Next) (pipeline.Event, bool) {
			err := full.err(ctx, next)
			return pipeline.Event{Err: err}, err != nil
		},
	})}
}

// err returns the error to inject, or nil.
func (o *FaultOptions) err(ctx context.Context, next pipeline.Next) error {
	switch {
	case o.ErrFunc != nil:
		return o.ErrFunc(ctx)
	case o.Err != nil:
		return o.Err
	default:
		return fmt.Errorf("chaos: %v: %w", next.Source(), ErrInjected)
	}
}

// LatencyOptions are the options of a [Latency].
type LatencyOptions struct {
	Options `yaml:",inline"`
	// Latency is how long to wait. The default is 30 s; -1 is no wait.
	Latency time.Duration `json:"latency,omitempty" yaml:"latency,omitempty" reload:"off,default=30s"`
	// LatencyFunc returns the wait of an execution. If it is 0 or less, nothing is injected. If LatencyFunc is not nil,
	// Latency is ignored.
	LatencyFunc func(ctx context.Context) time.Duration `json:"-" yaml:"-"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Making a pipeline calls it; a
// program that reads options from a file can call it earlier.
func (o *LatencyOptions) Validate() error {
	o = cmp.Or(o, new(LatencyOptions))
	var p validate.Problems
	o.validate(&p)
	if o.Latency < -1 {
		p.Add("Latency", o.Latency, "must be at least 0, or -1 for none")
	}
	return p.Err("chaos")
}

// A Latency is a strategy that waits before it runs what comes after it. The wait ends early if the context ends, as a
// slow call would. Make one with [NewLatency]. The zero Latency injects nothing. It is safe for concurrent use.
type Latency struct{ gate[LatencyOptions] }

// NewLatency makes a strategy that injects waits. If o is nil, the defaults apply, and it is off. If o is invalid, making a
// pipeline of the strategy fails.
func NewLatency(o *LatencyOptions) *Latency {
	full := *cmp.Or(o, new(LatencyOptions))
	full.setDefaults("Chaos.Latency")
	full.Latency = cmp.Or(full.Latency, defaultLatency)
	return &Latency{newGate(full, full.Options, o.Validate(), injector{
		event: EventLatency,
		injection: func(ctx context.Context, _ pipeline.Next) (pipeline.Event, bool) {
			latency := full.Latency
			if full.LatencyFunc != nil {
				latency = full.LatencyFunc(ctx)
			}
			return pipeline.Event{Duration: latency}, latency > 0
		},
	})}
}

// OutcomeOptions are the options of an [Outcome].
type OutcomeOptions struct {
	Options `yaml:",inline"`
	// Result is the outcome.
	Result Result `json:"-" yaml:"-"`
	// ResultFunc returns the outcome, in place of Result. If ok is false, nothing is injected.
	ResultFunc func(ctx context.Context) (r Result, ok bool) `json:"-" yaml:"-"`
}

// A Result is what an [Outcome] returns. The value must be of the type that [pipeline.ExecuteValue] is called for.
type Result struct {
	Value any
	Err   error
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Making a pipeline calls it; a
// program that reads options from a file can call it earlier.
func (o *OutcomeOptions) Validate() error {
	o = cmp.Or(o, new(OutcomeOptions))
	var p validate.Problems
	o.validate(&p)
	return p.Err("chaos")
}

// An Outcome is a strategy that returns something else in place of what comes after it: a result that is empty, stale or
// wrong. For errors alone, use a [Fault]. Make one with [NewOutcome]. The zero Outcome injects nothing. It is safe for
// concurrent use.
type Outcome struct{ gate[OutcomeOptions] }

// NewOutcome makes a strategy that injects outcomes. If o is nil, the defaults apply, and it is off. If o is invalid, making a pipeline of the strategy fails.
func NewOutcome(o *OutcomeOptions) *Outcome {
	full := *cmp.Or(o, new(OutcomeOptions))
	full.setDefaults("Chaos.Outcome")
	return &Outcome{newGate(full, full.Options, o.Validate(), injector{
		event:    EventOutcome,
		replaces: true,
		injection: func(ctx context.Context, _ pipeline.Next) (e pipeline.Event, ok bool) {
			r, ok := full.Result, true
			if full.ResultFunc != nil {
				r, ok = full.ResultFunc(ctx)
			}
			return pipeline.Event{Result: r.Value, Err: r.Err}, ok
		},
	})}
}

// BehaviorOptions are the options of a [Behavior].
type BehaviorOptions struct {
	Options `yaml:",inline"`
	// Behavior does the harm, such as emptying a cache or closing a connection. It must be set. If it returns an error,
	// the callback does not run, and the error is the outcome.
	Behavior func(ctx context.Context) error `json:"-" yaml:"-"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Making a pipeline calls it; a
// program that reads options from a file can call it earlier.
func (o *BehaviorOptions) Validate() error {
	o = cmp.Or(o, new(BehaviorOptions))
	var p validate.Problems
	o.validate(&p)
	if o.Behavior == nil {
		p.Add("Behavior", nil, "must be set")
	}
	return p.Err("chaos")
}

// A Behavior is a strategy that calls a function before it runs what comes after it. Make one with [NewBehavior]. The
// zero Behavior calls none. It is safe for concurrent use if the function is.
type Behavior struct{ gate[BehaviorOptions] }

// NewBehavior makes a strategy that injects a behavior. If o is invalid, making a pipeline of the strategy fails.
func NewBehavior(o *BehaviorOptions) *Behavior {
	full := *cmp.Or(o, new(BehaviorOptions))
	full.setDefaults("Chaos.Behavior")
	return &Behavior{newGate(full, full.Options, o.Validate(), injector{
		event: EventBehavior,
		injection: func(ctx context.Context, _ pipeline.Next) (pipeline.Event, bool) {
			return pipeline.Event{Err: full.Behavior(ctx)}, true
		},
	})}
}

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
		return nil, ctxerr.NotBegun(ctx)
	}
	e, ok := g.injection(ctx, next)
	if !ok {
		return proceed(ctx, next)
	}
	e.Name, e.Severity = g.event, pipeline.SeverityInformation
	next.Report(ctx, e)
	clock.Sleep(ctx, e.Duration)
	if e.Duration > 0 && ctx.Err() != nil { // counts as a call that takes long
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
	return deterministic.Float64(ctx) < rate
}

// proceed runs next after a function of the program or a wait, during which the context can have ended.
func proceed(ctx context.Context, next pipeline.Next) (any, error) {
	if ctx.Err() != nil { // the strategy that comes next need not check it
		return nil, ctxerr.NotBegun(ctx)
	}
	return next.Run(ctx)
}
