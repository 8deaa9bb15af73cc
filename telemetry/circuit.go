package telemetry

import (
	"maps"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/pipeline"
)

// The states of a circuit.
const (
	stateClosed   = "closed"
	stateOpen     = "open"
	stateHalfOpen = "half_open"
)

var circuitStates = [...]string{stateClosed, stateOpen, stateHalfOpen}

// A circuit is a strategy with a state: one of circuitStates, or "isolated", which counts as open.
type circuit interface{ CircuitState() string }

// A reportedCircuit is the circuit of a pipeline without a registry: its state is what its last event says.
type reportedCircuit struct {
	state string
	until time.Duration // the end of the break of an open circuit, by clock.Now; 0 for none
}

// CircuitState returns the state. A circuit whose break is over lets the next execution through, as a half-open one does.
func (c *reportedCircuit) CircuitState() string {
	if c.until != 0 && clock.Now() >= c.until {
		return stateHalfOpen
	}
	return c.state
}

// reportedBy returns the circuit that an event of strategies/circuitbreaker reports, or nil for another event.
func reportedBy(e *pipeline.Event) *reportedCircuit {
	switch e.Name {
	case "OnCircuitClosed":
		return &reportedCircuit{state: stateClosed}
	case "OnCircuitHalfOpened":
		return &reportedCircuit{state: stateHalfOpen}
	case "OnCircuitOpened":
		if e.Duration > 0 {
			return &reportedCircuit{state: stateOpen, until: saturate.Add(clock.Now(), e.Duration)}
		}
		return &reportedCircuit{state: stateOpen} // isolated
	default:
		return nil
	}
}

// circuitSeries are the series of one circuit: one for each state, which is 1 for the current state and 0 for the others.
type circuitSeries struct {
	circuit atomic.Pointer[circuit]
	states  []*series // nil if the quota is full: the circuitOverflow counts the circuit
	inQuota bool      // the series count in the quota
}

// recordCircuit records the state of a circuit if the event reports one. The circuit of a registry is asked instead: the
// circuit of a version that is being drained still reports events, and one that is isolated or closed by hand reports
// only when it is called.
func (s *seriesSet) recordCircuit(src *source, e *pipeline.Event) {
	reported := reportedBy(e)
	if reported == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current := circuit(reported)
	if inForce, ok := s.inForce[withoutStrategy(src.id)]; ok {
		if current = inForce[src.id.Strategy]; current == nil {
			return // a replaced version had it
		}
	}
	s.circuitAt(src).circuit.Store(&current)
}

// circuitAt returns the series of the circuit at that source. The caller holds s.mu.
func (s *seriesSet) circuitAt(src *source) *circuitSeries {
	if c := src.circuit.Load(); c != nil {
		return c
	}
	c := &circuitSeries{}
	if s.circuitQuota.used+len(circuitStates) <= s.circuitQuota.limit {
		for _, state := range circuitStates {
			c.states = append(c.states, newSeries(appendSource([]attribute.KeyValue{attribute.String(keyState, state)}, src.id)...))
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
type circuitOverflow [len(circuitStates)]int64

var circuitOverflowOptions = func() (all [len(circuitStates)][]metric.ObserveOption) {
	for i, state := range circuitStates {
		all[i] = newSeries(attribute.String(keyState, state), attribute.Bool(keyOverflow, true)).observe
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

// observe exports the state. A circuit without series is added to overflow.
func (c *circuitSeries) observe(o metric.Observer, i *instruments, overflow *circuitOverflow) {
	current := c.circuit.Load()
	if current == nil {
		return // it is being recorded just now
	}
	now := stateOf(*current)
	for n, state := range circuitStates {
		in := int64(0)
		if state == now {
			in = 1
		}
		if c.states == nil {
			overflow[n] += in
		} else {
			o.ObserveInt64(i.circuits, in, c.states[n].observe...)
		}
	}
}

// stateOf returns one of circuitStates.
func stateOf(c circuit) (state string) {
	recovered.Call("telemetry: CircuitState", func() { state = c.CircuitState() })
	if state == "isolated" {
		return stateOpen
	}
	return state
}

// inForce exports the state of the circuits of p, and of the pipelines that it contains, and begins the counters of their rate
// limiters at 0.
func (t *Telemetry) inForce(p *pipeline.Pipeline) {
	circuits := map[string]circuit{}
	for source, s := range p.Strategies() {
		for _, name := range rateLimiters(source.Strategy, s) {
			t.series.beginRequests(&pipeline.Source{Pipeline: source.Pipeline, Instance: source.Instance, Strategy: name})
		}
		if c, ok := s.(circuit); ok {
			circuits[source.Strategy] = c
		}
		if e, ok := s.(interface{ Pipeline() *pipeline.Pipeline }); ok {
			t.inForce(e.Pipeline())
		}
	}
	t.series.putCircuits(pipeline.Source{Pipeline: p.Name(), Instance: p.Instance()}, circuits)
}

// putCircuits puts the circuits of the pipeline id in force, by the names of the strategies. Series of circuits that the
// pipeline no longer has are removed.
func (s *seriesSet) putCircuits(id pipeline.Source, circuits map[string]circuit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.inForce[id]
	if len(old) == 0 && len(circuits) == 0 {
		return
	}
	s.inForce[id] = circuits
	all := maps.Clone(circuits)
	maps.Copy(all, old)
	for strategy := range all {
		id.Strategy = strategy
		src := (*s.sources.Load())[id]
		switch c := circuits[strategy]; {
		case src == nil || src.circuit.Load() == nil:
		case c == nil:
			s.forgetCircuit(src)
		default:
			src.circuit.Load().circuit.Store(&c)
		}
	}
}

// findOpenCircuits adds series for the circuits in force that have none and are not closed: circuits that were isolated
// by hand and not called since.
func (s *seriesSet) findOpenCircuits() {
	s.mu.Lock()
	quiet := map[pipeline.Source]circuit{}
	for id, circuits := range s.inForce {
		for strategy, c := range circuits {
			id.Strategy = strategy
			if src := (*s.sources.Load())[id]; src == nil || src.circuit.Load() == nil {
				quiet[id] = c
			}
		}
	}
	s.mu.Unlock() // CircuitState can be the program's
	for id, c := range quiet {
		if stateOf(c) == stateClosed {
			continue
		}
		src := s.source(&id)
		s.mu.Lock()
		if now := s.inForce[withoutStrategy(id)][id.Strategy]; now != nil && src != s.overflow {
			s.circuitAt(src).circuit.Store(&now)
		}
		s.mu.Unlock()
	}
}

func withoutStrategy(id pipeline.Source) pipeline.Source {
	id.Strategy = ""
	return id
}
