package circuitbreaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// What a zero in the [Options] stands for.
const (
	DefaultFailureRatio      = 0.1
	DefaultMinimumThroughput = 100
	DefaultSamplingDuration  = 30 * time.Second
	DefaultBreakDuration     = 5 * time.Second
	DefaultHalfOpenProbes    = 1
)

// Options say when a circuit opens, for how long, and how it closes. The zero
// Options are the defaults: a tenth of at least 100 executions within 30 s opens
// it for 5 s, and one probe that succeeds closes it.
type Options struct {
	// Name is how the strategy is called in telemetry; "" is "CircuitBreaker".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// FailureRatio opens the circuit when so large a part of the executions in the
	// sampling window has failed; up to 1, 0 is 0.1, -1 switches the rule off.
	FailureRatio float64 `json:"failure_ratio,omitempty" yaml:"failure_ratio,omitempty"`
	// MinimumThroughput is how many executions there must be in the window for the
	// ratio to mean anything; 0 is 100.
	MinimumThroughput int `json:"minimum_throughput,omitempty" yaml:"minimum_throughput,omitempty"`
	// SamplingDuration is how long the window is; 0 is 30 s. It slides on in steps
	// of a tenth.
	SamplingDuration time.Duration `json:"sampling_duration,omitempty" yaml:"sampling_duration,omitempty"`
	// ConsecutiveFailures opens the circuit after so many failures in a row; 0
	// switches the rule off. With both rules on, either will do.
	ConsecutiveFailures int `json:"consecutive_failures,omitempty" yaml:"consecutive_failures,omitempty"`
	// BreakDuration is how long the circuit then stays open, and how long a probe
	// keeps its place; 0 is 5 s.
	BreakDuration time.Duration `json:"break_duration,omitempty" yaml:"break_duration,omitempty"`
	// BreakDurationFunc, where set, gives the length of each break: a growing one
	// by [Transition.HalfOpenAttempts], or what the failure asks for, by
	// [pipeline.RetryAfter]. Zero or less: BreakDuration. It is called once for a
	// break, before the circuit opens, and must not wait for anything.
	BreakDurationFunc func(ctx context.Context, t Transition) time.Duration `json:"-" yaml:"-"`
	// HalfOpenProbes is how many probes have to succeed for the circuit to close,
	// and how many may run at once; 0 is 1.
	HalfOpenProbes int `json:"half_open_probes,omitempty" yaml:"half_open_probes,omitempty"`
	// Handle reports whether an outcome is a failure. It is called for every outcome,
	// also for successful ones. If nil, every error is a failure except a cancellation
	// and a rejection by a strategy further inside, such as a rate limiter's. See the
	// package comment.
	Handle func(result any, err error) bool `json:"-" yaml:"-"`
	// Control opens and closes the circuit by hand, and may be shared.
	Control *Control `json:"-" yaml:"-"`

	// The following are called by the execution that caused a transition, after it
	// and after the event. Of transitions that follow close upon one another the
	// calls may overlap: what must be right in the end asks [Strategy.State].

	// OnOpened is called when the circuit was opened, or isolated.
	OnOpened func(ctx context.Context, t Transition) `json:"-" yaml:"-"`
	// OnClosed is called when the circuit was closed.
	OnClosed func(ctx context.Context, t Transition) `json:"-" yaml:"-"`
	// OnHalfOpened is called when the first probe is let through, before it runs.
	OnHalfOpened func(ctx context.Context, t Transition) `json:"-" yaml:"-"`
}

// A Transition is what the functions in the [Options] are told.
type Transition struct {
	From, To State
	Source   pipeline.Source // which pipeline and which strategy
	Manual   bool            // it was ordered with a Control
	// HalfOpenAttempts is how often the circuit has been half open since it was
	// last closed: 0 where it opens for the first time.
	HalfOpenAttempts int
	// BreakDuration is how long the circuit stays open; for
	// [Options.BreakDurationFunc] it is that of the Options. 0 unless To is Open.
	BreakDuration time.Duration
	// Throughput and Failures count what was in the sampling window, where that
	// rule is on and a closed circuit opens.
	Throughput, Failures int64
	// ConsecutiveFailures is how many there were in a row, where that rule is on
	// and a closed circuit opens.
	ConsecutiveFailures int64
	// Result and Err are the outcome that opened or closed the circuit; Err is
	// [pipeline.ErrAborted] if there is none because of a panic.
	Result any
	Err    error
}

// withDefaults returns o, or the zero Options for nil, with what a zero stands for.
func (o *Options) withDefaults() Options {
	var full Options
	if o != nil {
		full = *o
	}
	setDefault(&full.Name, "CircuitBreaker")
	setDefault(&full.FailureRatio, DefaultFailureRatio)
	setDefault(&full.MinimumThroughput, DefaultMinimumThroughput)
	setDefault(&full.SamplingDuration, DefaultSamplingDuration)
	setDefault(&full.BreakDuration, DefaultBreakDuration)
	setDefault(&full.HalfOpenProbes, DefaultHalfOpenProbes)
	return full
}

func setDefault[T comparable](v *T, d T) {
	if *v == *new(T) {
		*v = d
	}
}

// Validate returns every problem in one error, or nil. Making a pipeline calls
// it; a configuration file's reader may want it earlier.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if r := o.FailureRatio; r != -1 && (!(r >= 0) || r > 1) { // also what is not a number
		add("FailureRatio is %v, must be more than 0 and at most 1, or -1 for off", r)
	}
	if o.MinimumThroughput < 0 {
		add("MinimumThroughput is %d, must be at least 0", o.MinimumThroughput)
	}
	if o.SamplingDuration < 0 {
		add("SamplingDuration is %v, must be at least 0", o.SamplingDuration)
	}
	if o.ConsecutiveFailures < 0 {
		add("ConsecutiveFailures is %d, must be at least 0", o.ConsecutiveFailures)
	}
	if o.BreakDuration < 0 {
		add("BreakDuration is %v, must be at least 0", o.BreakDuration)
	}
	if o.HalfOpenProbes < 0 {
		add("HalfOpenProbes is %d, must be at least 0", o.HalfOpenProbes)
	}
	if o.FailureRatio == -1 && o.ConsecutiveFailures == 0 && o.Control == nil {
		add("FailureRatio is off, and so is ConsecutiveFailures: nothing would open the circuit")
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New("circuitbreaker: invalid options: " + strings.Join(problems, "; "))
}

// String returns which circuit changed and how: "orders/CircuitBreaker: closed to open: boom".
func (t Transition) String() string {
	text := fmt.Sprintf("%v to %v", t.From, t.To)
	if source := t.Source.String(); source != "" {
		text = source + ": " + text
	}
	if t.Err != nil {
		text += ": " + t.Err.Error()
	}
	return text
}

// LogValue implements [slog.LogValuer]. The Result, a value of the program's, is left out.
func (t Transition) LogValue() slog.Value {
	return slog.GroupValue(slog.String("source", t.Source.String()), slog.String("from", t.From.String()), slog.String("to", t.To.String()),
		slog.Bool("manual", t.Manual), slog.Duration("break", t.BreakDuration), slog.Int64("throughput", t.Throughput),
		slog.Int64("failures", t.Failures), slog.Any("error", t.Err))
}
