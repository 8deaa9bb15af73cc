package dashboard

import (
	"context"
	"time"
)

// sample reads what is needed for rates and times, while no page is open. It calls no store, and of the program only the
// Name methods of strategies.
func (s *sampler) sample(now time.Time) {
	s.options.Events.flush(now)
	for _, l := range s.lookAtLimiters() {
		if st, ok := localStatistics(l.info); ok && l.series != nil {
			l.series.add(now, &st.SuccessfulLeases, st.FailedLeases)
		}
	}
	for name, store := range s.options.Stores {
		s.stores[name].add(now, store.Counters().Calls)
	}
	s.circuitStates(now)
}

// snapshot reads everything. It asks everything at once, and waits for all answers together.
func (s *sampler) snapshot(now time.Time) *snapshot {
	o := s.options
	o.Events.flush(now)
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	jobs := s.askJobs()
	limiters := s.lookAtLimiters()
	for i := range limiters {
		limiters[i].ask(o.keyText)
	}
	pipelines := s.askPipelines(now)

	snap := &snapshot{
		about:    about{now.UTC(), o.Instance, s.started.UTC(), o.Authorize == nil, !o.ShowKeys},
		Files:    s.files(),
		Limiters: []limiterState{}, Keys: []limiterKeys{}, Pipelines: []pipelineState{},
		Circuits: s.circuitStates(now),
		Events:   s.events(),
		Stores:   s.storeStates(now),
	}
	for i := range limiters {
		l := &limiters[i]
		snap.Limiters = append(snap.Limiters, l.state(ctx, now))
		if l.keys != nil {
			snap.Keys = append(snap.Keys, l.topKeys(ctx))
		}
	}
	events := s.pipelineEvents()
	for _, p := range pipelines {
		snap.Pipelines = append(snap.Pipelines, p.state(ctx, events[p.name]))
	}
	snap.markOverrides()
	snap.markShadow()
	s.jobStates(ctx, jobs, snap)
	s.addTrouble(snap)
	snap.Summary = summarize(snap)
	return snap
}
