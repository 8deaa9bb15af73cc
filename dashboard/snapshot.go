package dashboard

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// markOverrides notes in the pipelines which of their limiters are overridden.
func (snap *snapshot) markOverrides() {
	for _, l := range snap.Limiters {
		for i := range snap.Pipelines {
			if p := &snap.Pipelines[i]; l.Override != nil && slices.Contains(l.Pipelines, p.Name) {
				p.Overridden = append(p.Overridden, l.Name)
			}
		}
	}
}

// markShadow notes which limiters reject only in shadow mode: their pipelines report no other rejection, and as many of
// these as the limiter rejects. A policy that is not in the pipelines can enforce the same limiter. The two rates are read
// one after the other, so they may differ a little.
func (snap *snapshot) markShadow() {
	rates := func(l *limiterState) (rejected, shadow float64) {
		for _, p := range snap.Pipelines {
			if !slices.Contains(l.Pipelines, p.Name) {
				continue
			}
			for _, e := range p.Events {
				switch e.Name {
				case eventRejected:
					rejected += e.Rate
				case eventShadowRejected:
					shadow += e.Rate
				}
			}
		}
		return rejected, shadow
	}
	for i := range snap.Limiters {
		l := &snap.Limiters[i]
		if rejected, shadow := rates(l); orZero(l.RejectedRate) > 0 && rejected == 0 && shadow >= 0.9*orZero(l.RejectedRate) {
			l.Shadow, l.Level = true, levelNotice
		}
	}
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
			Calls: c.Calls, Failures: c.Failures, Decisions: c.Decisions, Cached: c.Cached, FromBlocks: c.FromBlocks, Outages: c.Outages,
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
			Path: st.Path, Loads: st.Loads, Failures: st.Failures, LastAttempt: utc(st.LastAttempt), LastLoad: utc(st.LastLoad),
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

// utc returns t in UTC, and the zero time as it is.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
