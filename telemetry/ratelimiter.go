package telemetry

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

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

// limiterSeries are the series of the rate limiter at one source. They have no
// attributes of a single execution, so that what was counted up in one series is
// counted down in the same.
type limiterSeries struct {
	requests [results]*series // how many, and how long they waited
	active   *series
}

func newLimiterSeries(of pipeline.Source, overflow bool) *limiterSeries {
	base := appendSource(nil, of)
	if overflow {
		base = append(base, attribute.Bool(keyOverflow, true))
	}
	l := &limiterSeries{active: newSeries(base...)}
	for r := range results {
		l.requests[r] = newSeries(append([]attribute.KeyValue{attribute.String(keyResult, resultNames[r])}, base...)...)
	}
	return l
}

// limiterAt returns the series of the rate limiter at from.
func (s *store) limiterAt(from *source) *limiterSeries {
	if l := from.limiter.Load(); l != nil {
		return l
	}
	from.limiter.CompareAndSwap(nil, newLimiterSeries(from.of, from == s.rest))
	return from.limiter.Load()
}

// OnMeasurement counts what a rate limiter answers, and how many leases are held.
// Measurements of other names are of no interest to it. It implements
// [pipeline.Measurer].
func (t *Telemetry) OnMeasurement(ctx context.Context, e pipeline.Event) {
	switch e.Name {
	case measureRequest:
		t.requested(ctx, &e)
	case measureLease:
		t.released(ctx, &e)
	}
}

func (t *Telemetry) requested(ctx context.Context, e *pipeline.Event) {
	l := t.series.limiterAt(t.series.source(&e.Source))
	r := resultOf(ctx, e.Err)
	l.requests[r].count.Add(1)
	if r == acquired {
		l.active.count.Add(1)
	}
	if e.Duration >= leastWait {
		t.instruments.queueTime.Record(ctx, e.Duration.Seconds(), l.requests[r].record...)
	}
}

func (t *Telemetry) released(ctx context.Context, e *pipeline.Event) {
	l := t.series.limiterAt(t.series.source(&e.Source))
	decrease(&l.active.count)
	if t.options.LeaseDuration {
		t.instruments.leases.Record(ctx, e.Duration.Seconds(), l.active.record...)
	}
}

// decrease does not go below 0: what was acquired may have been forgotten since.
func decrease(n *atomic.Int64) {
	if n.Add(-1) < 0 {
		n.Add(1)
	}
}

func (l *limiterSeries) observe(o metric.Observer, i *instruments) {
	o.ObserveInt64(i.active, max(0, l.active.count.Load()), l.active.observe...)
	for _, s := range l.requests {
		if n := s.count.Load(); n > 0 {
			o.ObserveInt64(i.requests, n, s.observe...)
		}
	}
}
