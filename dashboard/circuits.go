package dashboard

import (
	"iter"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// isolations are the circuits that users of the dashboard have isolated. A reload makes a circuit again, and the new one
// does not know that it is to be isolated, unless its Control is one of the program.
type isolations map[pipeline.Source]isolation

// An isolation says who has isolated a circuit, and when.
type isolation struct {
	by      string
	since   time.Time
	control *circuitbreaker.Control // what isolates it now
}

// forget removes the circuits of a pipeline.
func (i isolations) forget(source pipeline.Source) {
	for s := range i {
		if s.Pipeline == source.Pipeline && s.Instance == source.Instance {
			delete(i, s)
		}
	}
}

// isolate records that a circuit was isolated.
func (v *Events) isolate(source pipeline.Source, i isolation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isolations == nil {
		v.isolations = isolations{}
	}
	v.isolations[source] = i
}

// endIsolation records that a circuit was closed.
func (v *Events) endIsolation(source pipeline.Source) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.isolations, source)
}

// isolationOf returns who has isolated a circuit.
func (v *Events) isolationOf(source pipeline.Source) (isolation, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i, ok := v.isolations[source]
	return i, ok
}

// replaceControl records that a circuit has another Control now, unless it was closed meanwhile.
func (v *Events) replaceControl(source pipeline.Source, old, now *circuitbreaker.Control) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i, ok := v.isolations[source]
	switch {
	case !ok:
		now.Reset()
	case i.control == old:
		i.control = now
		v.isolations[source] = i
	}
}

// isolateAgain isolates the circuits of p that users have isolated and that a reload has made again. If the program has
// closed a circuit itself, the isolation is over.
func (v *Events) isolateAgain(p *pipeline.Pipeline) {
	v.mu.Lock()
	none := len(v.isolations) == 0
	v.mu.Unlock()
	if none {
		return
	}
	for source, c := range circuitsOf(p) {
		i, ok := v.isolationOf(source)
		switch {
		case !ok:
		case i.control != c.Control():
			c.Control().Isolate()
			v.replaceControl(source, i.control, c.Control())
		case !c.Control().Isolated():
			v.endIsolation(source)
		}
	}
}

// circuitsOf yields the circuits of p. It leaves out the pipelines that p embeds, which the registry has under their own
// names.
func circuitsOf(p *pipeline.Pipeline) iter.Seq2[pipeline.Source, *circuitbreaker.Strategy] {
	return func(yield func(pipeline.Source, *circuitbreaker.Strategy) bool) {
		var all []func() bool
		recovered.Call("dashboard: Name of a strategy", func() {
			for source, s := range p.Strategies() {
				if c, ok := s.(*circuitbreaker.Strategy); ok {
					all = append(all, func() bool { return yield(source, c) })
				}
			}
		})
		for _, next := range all {
			if !next() {
				return
			}
		}
	}
}

// circuitsIn yields the circuits of all pipelines.
func circuitsIn(r *registry.Registry) iter.Seq2[pipeline.Source, *circuitbreaker.Strategy] {
	return func(yield func(pipeline.Source, *circuitbreaker.Strategy) bool) {
		for _, info := range r.Pipelines() {
			for source, c := range circuitsOf(info.Pipeline) {
				if !yield(source, c) {
					return
				}
			}
		}
	}
}

// addressPrefix begins the names of the pipelines that have the circuits of the addresses of weir gateway. Such a circuit
// rejects nothing: it only decides which address is asked first.
const addressPrefix = "gateway/"

func (s *sampler) circuitStates(now time.Time) []circuitState {
	events := s.dashboard.options.Events
	causes := events.openings()
	states := []circuitState{}
	seen := map[pipeline.Source]bool{}
	for _, info := range s.dashboard.options.Registry.Pipelines() {
		events.isolateAgain(info.Pipeline)
		for source, c := range circuitsOf(info.Pipeline) {
			st := c.Statistics()
			series := s.observeCircuit(source, st.State.String(), now, seen)
			state := circuitState{
				Source: source.String(), State: st.State.String(), Since: utc(series.since), RetryAfter: st.RetryAfter.Round(time.Millisecond),
				Figures: figures(st),
			}
			if opened, ok := causes[source]; ok && state.State != "closed" {
				state.Cause = opened.text
				if state.Since.IsZero() {
					state.Since = opened.at.UTC()
				}
			}
			switch state.State {
			case "open":
				state.Level = levelError
				if strings.HasPrefix(source.Pipeline, addressPrefix) {
					state.Level = levelWarning
				}
			case "isolated":
				state.Level, state.Cause = levelError, ""
				if i, ok := events.isolationOf(source); ok {
					state.IsolatedBy, state.Since = i.by, i.since.UTC()
				}
			case "half_open":
				state.Level = levelWarning
			}
			states = append(states, state)
		}
	}
	s.pruneCircuits(seen)
	return states
}
