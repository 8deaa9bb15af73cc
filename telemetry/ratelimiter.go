package telemetry

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// measureRequest is the name of a measurement of strategies/ratelimit.
const measureRequest = "RateLimiterRequest"

// minWait is the shortest wait that weir.rate_limiter.queue.duration records. A request that took less has not waited in a
// queue.
const minWait = 10 * time.Microsecond

// A result is the outcome of a request for permits.
type result int

const (
	acquired result = iota
	rejected
	canceled // the context ended during the wait
	failed   // the limiter returned an error
	resultCount
)

var resultNames = [resultCount]string{acquired: "acquired", rejected: "rejected", canceled: "canceled", failed: "failed"}

// resultOf returns the result of a request that returned err.
func resultOf(ctx context.Context, err error) result {
	switch {
	case err == nil:
		return acquired
	case errors.Is(err, pipeline.ErrRejected):
		return rejected
	case ctx.Err() != nil && pipeline.IsContextError(err): // the timeout of a store is a failure
		return canceled
	default:
		return failed
	}
}

// limiterSeries are the series of the rate limiter at one source. They have no attributes of single executions. A lease is
// counted up and down in the same limiterSeries, even if the source is forgotten while the lease is held.
type limiterSeries struct {
	src      *source
	requests [resultCount]atomic.Pointer[timedSeries] // the requests with each result; nil until there is one
	active   *series
	ended    func(context.Context, pipeline.Event) // counts the end of a lease
}

// limiterAttributes returns the attributes of a source. The overflow has an attribute that says that it is the
// overflow.
func (s *seriesSet) limiterAttributes(src *source) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if src == s.overflow {
		attrs = append(attrs, attribute.Bool(keyOverflow, true))
	}
	return appendSource(attrs, src.id)
}

// limiterAt returns the series of the rate limiter at that source.
func (s *seriesSet) limiterAt(src *source) *limiterSeries {
	if l := src.limiter.Load(); l != nil {
		return l
	}
	made := &limiterSeries{src: src, active: newSeries(s.limiterAttributes(src)...)}
	made.ended = func(ctx context.Context, e pipeline.Event) {
		made.active.count.Add(-1)
		s.leases.Record(ctx, e.Duration.Seconds(), made.active.record...)
	}
	src.limiter.CompareAndSwap(nil, made)
	return src.limiter.Load()
}

// requestsOf returns the series of the requests to l with the result r. If the quota is full and there is no such
// series, it returns that of the overflow.
func (s *seriesSet) requestsOf(l *limiterSeries, r result) *timedSeries {
	for {
		if found := l.requests[r].Load(); found != nil {
			return found
		}
		if l.src != s.overflow && s.requestQuota.full.Load() {
			l = s.limiterAt(s.overflow)
			continue
		}
		s.addRequests(l, r)
	}
}

// rateLimiters returns the names under which a strategy called name reports rate limiters: its own, or those of the policies that
// it has behind it, as the routes of a gateway have.
func rateLimiters(name string, s pipeline.Strategy) []string {
	switch s := s.(type) {
	case interface{ Limiter() limiter.Limiter }:
		return []string{name}
	case interface{ RateLimiters() []string }:
		return s.RateLimiters()
	}
	return nil
}

// beginRequests adds the series of granted and of rejected requests to the rate limiter at id, with the count 0. It leaves two
// thirds of the sources to limiters that are asked.
func (s *seriesSet) beginRequests(id *pipeline.Source) {
	if len(*s.sources.Load()) >= s.limit/3 {
		return
	}
	l := s.limiterAt(s.source(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginRequestsLocked(l)
}

// addRequests adds the series of the requests to l with the result r, unless there is one or the quota is full, and begins the
// others.
func (s *seriesSet) addRequests(l *limiterSeries, r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addRequestsLocked(l, r)
	s.beginRequestsLocked(l)
}

// beginRequestsLocked adds the series of granted and of rejected requests while the quota is less than a third used: a series that
// begins with a burst of rejections has no rate, because Prometheus sees only its end.
func (s *seriesSet) beginRequestsLocked(l *limiterSeries) {
	if l.src != s.overflow && s.requestQuota.used < s.requestQuota.limit/3 {
		s.addRequestsLocked(l, acquired)
		s.addRequestsLocked(l, rejected)
	}
}

func (s *seriesSet) addRequestsLocked(l *limiterSeries, r result) {
	if l.requests[r].Load() != nil || l.src != s.overflow && s.requestQuota.full.Load() {
		return
	}
	attrs := append(s.limiterAttributes(l.src), attribute.String(keyResult, resultNames[r]))
	l.requests[r].Store(&timedSeries{series: newSeries(attrs...)})
	if l.src != s.overflow && !l.src.removed {
		s.requestQuota.add(1)
	}
}

// forgetRequests removes the series of the requests at that source from the quota. The caller holds s.mu.
func (s *seriesSet) forgetRequests(src *source) {
	l := src.limiter.Load()
	if l == nil {
		return
	}
	for r := range l.requests {
		if l.requests[r].Load() != nil {
			s.requestQuota.add(-1)
		}
	}
}

// onMeasurement counts the answers of rate limiters and the leases that are held. It ignores other measurements.
func (t *Telemetry) onMeasurement(ctx context.Context, e pipeline.Event) (ended func(context.Context, pipeline.Event)) {
	if e.Name != measureRequest {
		return nil
	}
	l := t.series.limiterAt(t.series.source(&e.Source))
	r := resultOf(ctx, e.Err)
	requests := t.series.requestsOf(l, r)
	requests.count.Add(1)
	if e.Duration >= minWait {
		t.instruments.queueTime.Record(ctx, e.Duration.Seconds(), requests.record...)
		requests.longest.record(clock.Now(), e.Duration)
	}
	if r != acquired {
		return nil
	}
	l.active.count.Add(1)
	return l.ended
}

func (l *limiterSeries) observe(o metric.Observer, i *instruments) {
	now := clock.Now()
	o.ObserveInt64(i.active, max(0, l.active.count.Load()), l.active.observe...)
	for r := range l.requests {
		if s := l.requests[r].Load(); s != nil {
			o.ObserveInt64(i.requests, s.count.Load(), s.observe...)
			o.ObserveFloat64(i.queueLongest, s.longest.at(now).Seconds(), s.observe...)
		}
	}
}
