package adaptive

import (
	"fmt"
	"log/slog"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A Description is what [Strategy.Describe] returns as the options.
type Description struct {
	Options
	// Limiter is the type of the limiter, such as "adaptive.Limiter".
	Limiter string `json:"limiter"`
	// Limits are its options, if it has a method Options that returns one value; otherwise nil.
	Limits any `json:"limits,omitempty"`
}

// A State is what [Strategy.Describe] returns as the state of a [Limiter] or a [Throttler].
type State struct {
	limiter.Statistics
	// Limit is the present limit; 0 for a Throttler.
	Limit int `json:"limit,omitempty"`
	// RejectionRate is [Throttler.RejectionRate]; 0 for a Limiter.
	RejectionRate float64 `json:"rejection_rate,omitempty"`
}

// String returns the limit or the rejection rate, and the statistics.
func (s State) String() string {
	if s.Limit == 0 {
		return fmt.Sprintf("rejects %.3g, %v", s.RejectionRate, s.Statistics)
	}
	return fmt.Sprintf("limit %d, %v", s.Limit, s.Statistics)
}

// LogValue implements [slog.LogValuer] with [State.String].
func (s State) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Describe returns a [Description], and the state of the limiter: a [State], or for other limiters what
// [ratelimit.Strategy.Describe] returns. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	described, state := ratelimit.New(s.limiter, nil).Describe()
	same := described.(ratelimit.Description)
	switch l := s.limiter.(type) {
	case *Limiter:
		state = State{Statistics: l.Statistics(), Limit: l.Limit()}
	case *Throttler:
		state = State{Statistics: l.Statistics(), RejectionRate: l.RejectionRate()}
	}
	return Description{Options: s.options, Limiter: same.Limiter, Limits: same.Limits}, state
}
