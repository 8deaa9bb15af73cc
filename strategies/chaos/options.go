package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// What a zero in the options stands for.
const (
	DefaultRate    = 0.001
	DefaultLatency = 30 * time.Second
	DefaultWeight  = 100
)

// The events of this package, of executions in which something was injected. All
// are Information.
const (
	// EventFault: before the error is returned, which is Err.
	EventFault = "Chaos.OnFault"
	// EventLatency: before the wait, whose length is Duration.
	EventLatency = "Chaos.OnLatency"
	// EventOutcome: before the outcome is returned, which is Result and Err.
	EventOutcome = "Chaos.OnOutcome"
	// EventBehavior: after the behaviour; Err is what that returned.
	EventBehavior = "Chaos.OnBehavior"
)

// Options are what the strategies of this package have in common: when they do
// something. The zero Options inject nothing, because they are not enabled.
//
// The functions are called by all executions at once.
type Options struct {
	// Name is how the strategy is called in telemetry; "" is "Chaos.Fault",
	// "Chaos.Latency", "Chaos.Outcome" or "Chaos.Behavior".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Enabled switches the strategy on.
	Enabled bool `json:"enabled,omitempty" yaml:"enabled,omitempty"`
	// EnabledFunc, where set, tells whether it is on for an execution, in place of
	// Enabled.
	EnabledFunc func(ctx context.Context) bool `json:"-" yaml:"-"`
	// Rate is the part of the executions in which something is injected, up to 1,
	// which is all; 0 is 0.001, -1 is none.
	Rate float64 `json:"rate,omitempty" yaml:"rate,omitempty"`
	// RateFunc, where set, gives the rate for an execution, in place of Rate. Here 0
	// and less is never, and 1 and more is always.
	RateFunc func(ctx context.Context) float64 `json:"-" yaml:"-"`
	// Rand returns a random number from 0 up to but not including 1; nil is that of
	// math/rand. It is for tests.
	Rand func() float64 `json:"-" yaml:"-"`
	// OnInjected is called after the event. Where there is a wait, it is called after
	// that, and not at all if the context has ended meanwhile.
	OnInjected func(ctx context.Context, i Injection) `json:"-" yaml:"-"`
}

// An Injection is what [Options.OnInjected] is told. What a field does not apply to
// leaves it zero.
type Injection struct {
	Source  pipeline.Source // which pipeline and which strategy
	Value   any             // Outcome: what is returned
	Err     error           // Fault, Outcome: what is returned; Behavior: what it returned
	Latency time.Duration   // Latency: what was waited for
}

// withDefaults returns o with what a zero stands for.
func (o Options) withDefaults(name string) Options {
	if o.Name == "" {
		o.Name = name
	}
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	return o
}

// problems lists what is wrong with some options.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// common adds what is wrong with the options that all have.
func (p *problems) common(o *Options) {
	if o.Rate != -1 && !(o.Rate >= 0 && o.Rate <= 1) { // a NaN is not, either
		p.add("Rate is %v, must be from 0 to 1, or -1 for never", o.Rate)
	}
}

func (p *problems) err() error {
	if len(*p) == 0 {
		return nil
	}
	return errors.New("chaos: invalid options: " + strings.Join(*p, "; "))
}

// String returns what was injected, without the Value: "orders/Chaos.Fault: injected: boom".
func (i Injection) String() string {
	text := "injected"
	if i.Latency > 0 {
		text += fmt.Sprintf(" %v", i.Latency)
	}
	if source := i.Source.String(); source != "" {
		text = source + ": " + text
	}
	if i.Err != nil {
		text += ": " + i.Err.Error()
	}
	return text
}

// LogValue implements [slog.LogValuer]. The Value, a value of the program's, is left out.
func (i Injection) LogValue() slog.Value {
	return slog.GroupValue(slog.String("source", i.Source.String()), slog.Any("error", i.Err), slog.Duration("latency", i.Latency))
}
