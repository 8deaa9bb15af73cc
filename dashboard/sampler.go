package dashboard

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/internal/recovered"
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
	snap.markShadow()
	s.jobStates(ctx, jobs, snap)
	snap.addTrouble()
	snap.Summary = summarize(snap)
	return snap
}

func (s *sampler) events() []eventState {
	rows := s.options.Events.all()
	states := make([]eventState, 0, len(rows))
	for _, r := range rows {
		e := eventState{
			Time: r.last.UTC(), Count: r.count, Name: r.name, Severity: r.severity, Source: cmp.Or(r.where, r.source.String()),
			Operation: r.operation, Text: r.text, User: r.user, Key: s.options.keyText(r.key),
		}
		if r.count > 1 {
			e.First = r.first.UTC()
		}
		states = append(states, e)
	}
	return states
}

func (s *sampler) storeStates(now time.Time) []storeState {
	stores := s.options.Stores
	states := make([]storeState, 0, len(stores))
	for _, name := range slices.Sorted(maps.Keys(stores)) {
		h, c := stores[name].Health(), stores[name].Counters()
		s.stores[name].add(now, c.Calls)
		state := storeState{
			Name: name, Available: h.Err == nil, Listening: h.Listening, Since: utc(h.Since),
			Calls: c.Calls, Failures: c.Failures, Outages: c.Outages,
			CallRate: s.stores[name].perSecond(),
		}
		if h.Err != nil {
			state.Error = errorText(h.Err)
		}
		for _, sh := range h.Shards {
			each := shardState{Name: sh.Shard, Since: utc(sh.Since)}
			if sh.Err != nil {
				each.Error = errorText(sh.Err)
			}
			state.Shards = append(state.Shards, each)
		}
		states = append(states, state)
	}
	return states
}

func (s *sampler) files() []fileState {
	states := []fileState{}
	for _, w := range s.options.Watchers {
		st := w.Status()
		f := fileState{
			Path: st.Path, LastAttempt: utc(st.LastAttempt), LastLoad: utc(st.LastLoad),
			Pipelines: st.Pipelines,
		}
		if f.Pipelines == nil {
			f.Pipelines = []string{}
		}
		if st.Err != nil {
			f.Error = shorten(st.Err.Error(), 4*maxText)
		}
		states = append(states, f)
	}
	return states
}

// askJobs asks for the limiters of jobs, or returns nil if there are none.
func (s *sampler) askJobs() *ask.Question[jobsAnswer] {
	jobs := s.options.Jobs
	if jobs == nil {
		return nil
	}
	return s.jobs.Ask("dashboard: Limiters of Jobs", func() (a jobsAnswer) {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		a.err = recovered.Error(func() (err error) {
			a.limiters, err = jobs.Limiters(ctx)
			return err
		})
		return a
	})
}

func (s *sampler) jobStates(ctx context.Context, q *ask.Question[jobsAnswer], snap *snapshot) {
	if q == nil {
		return
	}
	snap.Jobs = []jobState{}
	answer, ok := q.Wait(ctx)
	switch {
	case !ok:
		snap.JobsError = "the list has not come in time"
	case answer.err != nil:
		snap.JobsError = errorText(answer.err)
	}
	for _, l := range answer.limiters {
		j := jobState{JobLimiter: l}
		j.Key = s.options.keyText(j.Key)
		if l.Waiters > 0 {
			j.Level = levelNotice
		}
		snap.Jobs = append(snap.Jobs, j)
	}
}
