package dashboard

import (
	"iter"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// isolations are the circuits that users of the dashboard have isolated and that have no Control of the program. A reload
// that makes such a circuit again would forget that it is isolated.
type isolations map[pipeline.Source]isolation

// An isolation says who has isolated a circuit, and when.
type isolation struct {
	by    string
	since time.Time
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
func (v *Events) isolate(source pipeline.Source, by string, since time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isolations == nil {
		v.isolations = isolations{}
	}
	v.isolations[source] = isolation{by, since}
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

// isolateAgain isolates the circuits of p that users have isolated.
func (v *Events) isolateAgain(p *pipeline.Pipeline) {
	v.mu.Lock()
	none := len(v.isolations) == 0
	v.mu.Unlock()
	if none {
		return
	}
	for source, c := range circuitsOf(p) {
		if _, ok := v.isolationOf(source); ok && !c.Control().Isolated() {
			c.Control().Isolate()
		}
	}
}

// circuitsOf yields the circuits of p. It leaves out the pipelines that p embeds, which the registry has under their own
// names.
func circuitsOf(p *pipeline.Pipeline) iter.Seq2[pipeline.Source, *circuitbreaker.Strategy] {
	return func(yield func(pipeline.Source, *circuitbreaker.Strategy) bool) {
		var all []pipeline.Source
		var circuits []*circuitbreaker.Strategy
		recovered.Call("dashboard: Name of a strategy", func() {
			for source, s := range p.Strategies() {
				if c, ok := s.(*circuitbreaker.Strategy); ok {
					all, circuits = append(all, source), append(circuits, c)
				}
			}
		})
		for i, c := range circuits {
			if !yield(all[i], c) {
				return
			}
		}
	}
}
