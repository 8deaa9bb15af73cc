package telemetry

import (
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

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

// A breaker is a strategy with a state: one of circuitStates, or "isolated", which counts as open.
type breaker interface{ CircuitState() string }

// A reportedBreaker is the circuit of a pipeline without a registry: its state is what its last event says.
type reportedBreaker struct {
	state string
	until time.Duration // the end of the break of an open circuit, by clock.Now; 0 for none
}

// CircuitState returns the state. A circuit whose break is over lets the next execution through, as a half-open one does.
func (b *reportedBreaker) CircuitState() string {
	if b.until != 0 && clock.Now() >= b.until {
		return stateHalfOpen
	}
	return b.state
}

// reportedBy returns the circuit that an event of strategies/circuitbreaker reports, or nil for another event.
func reportedBy(e *pipeline.Event) *reportedBreaker {
	switch e.Name {
	case "OnCircuitClosed":
		return &reportedBreaker{state: stateClosed}
	case "OnCircuitHalfOpened":
		return &reportedBreaker{state: stateHalfOpen}
	case "OnCircuitOpened":
		if e.Duration > 0 {
			return &reportedBreaker{state: stateOpen, until: saturate.Add(clock.Now(), e.Duration)}
		}
		return &reportedBreaker{state: stateOpen} // isolated
	default:
		return nil
	}
}

// A circuit has series from the first time that it is not closed: a series for each state, which is 1 for the current state and 0 for the others.
type circuit struct {
	breaker breaker
	shown   bool
	own     bool // it has series; without, it is counted in the common series
}

// circuits are the circuits of all pipelines. A registry puts circuits in force, and these are asked: the circuit of a version that is being
// drained still reports events, and one that is isolated or closed by hand reports only when it is called.
type circuits struct {
	limit   int // of the series, and of the circuits that are not in force
	mu      sync.Mutex
	all     map[pipeline.Source]*circuit
	inForce map[pipeline.Source]bool // the pipelines whose circuits are in force
	used    int                      // the number of series
}

func (c *circuits) init(limit int) {
	c.limit, c.all, c.inForce = limit, map[pipeline.Source]*circuit{}, map[pipeline.Source]bool{}
}

// report shows the circuit that e reports, if it does.
func (c *circuits) report(e *pipeline.Event) {
	reported := reportedBy(e)
	if reported == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.all[e.Source]
	if !c.inForce[withoutStrategy(e.Source)] {
		if found == nil && len(c.all) < c.limit {
			found = &circuit{}
			c.all[e.Source] = found
		}
		if found != nil {
			found.breaker = reported
		}
	}
	if found != nil { // else a replaced version had it
		c.show(found)
	}
}

// show gives the circuit series, if there is room. The caller holds c.mu.
func (c *circuits) show(shown *circuit) {
	if !shown.shown && c.used+len(circuitStates) <= c.limit {
		shown.own = true
		c.used += len(circuitStates)
	}
	shown.shown = true
}

// put puts the circuits of the pipeline id in force, by the names of the strategies, in place of its previous circuits.
func (c *circuits) put(id pipeline.Source, breakers map[string]breaker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(func(of pipeline.Source) bool { return withoutStrategy(of) == id && breakers[of.Strategy] == nil })
	for strategy, b := range breakers {
		c.inForce[id] = true
		of := id
		of.Strategy = strategy
		if c.all[of] == nil {
			c.all[of] = &circuit{}
		}
		c.all[of].breaker = b
	}
}

// forget removes the circuits of the pipeline of id, or only the one of its strategy.
func (c *circuits) forget(id pipeline.Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(func(of pipeline.Source) bool { return of == id || withoutStrategy(of) == id })
	delete(c.inForce, id)
}

// remove removes the circuits for which f returns true. The caller holds c.mu.
func (c *circuits) remove(f func(pipeline.Source) bool) {
	maps.DeleteFunc(c.all, func(id pipeline.Source, removed *circuit) bool {
		if !f(id) {
			return false
		}
		if removed.own {
			c.used -= len(circuitStates)
		}
		return true
	})
}

// observe exports the states.
func (c *circuits) observe(o observation) {
	common := map[string]int64{}
	for id, b := range c.breakers() {
		state := stateOf(b) // without c.mu: CircuitState can be the program's
		own, shown := c.see(id, state)
		switch {
		case own:
			for _, each := range circuitStates {
				o.bool(circuitState, each == state, with(appendSource([]attribute.KeyValue{attribute.String(keyState, each)}, id)...))
			}
		case shown:
			common[state]++
		}
	}
	if len(common) == 0 {
		return
	}
	for _, state := range circuitStates {
		o.int(circuitState, common[state], with(attribute.String(keyState, state), attribute.Bool(keyOverflow, true)))
	}
}

// breakers returns all circuits by source.
func (c *circuits) breakers() map[pipeline.Source]breaker {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[pipeline.Source]breaker{}
	for id, circuit := range c.all {
		all[id] = circuit.breaker
	}
	return all
}

// see shows the circuit at id if the state that a collection has seen is not closed: it may be isolated by hand, and not called since.
func (c *circuits) see(id pipeline.Source, state string) (own, shown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.all[id]
	if found == nil {
		return false, false // it was removed meanwhile
	}
	if state != stateClosed {
		c.show(found)
	}
	return found.own, found.shown
}

// stateOf returns one of circuitStates.
func stateOf(b breaker) (state string) {
	recovered.Call("telemetry: CircuitState", func() { state = b.CircuitState() })
	if state == "isolated" {
		return stateOpen
	}
	return state
}

func withoutStrategy(id pipeline.Source) pipeline.Source {
	id.Strategy = ""
	return id
}
