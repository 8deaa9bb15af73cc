package telemetry

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/internal/untimed"
	"github.com/weir-go/weir/pipeline"
)

// What strategies/ratelimit measures, under the names that it documents.
const (
	measureRequest = "RateLimiterRequest"
	measureLease   = "RateLimiterLease"
)

// leastWait is what weir.rate_limiter.queue.duration leaves out: an answer that
// took less was not waited for in any queue.
const leastWait = 10 * time.Microsecond

// A result is what came of a request for permits.
type result int

const (
	acquired result = iota
	rejected
	canceled // the context ended while it waited
	failed   // the limiter took no decision
	results
)

var resultNames = [results]string{acquired: "acquired", rejected: "rejected", canceled: "canceled", failed: "failed"}

func resultOf(ctx context.Context, err error) result {
	switch {
	case err == nil:
		return acquired
	case errors.Is(err, pipeline.ErrRejected):
		return rejected
	case ctx.Err() != nil && pipeline.IsContextError(err): // a store's timeout is none
		return canceled
	default:
		return failed
	}
}

// limiterSeries are the series of the rate limiter at one source. They have no attributes of a single
// execution. A lease is counted up and down in the same limiterSeries, also if the source is forgotten or gets
// series of its own while the lease is held: BeginMeasurement hands the limiterSeries to EndMeasurement.
type limiterSeries struct {
	holding
	from     *source
	requests [results]atomic.Pointer[series] // how many, and how long they waited; nil until there is one
	active   *series
}

// holding is embedded under a name that is not exported.
type holding = untimed.Holding

func (s *store) newLimiterSeries(from *source) *limiterSeries {
	return &limiterSeries{
		holding: untimed.HoldingIf(!s.timesLeases),
		from:    from,
		active:  newSeries(limiterAttributes(from, from == s.rest)...),
	}
}

func limiterAttributes(from *source, overflow bool) []attribute.KeyValue {
	attrs := appendSource(nil, from.of)
	if overflow {
		attrs = append(attrs, attribute.Bool(keyOverflow, true))
	}
	return attrs
}

// limiterAt returns the series of the rate limiter at from.
func (s *store) limiterAt(from *source) *limiterSeries {
	if l := from.limiter.Load(); l != nil {
		return l
	}
	from.limiter.CompareAndSwap(nil, s.newLimiterSeries(from))
	return from.limiter.Load()
}

// requestsOf returns the series of the requests to l with the result r: one of its own, or where there is no
// room, the one that all share.
func (s *store) requestsOf(l *limiterSeries, r result) *series {
	if found := l.requests[r].Load(); found != nil {
		return found
	}
	if l.from != s.rest && s.requestsFull.Load() {
		l = s.limiterAt(s.rest)
		if found := l.requests[r].Load(); found != nil {
			return found
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addRequests(l, r)
}

// addRequests is called under the lock of the store.
func (s *store) addRequests(l *limiterSeries, r result) *series {
	if l.from != s.rest && s.keptRequests >= s.limit {
		l = s.limiterAt(s.rest)
	}
	if found := l.requests[r].Load(); found != nil {
		return found
	}
	added := newSeries(append(limiterAttributes(l.from, l.from == s.rest), attribute.String(keyResult, resultNames[r]))...)
	l.requests[r].Store(added)
	if l.from != s.rest && !l.from.removed {
		s.keptRequests++
		s.requestsFull.Store(s.keptRequests >= s.limit)
	}
	return added
}

// forgetRequests gives the room of the requests at from back. It is called under the lock of the store.
func (s *store) forgetRequests(from *source) {
	l := from.limiter.Load()
	if l == nil {
		return
	}
	for r := range l.requests {
		if l.requests[r].Load() != nil {
			s.keptRequests--
		}
	}
	s.requestsFull.Store(s.keptRequests >= s.limit)
}

// OnMeasurement counts what a rate limiter answers, and how many leases are held.
// Measurements of other names are of no interest to it. It implements
// [pipeline.Measurer].
func (t *Telemetry) OnMeasurement(ctx context.Context, e pipeline.Event) {
	switch e.Name {
	case measureRequest:
		t.requested(ctx, &e)
	case measureLease:
		t.released(ctx, &e, t.series.limiterAt(t.series.source(&e.Source)))
	}
}

// BeginMeasurement is OnMeasurement for a request that was granted. It implements
// [pipeline.LeaseMeasurer].
func (t *Telemetry) BeginMeasurement(ctx context.Context, e pipeline.Event) (begun any) {
	if e.Name == measureRequest {
		return t.requested(ctx, &e)
	}
	t.OnMeasurement(ctx, e)
	return nil
}

// EndMeasurement ends what BeginMeasurement began: the lease is no longer counted. It
// implements [pipeline.LeaseMeasurer].
func (t *Telemetry) EndMeasurement(ctx context.Context, e pipeline.Event, begun any) {
	if l, ok := begun.(*limiterSeries); ok {
		t.released(ctx, &e, l)
	}
}

func (t *Telemetry) requested(ctx context.Context, e *pipeline.Event) *limiterSeries {
	l := t.series.limiterAt(t.series.source(&e.Source))
	r := resultOf(ctx, e.Err)
	requests := t.series.requestsOf(l, r)
	requests.count.Add(1)
	if r == acquired {
		l.active.count.Add(1)
	}
	if e.Duration >= leastWait {
		t.instruments.queueTime.Record(ctx, e.Duration.Seconds(), requests.record...)
	}
	return l
}

func (t *Telemetry) released(ctx context.Context, e *pipeline.Event, l *limiterSeries) {
	decrease(&l.active.count)
	if t.options.LeaseDuration {
		t.instruments.leases.Record(ctx, e.Duration.Seconds(), l.active.record...)
	}
}

// decrease does not go below 0: a lease that is measured without BeginMeasurement may have been acquired at a
// source that was forgotten since.
func decrease(n *atomic.Int64) {
	if n.Add(-1) < 0 {
		n.Add(1)
	}
}

func (l *limiterSeries) observe(o metric.Observer, i *instruments) {
	o.ObserveInt64(i.active, max(0, l.active.count.Load()), l.active.observe...)
	for r := range l.requests {
		if s := l.requests[r].Load(); s != nil {
			o.ObserveInt64(i.requests, s.count.Load(), s.observe...)
		}
	}
}
