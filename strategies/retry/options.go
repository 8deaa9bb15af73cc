package retry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
)

// Forever is the MaxRetries of those who retry until it succeeds or the context
// ends.
const Forever = math.MaxInt

// What a zero in the [Options] stands for.
const (
	DefaultMaxRetries    = 3
	DefaultDelay         = 2 * time.Second
	DefaultMaxRetryAfter = time.Minute
)

// Options say what is retried, how often and when. The zero Options are the
// defaults: three retries, 2 s apart.
type Options struct {
	// Name is how the strategy is called in telemetry; "" is "Retry".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// MaxRetries is how often the first attempt is followed by another; 0 is 3,
	// -1 is none.
	MaxRetries int `json:"max_retries,omitempty" yaml:"max_retries,omitempty"`
	// Backoff says how the waits grow.
	Backoff Backoff `json:"backoff,omitempty" yaml:"backoff,omitempty"`
	// Delay is the first wait; 0 is 2 s, -1 is none: then there is no backoff, and
	// only failures that ask for it are waited for.
	Delay time.Duration `json:"delay,omitempty" yaml:"delay,omitempty"`
	// MaxDelay is the longest backoff, jitter included; 0: there is none. It does
	// not shorten what DelayFunc returns or a failure asks for.
	MaxDelay time.Duration `json:"max_delay,omitempty" yaml:"max_delay,omitempty"`
	// Jitter makes the waits random, see the package comment. Set it where more
	// than a few clients talk to the same server.
	Jitter bool `json:"jitter,omitempty" yaml:"jitter,omitempty"`
	// MaxDuration is how long the whole may take until the last attempt starts;
	// 0: there is no limit but the context's. It interrupts no attempt. Time spent
	// in OnRetry counts.
	MaxDuration time.Duration `json:"max_duration,omitempty" yaml:"max_duration,omitempty"`
	// Handle reports whether an outcome is retried. It is called for every attempt,
	// also for successful ones. If nil, every error is retried except
	// [context.Canceled], [context.DeadlineExceeded] once the execution's own context is
	// done, and errors whose method Retryable() bool returns false.
	Handle func(result any, err error) bool `json:"-" yaml:"-"`
	// DelayFunc gives the wait after the given attempt, 0 for the first, in place
	// of the backoff; with ok false or less than 0 the backoff stands.
	DelayFunc func(ctx context.Context, attempt int, result any, err error) (d time.Duration, ok bool) `json:"-" yaml:"-"`
	// MaxRetryAfter is the longest wait that a failure can ask for. One that asks for
	// more is returned at once, joined with [ErrMaxRetryAfter]; 0 is a minute, -1 is no
	// limit. It does not limit the backoff and DelayFunc.
	MaxRetryAfter time.Duration `json:"max_retry_after,omitempty" yaml:"max_retry_after,omitempty"`
	// IgnoreRetryAfter makes the wait the backoff alone, whatever the failure asks
	// for. Without it a wait is never shorter than that.
	IgnoreRetryAfter bool `json:"ignore_retry_after,omitempty" yaml:"ignore_retry_after,omitempty"`
	// Budget, if set, is asked before the wait for each retry. A retry that was not
	// made, because the context ended during the wait, or that called nothing, because a
	// limiter or a circuit further inside rejected it, is given back, provided that the
	// budget is a [budget.Refunder]. Share one budget among all strategies that make
	// attempts on the same thing, see package budget. When it is exhausted the last
	// failure is returned, joined with [budget.ErrExhausted].
	Budget budget.Budget `json:"-" yaml:"-"`
	// OnRetry is called before each wait, after the event. It is the place to
	// close a result: one that it was told of is not returned, even if the context
	// ends during the wait.
	OnRetry func(ctx context.Context, r Attempt) `json:"-" yaml:"-"`
}

// An Attempt is what [Options.OnRetry] is told: an attempt that will be followed
// by another.
type Attempt struct {
	Number int             // 0 for the first attempt
	Delay  time.Duration   // the wait until the next
	Result any             // what the attempt returned
	Err    error           // what the attempt returned
	Source pipeline.Source // which pipeline and which strategy
}

// withDefaults returns o, or the zero Options for nil, with what a zero stands
// for. What is off is 0 afterwards.
func (o *Options) withDefaults() Options {
	var full Options
	if o != nil {
		full = *o
	}
	if full.Name == "" {
		full.Name = "Retry"
	}
	switch full.MaxRetries {
	case 0:
		full.MaxRetries = DefaultMaxRetries
	case -1:
		full.MaxRetries = 0
	}
	switch full.Delay {
	case 0:
		full.Delay = DefaultDelay
	case -1:
		full.Delay = 0
	}
	if full.MaxRetryAfter == 0 {
		full.MaxRetryAfter = DefaultMaxRetryAfter
	}
	return full
}

// Validate returns every problem in one error, or nil. Making a pipeline calls
// it; a configuration file's reader may want it earlier.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if o.MaxRetries < -1 {
		add("MaxRetries is %d, must be at least 0, or -1 for none", o.MaxRetries)
	}
	if int(o.Backoff) >= len(backoffs) {
		add("Backoff is %d, must be Constant, Linear or Exponential", o.Backoff)
	}
	if o.Delay < -1 {
		add("Delay is %v, must be at least 0, or -1 for none", o.Delay)
	}
	if o.MaxDelay < 0 {
		add("MaxDelay is %v, must be at least 0", o.MaxDelay)
	}
	if o.MaxRetryAfter < -1 {
		add("MaxRetryAfter is %v, must be at least 0, or -1 for no limit", o.MaxRetryAfter)
	}
	if o.MaxDuration < 0 {
		add("MaxDuration is %v, must be at least 0", o.MaxDuration)
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New("retry: invalid options: " + strings.Join(problems, "; "))
}

// Result makes an [Options.Handle] of a predicate that knows the type. A
// nil result is asked about as the zero T. A result of another type is handled
// only if it comes with an error that handle, given the zero T, wants handled.
// So T must be the type that [pipeline.ExecuteValue] is called for: with another,
// handle is never asked about a result. That is not an error, because one pipeline
// can run callbacks of several types.
func Result[T any](handle func(T, error) bool) func(any, error) bool {
	return func(result any, err error) bool {
		v, ok := result.(T)
		if !ok && result != nil && err == nil {
			return false
		}
		return handle(v, err)
	}
}

// String returns which attempt it was and what follows, without the Result: "orders/Retry: attempt 0, next after 2s: boom".
func (a Attempt) String() string {
	text := fmt.Sprintf("attempt %d, next after %v", a.Number, a.Delay)
	if source := a.Source.String(); source != "" {
		text = source + ": " + text
	}
	if a.Err != nil {
		text += ": " + a.Err.Error()
	}
	return text
}

// LogValue implements [slog.LogValuer]. The Result, a value of the program's, is left out.
func (a Attempt) LogValue() slog.Value {
	return slog.GroupValue(slog.String("source", a.Source.String()), slog.Int("number", a.Number),
		slog.Duration("delay", a.Delay), slog.Any("error", a.Err))
}
