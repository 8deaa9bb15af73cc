package chaos

import (
	"cmp"
	"context"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

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
	if o == nil {
		return nil
	}
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
	full.Latency = cmp.Or(full.Latency, DefaultLatency)
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
