package dashboard

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/limiter"
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
		partitioned: info.Partitioned,
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

// stateString returns the state of a strategy in one line. It can call methods of the program.
func stateString(state any) string {
	switch s := state.(type) {
	case nil:
		return ""
	case fmt.Stringer:
		return shorten(s.String(), maxFieldText)
	}
	if v := reflect.ValueOf(state); v.CanInt() && v.Type().Name() == "Partitions" {
		return keysText(v.Int())
	}
	if f := fieldsOf(state); len(f) > 0 {
		return shorten(f.String(), maxFieldText)
	}
	return shorten(fmt.Sprint(state), maxFieldText)
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

// askLimiters asks the limiters for their statistics, all at once. A question is nil if there is no need to wait.
func (s *sampler) askLimiters(infos []registry.LimiterInfo) []*ask.Question[limiter.Statistics] {
	questions := make([]*ask.Question[limiter.Statistics], len(infos))
	seen := map[string]bool{}
	for i, info := range infos {
		series := s.limiterSeries(info.Name, info.Limiter, seen)
		if series == nil {
			continue
		}
		if shared, ok := info.Limiter.(*store.Limiter); ok {
			questions[i] = series.statistics.Ask("dashboard: Statistics of a limiter", func() limiter.Statistics {
				// If the store does not answer, the limiter returns what it knows before the snapshot gives up.
				ctx, cancel := context.WithTimeout(context.Background(), answerTimeout*3/4)
				defer cancel()
				return shared.StatisticsContext(ctx)
			})
		}
	}
	s.prune(seen)
	return questions
}

func (s *sampler) limiterStates(ctx context.Context, now time.Time, infos []registry.LimiterInfo, questions []*ask.Question[limiter.Statistics], keys []*ask.Question[keysAnswer]) []limiterState {
	states := make([]limiterState, 0, len(infos))
	for i, info := range infos {
		states = append(states, s.limiterState(ctx, now, info, questions[i], keys[i]))
	}
	return states
}

func (s *sampler) limiterState(ctx context.Context, now time.Time, info registry.LimiterInfo, q *ask.Question[limiter.Statistics], keys *ask.Question[keysAnswer]) limiterState {
	state := describeLimiter(info)
	series := s.limiters[info.Name]
	if series == nil {
		state.Note = "there are too many limiters: this one has no figures"
		return state
	}
	st, known := localStatistics(info)
	if q != nil {
		if answer, ok := q.Wait(ctx); ok {
			st = answer
		} else {
			state.Note = "the store has not answered in time: what is available is as last known"
		}
	}
	if known {
		series.add(now, &st.SuccessfulLeases, st.FailedLeases)
		state.Granted, state.Rejected = new(st.SuccessfulLeases), new(st.FailedLeases)
		if !state.partitioned {
			state.Available, state.Queued, state.LastKnown = new(st.AvailablePermits), new(st.QueuedPermits), st.LastKnown
		}
	} else if keys != nil { // a partitioned limiter in this process counts only rejections, and only while it is asked
		if answer, ok := keys.Wait(ctx); ok {
			if series.add(now, nil, answer.total); series.rejectedRate.n > 1 {
				state.Rejected = new(answer.total)
			}
		}
	}
	if l, ok := info.Limiter.(interface{ Len() int }); ok {
		state.Partitions = new(l.Len())
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
