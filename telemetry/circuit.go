package telemetry

import (
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// circuitStates are the states of a circuit, each with the event of strategies/circuitbreaker that reports its beginning.
var circuitStates = []struct{ event, state string }{
	{"OnCircuitClosed", "closed"},
	{"OnCircuitOpened", "open"},
	{"OnCircuitHalfOpened", "half_open"},
}

// A circuit is a strategy with a state: one of circuitStates, or "isolated", which counts as open.
type circuit interface{ CircuitState() string }

// circuitSeries are the series of one circuit: one for each state, which is 1 for the current state and 0 for the others.
//
// Until a registry replaces the pipeline, the current state is that of the last event. After that, it is the state of the
// circuit in the version in force, whatever the events say: the circuit of a version that is being drained still reports
// events, and a new circuit reports none until it opens.
type circuitSeries struct {
	state   atomic.Int32 // an index of circuitStates
	states  []*series    // nil if the quota is full: the circuitOverflow counts the circuit
	inQuota bool         // the series count in the quota
}

// recordCircuit records the state of a circuit if the event reports one. A circuit has no series before its first
// event: it is closed until then.
func (s *seriesSet) recordCircuit(src *source, event string) {
	if !strings.HasPrefix(event, "OnCircuit") {
		return
	}
	for i, c := range circuitStates {
		if c.event == event {
			s.circuitAt(src).state.Store(int32(i)) //nolint:gosec // one of three
		}
	}
}

// circuitAt returns the series of the circuit at that source.
func (s *seriesSet) circuitAt(src *source) *circuitSeries {
	if c := src.circuit.Load(); c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := src.circuit.Load(); c != nil {
		return c
	}
	c := &circuitSeries{}
	if s.circuitQuota.used+len(circuitStates) <= s.circuitQuota.limit {
		for _, state := range circuitStates {
			c.states = append(c.states, newSeries(appendSource([]attribute.KeyValue{attribute.String(keyState, state.state)}, src.id)...))
		}
		if c.inQuota = !src.removed; c.inQuota {
			s.circuitQuota.add(len(circuitStates))
		}
	}
	src.circuit.Store(c)
	return c
}

// forgetCircuit removes the series of the circuit at that source. The caller holds s.mu.
func (s *seriesSet) forgetCircuit(src *source) {
	if c := src.circuit.Swap(nil); c != nil && c.inQuota {
		s.circuitQuota.add(-len(circuitStates))
	}
}

// A circuitOverflow counts the circuits without series, by the index of their state in circuitStates.
type circuitOverflow [3]int64

var circuitOverflowOptions = func() (all [3][]metric.ObserveOption) {
	for i, state := range circuitStates {
		all[i] = newSeries(attribute.String(keyState, state.state), attribute.Bool(keyOverflow, true)).observe
	}
	return all
}()

func (c *circuitOverflow) observe(o metric.Observer, i *instruments) {
	if *c == (circuitOverflow{}) {
		return
	}
	for n, options := range circuitOverflowOptions {
		o.ObserveInt64(i.circuits, c[n], options...)
	}
}

// observe exports the state of inForce, or that of the last event if inForce is nil. A circuit without series is added to
// overflow.
func (c *circuitSeries) observe(o metric.Observer, i *instruments, inForce *circuit, overflow *circuitOverflow) {
	now := circuitStates[c.state.Load()].state
	if inForce != nil {
		recovered.Call("telemetry: CircuitState", func() { now = (*inForce).CircuitState() })
	}
	if now == "isolated" {
		now = "open"
	}
	for n, state := range circuitStates {
		in := int64(0)
		if state.state == now {
			in = 1
		}
		if c.states == nil {
			overflow[n] += in
		} else {
			o.ObserveInt64(i.circuits, in, c.states[n].observe...)
		}
	}
}

// InForce exports the state of the circuits of p from now on. A registry calls it when it has replaced the version of a
// pipeline.
func (t *Telemetry) InForce(p *pipeline.Pipeline) {
	circuits := map[pipeline.Source]circuit{}
	findCircuits(p, circuits)
	t.series.putCircuits(pipeline.Source{Pipeline: p.Name(), Instance: p.Instance()}, circuits)
}

// findCircuits adds the circuits of p and of the pipelines that it contains.
func findCircuits(p *pipeline.Pipeline, circuits map[pipeline.Source]circuit) {
	for source, s := range p.Strategies() {
		if c, ok := s.(circuit); ok {
			circuits[source] = c
		}
		if e, ok := s.(interface{ Pipeline() *pipeline.Pipeline }); ok {
			findCircuits(e.Pipeline(), circuits)
		}
	}
}

// putCircuits puts circuits in force, and removes the series of the circuits that the pipeline id no longer has.
func (s *seriesSet) putCircuits(id pipeline.Source, circuits map[pipeline.Source]circuit) {
	for source, c := range circuits {
		if src := s.source(&source); src != s.overflow {
			src.inForce.Store(&c)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for source, src := range *s.sources.Load() {
		if source.Pipeline == id.Pipeline && source.Instance == id.Instance && circuits[source] == nil {
			src.inForce.Store(nil)
			s.forgetCircuit(src)
		}
	}
}
