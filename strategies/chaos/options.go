package chaos

import (
	"cmp"
	"context"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// The defaults of the options.
const (
	DefaultRate    = 0.001
	DefaultLatency = 30 * time.Second
	DefaultWeight  = 100
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
	o.Rate = cmp.Or(o.Rate, DefaultRate)
}

// validate adds what is wrong with o to p.
func (o *Options) validate(p *validate.Problems) {
	if o.Rate != -1 && !(o.Rate >= 0 && o.Rate <= 1) { // also if it is NaN
		p.Add("Rate", o.Rate, "must be from 0 to 1, or -1 for never")
	}
}
