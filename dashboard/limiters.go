package dashboard

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
)

// describeLimiter returns what the registry says about a limiter.
func describeLimiter(info registry.LimiterInfo) limiterState {
	limits := info.Options.Limits
	_, words, _ := strings.Cut(limits.String(), ": ")
	state := limiterState{
		Name: info.Name, Kind: strings.ReplaceAll(limits.Kind.String(), "_", " "), Place: "process", History: []column{},
		Limits: strings.TrimSuffix(words, "; no queue"), Options: optionFields(info.Options), Pipelines: info.Pipelines,
	}
	if info.Shared {
		state.Place = "store"
	}
	if info.Partitioned {
		state.Kind = "partitioned " + state.Kind
	} else {
		state.Limit = int64(limits.Permits)
	}
	if o := info.Override; o != nil {
		state.Override = &overrideState{By: o.By, Reason: o.Reason, Since: o.Since.UTC(), Until: o.Until.UTC()}
		state.Configured = optionFields(info.Configured)
	}
	return state
}

// optionFields returns the fields of the options of a limiter.
func optionFields(o registry.LimiterConfig) fields {
	return slices.Concat(fieldsOf(limiter.OptionsOf(o.Limits)), fieldsOf(o.Partitions), fieldsOf(o.Shared))
}

// localStatistics returns the statistics of a limiter without a call to a store or to the program. Those of a limiter in a store
// are as last known, and of its keys together.
func localStatistics(info registry.LimiterInfo) (st limiter.Statistics, ok bool) {
	switch l := info.Limiter.(type) {
	case *store.Limiter:
		return l.StatisticsContext(done), true
	case *store.Partitioned:
		st, err := l.StatisticsContext(done, "")
		return st, err == nil
	case limiter.StatisticsProvider:
		return l.Statistics(), true
	default: // a partitioned limiter does not count what its limiters grant
		return st, false
	}
}

// done is a context with which a limiter does not ask its store.
var done = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

const (
	// topKeys is how many keys of a limiter are shown.
	topKeys = 20
	// allKeys is how many a limiter is asked for. The counts of all that it has add up to all rejections.
	allKeys = 1 << 20
)

// A sampledLimiter is a limiter of the registry and what it is asked. A question is nil if there is no need to wait.
type sampledLimiter struct {
	info       registry.LimiterInfo
	series     *limiterSeries // nil if there are too many
	statistics *ask.Question[limiter.Statistics]
	keys       *ask.Question[keysAnswer]
}

// lookAtLimiters returns the limiters that the registry has now, and forgets the past of others.
func (s *sampler) lookAtLimiters() (all []sampledLimiter) {
	past := s.limiters
	s.limiters = map[string]*limiterSeries{}
	for name, info := range s.options.Registry.Limiters() {
		l := sampledLimiter{info: info}
		if len(s.limiters) < maxSampled {
			if l.series = past[name]; l.series == nil || l.series.limiter != info.Limiter {
				l.series = &limiterSeries{limiter: info.Limiter} // a new limiter counts from 0
			}
			s.limiters[name] = l.series
		}
		all = append(all, l)
	}
	return all
}

// ask asks a limiter in a store for its statistics, and a partitioned one for the keys that it rejects most. It counts them
// only while it is asked, so it is asked only while a page is open.
func (l *sampledLimiter) ask(keyText func(string) string) {
	if l.series == nil {
		return
	}
	if shared, ok := l.info.Limiter.(*store.Limiter); ok {
		l.statistics = l.series.statistics.Ask("dashboard: Statistics of a limiter", func() limiter.Statistics {
			// If the store does not answer, the limiter returns what it knows before the snapshot gives up.
			ctx, cancel := context.WithTimeout(context.Background(), answerTimeout*3/4)
			defer cancel()
			return shared.StatisticsContext(ctx)
		})
	}
	if counter, ok := l.info.Limiter.(custom.RejectionCounter); ok {
		l.keys = l.series.keys.Ask("dashboard: TopRejected of a limiter", func() (a keysAnswer) { // the text of a key can call the program
			a.top = []keyState{}
			for i, k := range counter.TopRejected(allKeys) {
				if a.total += k.Rejections; i < topKeys {
					a.top = append(a.top, keyState{Key: keyText(k.Key), Rejected: k.Rejections, Error: k.Error})
				}
			}
			return a
		})
	}
}

func (l *sampledLimiter) topKeys(ctx context.Context) limiterKeys {
	if answer, ok := l.keys.Wait(ctx); ok {
		return limiterKeys{Limiter: l.info.Name, Keys: answer.top}
	}
	return limiterKeys{Limiter: l.info.Name, Keys: []keyState{}, Note: "The limiter has not answered in time."}
}

func (l *sampledLimiter) state(ctx context.Context, now time.Time) limiterState {
	state := describeLimiter(l.info)
	series := l.series
	if series == nil {
		state.Note = "there are too many limiters: this one has no figures"
		return state
	}
	st, known := localStatistics(l.info)
	if l.statistics != nil {
		if answer, ok := l.statistics.Wait(ctx); ok {
			st = answer
		} else {
			state.Note = "the store has not answered in time: what is available is as last known"
		}
	}
	if known {
		series.add(now, &st.SuccessfulLeases, st.FailedLeases)
		state.Granted, state.Rejected = new(st.SuccessfulLeases), new(st.FailedLeases)
		if !l.info.Partitioned {
			state.Available, state.Queued, state.LastKnown = new(st.AvailablePermits), new(st.QueuedPermits), st.LastKnown
		}
	} else if l.keys != nil { // a partitioned limiter in this process counts only rejections, and only while it is asked
		if answer, ok := l.keys.Wait(ctx); ok {
			if series.add(now, nil, answer.total); series.rejectedRate.n > 1 {
				state.Rejected = new(answer.total)
			}
		}
	}
	if partitioned, ok := l.info.Limiter.(interface{ Len() int }); ok {
		state.Partitions = new(partitioned.Len())
	}
	state.GrantedRate, state.RejectedRate = series.grantedRate.perSecond(), series.rejectedRate.perSecond()
	state.Since = series.rejecting
	state.History = series.columnsInOrder()
	switch {
	case state.GrantedRate != nil && orZero(state.RejectedRate) > *state.GrantedRate:
		state.Level = levelError
	case orZero(state.RejectedRate) > 0:
		state.Level = levelWarning
	case state.Override != nil || state.Note != "":
		state.Level = levelNotice
	}
	return state
}
