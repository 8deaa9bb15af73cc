package telemetry

import (
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// The states of a circuit, as strategies/circuitbreaker reports that they begin.
var circuitStates = []struct{ event, state string }{
	{"OnCircuitClosed", "closed"},
	{"OnCircuitOpened", "open"},
	{"OnCircuitHalfOpened", "half_open"},
}

// A circuit is a strategy that has one of circuitStates, or is "isolated", which counts as open.
type circuit interface{ CircuitState() string }

// circuitSeries are the series of one circuit: one for each state, 1 for the state in force.
//
// The state is that of the last event, until a registry replaces the pipeline: then it is the state of the
// circuit in the version in force. Events do not decide after that, because the circuit of a version that is
// being drained goes on to report them, and a new circuit reports nothing until it opens.
type circuitSeries struct {
	state  atomic.Int32 // an index of circuitStates
	states []*series    // nil: there is no room for them, and the circuit is counted with others
	kept   bool         // the series count for the limit
}

// circuit notes the state that an event is about, if it is about one. A circuit has no series before its first
// event: it is closed until then.
func (s *store) circuit(from *source, event string) {
	if !strings.HasPrefix(event, "OnCircuit") {
		return
	}
	for i, c := range circuitStates {
		if c.event == event {
			s.circuitAt(from).state.Store(int32(i)) //nolint:gosec // one of three
		}
	}
}

// circuitAt returns the series of the circuit at from.
func (s *store) circuitAt(from *source) *circuitSeries {
	if c := from.circuits.Load(); c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := from.circuits.Load(); c != nil {
		return c
	}
	c := &circuitSeries{}
	if s.keptCircuits+len(circuitStates) <= s.limit {
		for _, state := range circuitStates {
			c.states = append(c.states, newSeries(appendSource([]attribute.KeyValue{attribute.String(keyState, state.state)}, from.of)...))
		}
		if c.kept = !from.removed; c.kept {
			s.keptCircuits += len(circuitStates)
		}
	}
	from.circuits.Store(c)
	return c
}

// forgetCircuit ends the series of the circuit at from. It is called under the lock of the store.
func (s *store) forgetCircuit(from *source) {
	if c := from.circuits.Swap(nil); c != nil && c.kept {
		s.keptCircuits -= len(circuitStates)
	}
}

// A circuitRest counts the circuits that have no series of their own, by state.
type circuitRest struct {
	counts [3]int64
	some   bool
}

var circuitRestOptions = func() (all [3][]metric.ObserveOption) {
	for i, state := range circuitStates {
		all[i] = newSeries(attribute.String(keyState, state.state), attribute.Bool(keyOverflow, true)).observe
	}
	return all
}()

func (r *circuitRest) observe(o metric.Observer, i *instruments) {
	if !r.some {
		return
	}
	for n, options := range circuitRestOptions {
		o.ObserveInt64(i.circuits, r.counts[n], options...)
	}
}

// observe exports the state of inForce, or that of the last event if inForce is nil. A circuit without series of
// its own is added to rest.
func (c *circuitSeries) observe(o metric.Observer, i *instruments, inForce *circuit, rest *circuitRest) {
	now := circuitStates[c.state.Load()].state
	if inForce != nil {
		recovered.Call("telemetry: CircuitState", func() { now = (*inForce).CircuitState() })
	}
	if now == "isolated" {
		now = "open"
	}
	rest.some = rest.some || c.states == nil
	for n, state := range circuitStates {
		in := int64(0)
		if state.state == now {
			in = 1
		}
		if c.states == nil {
			rest.counts[n] += in
		} else {
			o.ObserveInt64(i.circuits, in, c.states[n].observe...)
		}
	}
}

// InForce exports the state of the circuits of p from now on. A registry calls it when it has replaced the
// version of a pipeline.
func (t *Telemetry) InForce(p *pipeline.Pipeline) {
	circuits := map[pipeline.Source]circuit{}
	of := pipeline.Source{Pipeline: p.Name(), Instance: p.Instance()}
	findCircuits(p, circuits)
	t.series.putCircuits(of, circuits)
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

// putCircuits puts circuits in force, and ends the series of those that the pipeline of has no more.
func (s *store) putCircuits(of pipeline.Source, circuits map[pipeline.Source]circuit) {
	for source, c := range circuits {
		if from := s.source(&source); from != s.rest {
			from.inForce.Store(&c)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for source, from := range *s.sources.Load() {
		if source.Pipeline == of.Pipeline && source.Instance == of.Instance && circuits[source] == nil {
			from.inForce.Store(nil)
			s.forgetCircuit(from)
		}
	}
}
