package dashboard

import (
	"strings"
	"time"

	"github.com/weir-go/weir/pipeline"
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
