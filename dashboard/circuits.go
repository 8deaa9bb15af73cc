package dashboard

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// addressPrefix begins the names of the pipelines that have the circuits of the addresses of weir gateway. Such a circuit
// rejects nothing: it only decides which address is asked first.
const addressPrefix = "gateway/"

// circuitStates looks at the circuits. It is also called while no page is open, to see when their states change.
func (s *sampler) circuitStates(now time.Time) []circuitState {
	events := s.options.Events
	openings := map[pipeline.Source]eventCount{}
	for _, c := range events.counts() {
		if c.name == circuitbreaker.EventOpened {
			openings[c.source] = c
		}
	}
	for _, info := range s.options.Registry.Pipelines() {
		events.isolations.again(info.Pipeline)
	}
	states := []circuitState{}
	circuits := map[pipeline.Source]circuitSeries{}
	for source, c := range circuitsIn(s.options.Registry) {
		st := c.Statistics()
		state := circuitState{Source: source.String(), State: st.State.String(), RetryAfter: st.RetryAfter.Round(time.Millisecond)}
		_, state.Figures, _ = strings.Cut(st.String(), ", ") // without the state
		series, known := s.circuits[source]
		if known && series.state != state.State {
			series.since = now
		}
		series.state = state.State
		if len(circuits) < maxSampled {
			circuits[source] = series
		}
		state.Since = utc(series.since)
		if opening, ok := openings[source]; ok && state.State != "closed" {
			state.Cause = opening.text
			if state.Since.IsZero() {
				state.Since = opening.last.UTC()
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
			if i, ok := events.isolations.of(source); ok {
				state.IsolatedBy, state.Since = i.by, i.since.UTC()
			}
		case "half_open":
			state.Level = levelWarning
		}
		states = append(states, state)
	}
	s.circuits = circuits
	return states
}

// isolations are the circuits that users of the dashboard have isolated. A reload makes a circuit again, and the new one
// does not know that it is to be isolated, unless its Control is one of the program.
//
// The circuits of a pipeline are read with mu held: a circuit that was read before a reload must not be remembered after
// that of the new version.
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

// isolate isolates the circuits at target.
func (i *isolations) isolate(r *registry.Registry, target, who string) (found bool) {
	return i.change(r, target, func(source pipeline.Source, c *circuitbreaker.Control) {
		if i.all == nil {
			i.all = map[pipeline.Source]isolation{}
		}
		i.all[source] = isolation{who, time.Now(), c}
		c.Isolate()
	})
}

// end closes the circuits at target.
func (i *isolations) end(r *registry.Registry, target string) (found bool) {
	return i.change(r, target, func(source pipeline.Source, c *circuitbreaker.Control) {
		delete(i.all, source)
		c.Reset()
	})
}

func (i *isolations) change(r *registry.Registry, target string, f func(pipeline.Source, *circuitbreaker.Control)) (found bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for source, c := range circuitsIn(r) {
		if source.String() == target {
			found = true
			f(source, c.Control())
		}
	}
	return found
}

func (i *isolations) of(source pipeline.Source) (isolation, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	is, ok := i.all[source]
	return is, ok
}

// again isolates the circuits of p that replace isolated ones. If the program has closed a circuit itself, the isolation is over.
func (i *isolations) again(p *pipeline.Pipeline) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.all) == 0 {
		return
	}
	for source, c := range circuitsOf(p) {
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

// confirmCircuit asks whether the circuit of a request is to be changed, and says which others have the same Control.
func confirmCircuit(button, effect, note string) func(*Dashboard, *request) (*confirmation, error) {
	return func(d *Dashboard, q *request) (*confirmation, error) {
		var control *circuitbreaker.Control
		together := map[*circuitbreaker.Control][]string{}
		for source, circuit := range circuitsIn(d.options.Registry) {
			together[circuit.Control()] = append(together[circuit.Control()], source.String())
			if source.String() == q.Target {
				control = circuit.Control()
			}
		}
		c := &confirmation{Text: button + " " + q.Target + ": " + effect + ".", Notes: []string{note}, Button: button}
		if all := together[control]; len(all) > 1 {
			c.Notes = append(c.Notes, "One Control has these circuits together: "+strings.Join(all, ", ")+".")
		}
		_, err := circuitOutcome(q, "", control != nil)
		return c, err
	}
}

func doIsolate(_ context.Context, d *Dashboard, q *request) (*outcome, error) {
	return circuitOutcome(q, "isolated", d.options.Events.isolations.isolate(d.options.Registry, q.Target, q.who))
}

func doClose(_ context.Context, d *Dashboard, q *request) (*outcome, error) {
	return circuitOutcome(q, "closed", d.options.Events.isolations.end(d.options.Registry, q.Target))
}

func circuitOutcome(q *request, state string, found bool) (*outcome, error) {
	if !found {
		return nil, refuse(http.StatusNotFound, "There is no circuit %q.", printable(shorten(q.Target, 200)))
	}
	return &outcome{Text: "The circuit " + q.Target + " is " + state + "."}, nil
}
