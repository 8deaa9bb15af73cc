package hedge

import (
	"cmp"
	"context"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
)

// The defaults of [Options], and the highest MaxHedges.
const (
	defaultDelay     = 2 * time.Second
	defaultMaxHedges = 1
	MostHedges       = 10
)

// Options say when more attempts start, how many, and which outcome wins. The zero Options are the defaults: one hedge
// after 2 s, or earlier if the first attempt fails earlier without being refused.
type Options struct {
	// Name is the strategy's name in telemetry. The default is "Hedging".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Delay is how long an attempt runs before the next one starts beside it. The default is 2 s. With -1 the next one
	// starts only when the attempt has ended and was handled, but not refused.
	Delay time.Duration `json:"delay,omitempty" yaml:"delay,omitempty" reload:"off,default=2s"`
	// AtOnce starts all attempts together. Delay must be left out then.
	AtOnce bool `json:"at_once,omitempty" yaml:"at_once,omitempty"`
	// DelayFunc returns the delay after the start of the given attempt, 0 for the first, in place of Delay. If it is 0,
	// the next attempt starts at once; if it is below 0, only when the attempt was handled. DelayFunc is called in the
	// caller's goroutine.
	DelayFunc func(ctx context.Context, attempt int) time.Duration `json:"-" yaml:"-"`
	// MaxHedges is the number of attempts after the first, at most 10. The default is 1; -1 is none, and switches the strategy
	// off.
	MaxHedges int `json:"max_hedges,omitempty" yaml:"max_hedges,omitempty" reload:"off,default=1,most=10"`
	// Handle reports whether an outcome is handled, that is, does not win. It is called in the caller's goroutine. If
	// nil, every error is handled except [context.Canceled], and [context.DeadlineExceeded] once the caller's context
	// is done. [pipeline.HandleResult] converts a function that knows the type of the results.
	//
	// Handle does not decide whether another attempt starts: after a refused one none does, whatever Handle returns.
	Handle func(result any, err error) bool `json:"-" yaml:"-"`
	// AfterRefusal makes an attempt that was refused start the next one, as other failures do. Set it if each attempt
	// calls another server, see [AttemptNumber]: one that is busy says nothing about the next. By default no attempt starts
	// once one was refused, see the package comment.
	AfterRefusal bool `json:"after_refusal,omitempty" yaml:"after_refusal,omitempty"`
	// Budget limits the hedges of all strategies that share it. Share one among the strategies that call the same
	// server, see package budget. If nil, there is no such limit. If the budget has no hedge left, the execution starts
	// no more. A hedge that called nothing, because a limiter or a circuit further inside rejected it, is given back.
	Budget budget.Budget `json:"-" yaml:"-"`
	// OnHedge, if it is not nil, is called before each hedge with the event [EventHedging], in the caller's goroutine. No
	// attempt wins until it returns.
	OnHedge func(ctx context.Context, e pipeline.Event) `json:"-" yaml:"-"`
	// Dispose gets the outcome of every attempt that did not win, including errors and nil results; see the package
	// comment. The function [Dispose] converts one that knows the type of the results. It is called by several
	// goroutines, also after the execution; a panic there is logged with [slog.Default]. If nil, the outcomes are
	// dropped.
	Dispose func(result any, err error) `json:"-" yaml:"-"`
}

// withDefaults returns o with the defaults filled in. A nil o stands for the zero Options.
func (o *Options) withDefaults() Options {
	full := *cmp.Or(o, new(Options))
	full.Name = cmp.Or(full.Name, "Hedging")
	if !full.AtOnce {
		full.Delay = cmp.Or(full.Delay, defaultDelay)
	}
	full.MaxHedges = cmp.Or(full.MaxHedges, defaultMaxHedges)
	return full
}

// delay returns the delay after the start of the given attempt, as DelayFunc does.
func (o *Options) delay(ctx context.Context, attempt int) time.Duration {
	if o.DelayFunc != nil {
		return o.DelayFunc(ctx, attempt)
	}
	return o.Delay
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Making a pipeline calls it; a
// program that reads options from a file can call it earlier.
func (o *Options) Validate() error {
	o = cmp.Or(o, new(Options))
	var p validate.Problems
	if o.Delay < -1 {
		p.Add("Delay", o.Delay, "must be at least 0, or -1 for none")
	}
	if o.AtOnce && o.Delay != 0 {
		p.Add("Delay", o.Delay, "must be left out with {AtOnce}")
	}
	if o.AtOnce && o.DelayFunc != nil {
		p.Add("DelayFunc", nil, "must be nil with {AtOnce}")
	}
	if o.MaxHedges < -1 || o.MaxHedges > MostHedges {
		p.Add("MaxHedges", o.MaxHedges, "must be from 0 to %d, or -1 for none", MostHedges)
	}
	return p.Err("hedge")
}
