package retry

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
)

// Forever is an [Options.MaxRetries] without a limit: the strategy retries until an attempt succeeds or the context ends.
const Forever = math.MaxInt

// The defaults of [Options].
const (
	defaultMaxRetries    = 3
	defaultDelay         = 2 * time.Second
	defaultMaxRetryAfter = time.Minute
)

// Options say what is retried, how often and when. The zero Options are the defaults: three retries, 2 s apart.
type Options struct {
	// Name is the strategy's name in telemetry. The default is "Retry".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// MaxRetries is the number of attempts after the first. The default is 3; -1 is none.
	MaxRetries int `json:"max_retries,omitempty" yaml:"max_retries,omitempty" reload:"off,forever,default=3"`
	// Backoff says how the waits grow. The default is Constant.
	Backoff Backoff `json:"backoff,omitempty" yaml:"backoff,omitempty"`
	// Delay is the first wait. The default is 2 s. With -1 there is no backoff: a retry waits only if the failure asks
	// for it.
	Delay time.Duration `json:"delay,omitempty" yaml:"delay,omitempty" reload:"off,default=2s"`
	// MaxDelay is the longest backoff, jitter included. If 0, there is no limit. It limits neither what DelayFunc
	// returns nor what a failure asks for.
	MaxDelay time.Duration `json:"max_delay,omitempty" yaml:"max_delay,omitempty"`
	// Jitter makes the waits random, see the package comment. Set it if more than a few clients call the same server.
	Jitter bool `json:"jitter,omitempty" yaml:"jitter,omitempty"`
	// MaxDuration is the longest time from the beginning of the execution until the last attempt starts. If 0, only the
	// context limits it. It interrupts no attempt. The time that OnRetry takes counts.
	MaxDuration time.Duration `json:"max_duration,omitempty" yaml:"max_duration,omitempty"`
	// Handle reports whether an outcome is retried. It is called for every attempt, also for successful ones. If nil,
	// every error is retried except [context.Canceled], [context.DeadlineExceeded] once the execution's own context
	// is done, and errors whose method Retryable() bool returns false. [pipeline.HandleResult] converts a function
	// that knows the type of the results.
	Handle func(result any, err error) bool `json:"-" yaml:"-"`
	// DelayFunc returns the wait after the given attempt, 0 for the first, in place of the backoff. If ok is false or d
	// is below 0, the wait is the backoff.
	DelayFunc func(ctx context.Context, attempt int, result any, err error) (d time.Duration, ok bool) `json:"-" yaml:"-"`
	// MaxRetryAfter is the longest wait that a failure can ask for. A failure that asks for more is returned at once,
	// joined with [ErrMaxRetryAfter]. The default is a minute; -1 is no limit. It does not limit the backoff and
	// DelayFunc.
	MaxRetryAfter time.Duration `json:"max_retry_after,omitempty" yaml:"max_retry_after,omitempty" reload:"off,default=1m"`
	// IgnoreRetryAfter makes the strategy wait as long as Delay says, also if a failure asks for a longer wait.
	IgnoreRetryAfter bool `json:"ignore_retry_after,omitempty" yaml:"ignore_retry_after,omitempty"`
	// Budget limits the retries of all strategies that share it. Share one among the strategies that call the same
	// server, see package budget. If nil, there is no such limit. If the budget has no retry left, the last failure is
	// returned, joined with [budget.ErrExhausted].
	//
	// Each retry is taken from the budget before the wait. If the budget is a [budget.Refunder], a retry is given
	// back in two cases: it was not made, because the context ended during the wait; or it called nothing, because a
	// limiter or a circuit further inside rejected it.
	Budget budget.Budget `json:"-" yaml:"-"`
	// OnRetry, if it is not nil, is called before each wait with the event [EventRetry]. It can close the Result: Execute
	// does not return a result that was handed to OnRetry, even if the context ends during the wait.
	OnRetry func(ctx context.Context, e pipeline.Event) `json:"-" yaml:"-"`
}

// withDefaults returns o with the defaults filled in. A nil o stands for the zero Options.
func (o *Options) withDefaults() Options {
	full := *cmp.Or(o, new(Options))
	full.Name = cmp.Or(full.Name, "Retry")
	full.MaxRetries = cmp.Or(full.MaxRetries, defaultMaxRetries)
	full.Delay = cmp.Or(full.Delay, defaultDelay)
	full.MaxRetryAfter = cmp.Or(full.MaxRetryAfter, defaultMaxRetryAfter)
	return full
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Making a pipeline calls it; a
// program that reads options from a file can call it earlier.
func (o *Options) Validate() error {
	o = cmp.Or(o, new(Options))
	var p validate.Problems
	if o.MaxRetries < -1 {
		p.Add("MaxRetries", o.MaxRetries, "must be at least 0, or -1 for none")
	}
	if !backoffs.Has(o.Backoff) {
		p.Add("Backoff", o.Backoff, "must be Constant, Linear or Exponential")
	}
	if o.Delay < -1 {
		p.Add("Delay", o.Delay, "must be at least 0, or -1 for none")
	}
	p.NotNegative("MaxDelay", o.MaxDelay)
	if o.MaxRetryAfter < -1 {
		p.Add("MaxRetryAfter", o.MaxRetryAfter, "must be at least 0, or -1 for no limit")
	}
	p.NotNegative("MaxDuration", o.MaxDuration)
	return p.Err("retry")
}
