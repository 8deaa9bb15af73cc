package hedge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
)

// What a zero in the [Options] stands for, and the most there may be.
const (
	DefaultDelay     = 2 * time.Second
	DefaultMaxHedges = 1
	MostHedges       = 10
)

// Options say when there are more attempts, how many, and which outcome wins. The
// zero Options are the defaults: one hedge after 2 s, or when the first attempt has
// failed before.
type Options struct {
	// Name is how the strategy is called in telemetry; "" is "Hedging".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Delay is how long an attempt has before the next one starts beside it; 0 is
	// 2 s. With -1 the next one starts only when it has ended and was handled.
	Delay time.Duration `json:"delay,omitempty" yaml:"delay,omitempty"`
	// AtOnce starts all attempts together. There is no Delay then.
	AtOnce bool `json:"at_once,omitempty" yaml:"at_once,omitempty"`
	// DelayFunc gives the delay after the start of the given attempt, 0 for the
	// first, in place of Delay: 0 is none, less is Delay's -1. It is called in the
	// caller's goroutine.
	DelayFunc func(ctx context.Context, attempt int) time.Duration `json:"-" yaml:"-"`
	// MaxHedges is how many attempts there may be besides the first; 0 is 1, -1 is
	// none, 10 is the most.
	MaxHedges int `json:"max_hedges,omitempty" yaml:"max_hedges,omitempty"`
	// Handle reports whether an outcome does not win. It is called in the caller's
	// goroutine. If nil, every error is handled except [context.Canceled], and
	// [context.DeadlineExceeded] once the caller's context is done.
	// retry.Result makes a Handle of a predicate that knows the type.
	Handle func(result any, err error) bool `json:"-" yaml:"-"`
	// Budget, where set, is asked before each hedge; share one among all who make
	// attempts on the same thing, see package budget. When it is exhausted there
	// are no more hedges in the execution. A hedge that called nothing, because a limiter
	// or a circuit further inside rejected it, is given back.
	Budget budget.Budget `json:"-" yaml:"-"`
	// OnHedge is called before each hedge, after the event, in the caller's
	// goroutine: as long as it takes, no attempt wins.
	OnHedge func(ctx context.Context, h Hedge) `json:"-" yaml:"-"`
	// Dispose is given the outcome of every attempt that did not win, errors and
	// nil results, too; see the package comment. [Dispose] makes one of a function
	// that knows the type. It is called by several goroutines, also after the
	// execution; a panic there is logged with [slog.Default].
	Dispose func(result any, err error) `json:"-" yaml:"-"`
}

// A Hedge is what [Options.OnHedge] is told: an attempt that is about to start.
type Hedge struct {
	Number int             // 1 for the first hedge, as [Attempt] returns it
	Result any             // of the attempt that was handled, if that is why
	Err    error           // of the attempt that was handled, if that is why
	Source pipeline.Source // which pipeline and which strategy
}

// withDefaults returns o, or the zero Options for nil, with what a zero stands
// for. MaxHedges is 0 for none afterwards; Delay is 0 with AtOnce.
func (o *Options) withDefaults() Options {
	var full Options
	if o != nil {
		full = *o
	}
	if full.Name == "" {
		full.Name = "Hedging"
	}
	if full.Delay == 0 && !full.AtOnce {
		full.Delay = DefaultDelay
	}
	switch full.MaxHedges {
	case 0:
		full.MaxHedges = DefaultMaxHedges
	case -1:
		full.MaxHedges = 0
	}
	return full
}

// delay returns how long the given attempt has: see DelayFunc.
func (o *Options) delay(ctx context.Context, attempt int) time.Duration {
	if o.DelayFunc != nil {
		return o.DelayFunc(ctx, attempt)
	}
	return o.Delay
}

// inTurn tells whether there is never more than one attempt at a time.
func (o *Options) inTurn() bool {
	return o.MaxHedges <= 0 || o.Delay < 0 && o.DelayFunc == nil
}

// Validate returns every problem in one error, or nil. Making a pipeline calls
// it; a configuration file's reader may want it earlier.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if o.Delay < -1 {
		add("Delay is %v, must be at least 0, or -1 for none", o.Delay)
	}
	if o.AtOnce && o.Delay != 0 {
		add("Delay is %v, must be 0 with AtOnce", o.Delay)
	}
	if o.AtOnce && o.DelayFunc != nil {
		add("DelayFunc is set, must be nil with AtOnce")
	}
	if o.MaxHedges < -1 || o.MaxHedges > MostHedges {
		add("MaxHedges is %d, must be from 0 to %d, or -1 for none", o.MaxHedges, MostHedges)
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New("hedge: invalid options: " + strings.Join(problems, "; "))
}

// String returns which hedge starts and why, without the Result: "orders/Hedging: hedge 1: boom".
func (h Hedge) String() string {
	text := fmt.Sprintf("hedge %d", h.Number)
	if source := h.Source.String(); source != "" {
		text = source + ": " + text
	}
	if h.Err != nil {
		text += ": " + h.Err.Error()
	}
	return text
}

// LogValue implements [slog.LogValuer]. The Result, a value of the program's, is left out.
func (h Hedge) LogValue() slog.Value {
	return slog.GroupValue(slog.String("source", h.Source.String()), slog.Int("number", h.Number), slog.Any("error", h.Err))
}
