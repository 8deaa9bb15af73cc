package telemetry

import (
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The states of a circuit, as strategies/circuitbreaker reports that they begin.
var circuitStates = []struct{ event, state string }{
	{"OnCircuitClosed", "closed"},
	{"OnCircuitOpened", "open"},
	{"OnCircuitHalfOpened", "half_open"},
}

// circuitSeries are the series of one circuit: one a state, 1 for the one in force.
type circuitSeries struct {
	state  atomic.Int32 // an index of circuitStates
	states []*series
}

// circuit notes the state that an event is about, if it is about one. There are no
// series of a circuit before its first event: it is closed until then.
func (s *source) circuit(event string) {
	for i, c := range circuitStates {
		if c.event != event {
			continue
		}
		if s.circuits.Load() == nil {
			s.circuits.CompareAndSwap(nil, newCircuitSeries(s))
		}
		s.circuits.Load().state.Store(int32(i)) //nolint:gosec // one of three
	}
}

func newCircuitSeries(s *source) *circuitSeries {
	c := &circuitSeries{}
	for _, state := range circuitStates {
		c.states = append(c.states, newSeries(appendSource([]attribute.KeyValue{attribute.String(keyState, state.state)}, s.of)...))
	}
	return c
}

func (c *circuitSeries) observe(o metric.Observer, i *instruments) {
	now := int(c.state.Load())
	for state, s := range c.states {
		in := int64(0)
		if state == now {
			in = 1
		}
		o.ObserveInt64(i.circuits, in, s.observe...)
	}
}
