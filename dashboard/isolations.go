package dashboard

import (
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// isolations are the circuits that users of the dashboard have isolated. A reload makes a circuit again, and the new one
// does not know that it is to be isolated, unless its Control is one of the program.
type isolations struct {
	mu  sync.Mutex
	all map[pipeline.Source]isolation
}

// An isolation says who has isolated a circuit, and when.
type isolation struct {
	by      string
	since   time.Time
	control *circuitbreaker.Control // what isolates it now
}

func (i *isolations) isolate(source pipeline.Source, who string, c *circuitbreaker.Control) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all == nil {
		i.all = map[pipeline.Source]isolation{}
	}
	i.all[source] = isolation{who, time.Now(), c}
	c.Isolate()
}

func (i *isolations) end(source pipeline.Source, c *circuitbreaker.Control) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.all, source)
	c.Reset()
}

func (i *isolations) of(source pipeline.Source) (isolation, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	is, ok := i.all[source]
	return is, ok
}

// again isolates the circuits of p that users have isolated and that a reload has made again. If the program has closed a
// circuit itself, the isolation is over.
func (i *isolations) again(p *pipeline.Pipeline) {
	i.mu.Lock()
	none := len(i.all) == 0
	i.mu.Unlock()
	if none {
		return
	}
	for source, c := range circuitsOf(p) {
		i.mu.Lock()
		is, ok := i.all[source]
		switch {
		case !ok:
		case is.control != c.Control():
			is.control = c.Control()
			is.control.Isolate()
			i.all[source] = is
		case !is.control.Isolated():
			delete(i.all, source)
		}
		i.mu.Unlock()
	}
}

// forget forgets the circuits of a pipeline.
func (i *isolations) forget(p pipeline.Source) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.all, func(source pipeline.Source, _ isolation) bool { return isOf(source, p) })
}

// isOf reports whether source is in the pipeline p.
func isOf(source, p pipeline.Source) bool {
	return source.Pipeline == p.Pipeline && source.Instance == p.Instance
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
