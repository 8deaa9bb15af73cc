package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
)

// describeLimiter returns what the registry says about a limiter.
func describeLimiter(info registry.LimiterInfo) limiterState {
	state := limiterState{
		Name: info.Name, Kind: info.Kind, Place: "process", Options: optionFields(info.Options), Pipelines: info.Pipelines, History: []column{},
		partitioned: strings.Contains(info.Kind, "partitioned"),
	}
	if kind, ok := strings.CutPrefix(state.Kind, "shared "); ok {
		state.Kind, state.Place = kind, "store"
	}
	if kind, _, ok := strings.Cut(state.Kind, " by "); ok { // the types of the keys and resources
		state.Kind = kind
	}
	if state.Pipelines == nil {
		state.Pipelines = []string{}
	}
	limits := info.Options.Limits
	state.Limits = limitsText(limits)
	state.Overridable = limits.Kind != 0
	if o := info.Override; o != nil {
		state.Override = &overrideState{By: o.By, Reason: o.Reason, Since: o.Since.UTC(), Until: o.Until.UTC()}
		state.Configured = optionFields(info.Configured)
	}
	if !state.partitioned {
		state.Limit = int64(limits.Permits)
	}
	return state
}

// optionFields returns the fields of the options of a limiter.
func optionFields(o registry.LimiterConfig) fields {
	return append(append(fieldsOf(limiter.OptionsOf(o.Limits)), fieldsOf(o.Partitions)...), fieldsOf(o.Shared)...)
}

// limitsText returns limits in a form for people, shorter than that of [rate.Limits.String].
func limitsText(l rate.Limits) string {
	text := per(l.Permits, l.Period)
	switch {
	case l.Refill > 0:
		text = per(l.Refill, l.Period) + ", burst " + countText(int64(l.Permits))
	case l.Every != 0:
		text = countText(int64(l.Permits)) + " each " + l.Every.String() + " (" + cmp.Or(l.Zone, "UTC") + ")"
	case l.Segments > 0:
		text += fmt.Sprintf(" in %d segments", l.Segments)
	case l.Period == 0:
		text = countText(int64(l.Permits)) + " at once"
	}
	if l.QueueLimit > 0 {
		text += ", queue " + countText(int64(l.QueueLimit))
	}
	return text
}

// per returns "20 per 1s", or "7.0/s" for a period that does not read well.
func per(n int, period time.Duration) string {
	if period <= 0 || period%time.Millisecond == 0 {
		return countText(int64(n)) + " per " + durationtext.Of(period)
	}
	return rateText(float64(n)/period.Seconds()) + "/s"
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

// keysText returns how many keys there are, in words.
func keysText(n int64) string {
	if n == 1 {
		return "1 key"
	}
	return fmt.Sprintf("%d keys", n)
}

// rateText returns a rate with as many digits as make sense.
func rateText(r float64) string {
	switch {
	case r == 0:
		return "0"
	case r < 0.095:
		return "<0.1"
	case r < 9.95:
		return fmt.Sprintf("%.1f", r)
	default:
		return countText(int64(r + 0.5))
	}
}

// countText returns a count with a space between thousands.
func countText(n int64) string {
	text := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	var b strings.Builder
	for i, r := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(r)
	}
	return sign + b.String()
}

// localStatistics returns the statistics of a limiter without a call to a store or to the program.
func localStatistics(l any) (st limiter.Statistics, ok bool) {
	if isLocal(l) {
		return l.(limiter.StatisticsProvider).Statistics(), true
	}
	switch l := l.(type) {
	case interface {
		StatisticsContext(ctx context.Context) limiter.Statistics
	}: // with a context that is done it does not call the store, and returns what was last known
		return l.StatisticsContext(done), true
	case interface {
		StatisticsContext(ctx context.Context, key string) (limiter.Statistics, error)
	}: // the counts are those of all keys
		st, err := l.StatisticsContext(done, "")
		return st, err == nil
	default:
		return st, false
	}
}

// isLocal reports whether a limiter is one of package limiter that is not partitioned.
func isLocal(l any) bool {
	_, own := l.(interface{ Limits() rate.Limits })
	_, shared := l.(*store.Limiter)
	return own && !shared
}

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
		if asker, ok := info.Limiter.(interface {
			StatisticsContext(ctx context.Context) limiter.Statistics
		}); ok {
			questions[i] = series.statistics.Ask("dashboard: Statistics of a limiter", func() limiter.Statistics {
				// If the store does not answer, the limiter returns what it knows before the snapshot gives up.
				ctx, cancel := context.WithTimeout(context.Background(), answerTimeout*3/4)
				defer cancel()
				return asker.StatisticsContext(ctx)
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
	st, known := localStatistics(info.Limiter)
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
