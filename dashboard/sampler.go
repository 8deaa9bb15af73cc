package dashboard

import (
	"maps"
	"time"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

const (
	// maxSampled bounds the limiters that have rates and a history, and the circuits whose changes are noticed.
	maxSampled = 1000
	// columns and columnLength make the history of a limiter: five minutes.
	columns      = 50
	columnLength = 6 * time.Second
	// quietAfter is how long a limiter has not rejected when its trouble is over.
	quietAfter = 10 * time.Second
	// describeAgain is how old the description of a pipeline gets while a page is open.
	describeAgain = 10 * time.Second
)

// A sampler remembers what snapshots alone do not show: counts of the past, and since when something is as it is.
type sampler struct {
	dashboard *Dashboard
	limiters  map[string]*limiterSeries
	circuits  map[pipeline.Source]*circuitSeries
	pipelines map[string]*pipelineSeries
	stores    map[string]*rateMeter
	since     map[string]time.Time // when a trouble was first seen, by what it is
	seen      map[string]time.Time // when it was last seen
	jobs      ask.Asker[jobsAnswer]
}

func (s *sampler) init(d *Dashboard) {
	*s = sampler{
		dashboard: d,
		limiters:  map[string]*limiterSeries{},
		circuits:  map[pipeline.Source]*circuitSeries{},
		pipelines: map[string]*pipelineSeries{},
		stores:    map[string]*rateMeter{},
		since:     map[string]time.Time{},
		seen:      map[string]time.Time{},
	}
	for name := range d.options.Stores {
		s.stores[name] = &rateMeter{}
	}
}

// A limiterSeries is the past of one limiter.
type limiterSeries struct {
	limiter           any
	statistics        ask.Asker[limiter.Statistics]
	keys              ask.Asker[keysAnswer]
	known             bool      // there is a reading
	at                time.Time // of the last one
	granted, rejected int64
	grantedRate       rateMeter
	rejectedRate      rateMeter
	history           [columns]counted
	countsGranted     bool
	columnAt          int64     // the number of the newest column
	rejecting         time.Time // since when it rejects; zero: it does not
	lastRejection     time.Time
}

// counted is what a limiter has counted in the time of one column.
type counted struct {
	known             bool
	granted, rejected int64
}

// add adds a reading. granted is nil if the limiter does not count what it grants.
func (s *limiterSeries) add(now time.Time, granted *int64, rejected int64) {
	if at := now.UnixNano() / int64(columnLength); at != s.columnAt {
		if s.columnAt == 0 {
			s.columnAt = at - columns
		}
		for i := max(s.columnAt+1, at-columns+1); i <= at; i++ {
			s.history[i%columns] = counted{}
		}
		s.columnAt = at
	}
	if s.known && now.Sub(s.at) <= columnLength { // after a pause it is not known when it was
		c := &s.history[s.columnAt%columns]
		c.known = true
		c.rejected += max(rejected-s.rejected, 0)
		if granted != nil {
			c.granted += max(*granted-s.granted, 0)
		}
	}
	if s.known && now.Sub(s.at) <= columnLength && rejected > s.rejected {
		if s.rejecting.IsZero() {
			s.rejecting = now
		}
		s.lastRejection = now
	}
	if now.Sub(s.lastRejection) > quietAfter {
		s.rejecting = time.Time{}
	}
	s.known, s.at, s.rejected = true, now, rejected
	s.rejectedRate.add(now, rejected)
	if s.countsGranted = granted != nil; s.countsGranted {
		s.granted = *granted
		s.grantedRate.add(now, *granted)
	}
}

// columnsInOrder returns the history, the oldest column first.
func (s *limiterSeries) columnsInOrder() []column {
	all := make([]column, 0, columns)
	for i := s.columnAt - columns + 1; i <= s.columnAt; i++ {
		if i < 0 {
			continue
		}
		var c column
		if h := s.history[i%columns]; h.known {
			c.Rejected = &h.rejected
			if s.countsGranted {
				c.Granted = &h.granted
			}
		}
		all = append(all, c)
	}
	return all
}

// A circuitSeries is the past of one circuit.
type circuitSeries struct {
	state string
	since time.Time // zero: before the first look
}

// sample reads what is needed for rates and times, while no page is open. It calls no store, and of the program only the
// Name methods of strategies.
func (s *sampler) sample(now time.Time) {
	s.dashboard.options.Events.flush(now)
	seen := map[string]bool{}
	for name, info := range s.dashboard.options.Registry.Limiters() {
		series := s.limiterSeries(name, info.Limiter, seen)
		if series == nil {
			continue
		}
		if st, ok := localStatistics(info); ok {
			series.add(now, &st.SuccessfulLeases, st.FailedLeases)
		}
	}
	s.prune(seen)
	for name, store := range s.dashboard.options.Stores {
		s.stores[name].add(now, store.Counters().Calls)
	}
	circuits := map[pipeline.Source]bool{}
	for _, info := range s.dashboard.options.Registry.Pipelines() {
		s.dashboard.options.Events.isolateAgain(info.Pipeline)
		for source, c := range circuitsOf(info.Pipeline) {
			s.observeCircuit(source, c.CircuitState(), now, circuits)
		}
	}
	s.pruneCircuits(circuits)
}

// limiterSeries returns the past of a limiter, or nil if there are too many. seen gets its name.
func (s *sampler) limiterSeries(name string, l any, seen map[string]bool) *limiterSeries {
	seen[name] = true
	series := s.limiters[name]
	if series != nil && series.limiter == l {
		return series
	}
	if series == nil && len(s.limiters) >= maxSampled {
		return nil
	}
	series = &limiterSeries{limiter: l} // a new limiter counts from 0
	s.limiters[name] = series
	return series
}

func (s *sampler) prune(seen map[string]bool) {
	maps.DeleteFunc(s.limiters, func(name string, _ *limiterSeries) bool { return !seen[name] })
}

// observeCircuit notes the state of a circuit.
func (s *sampler) observeCircuit(source pipeline.Source, state string, now time.Time, seen map[pipeline.Source]bool) *circuitSeries {
	seen[source] = true
	c := s.circuits[source]
	switch {
	case c == nil && len(s.circuits) >= maxSampled:
		return &circuitSeries{state: state}
	case c == nil:
		c = &circuitSeries{state: state}
		s.circuits[source] = c
	case c.state != state:
		c.state, c.since = state, now
	}
	return c
}

func (s *sampler) pruneCircuits(seen map[pipeline.Source]bool) {
	maps.DeleteFunc(s.circuits, func(source pipeline.Source, _ *circuitSeries) bool { return !seen[source] })
}
