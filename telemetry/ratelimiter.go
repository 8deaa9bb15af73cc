package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// measureRequest is the name of a measurement of strategies/ratelimit.
const measureRequest = "RateLimiterRequest"

// minWait is the shortest wait that weir.rate_limiter.queue.duration records. A request that took less has not waited in a
// queue.
const minWait = 10 * time.Microsecond

// The results of requests for permits.
const (
	acquired = "acquired"
	rejected = "rejected"
	canceled = "canceled" // the context ended during the wait
	failed   = "failed"   // the limiter returned an error
)

// resultOf returns the result of a request that returned err.
func resultOf(ctx context.Context, err error) string {
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

// onMeasurement counts the answers of rate limiters and the leases that are held. It ignores other measurements.
func (m *metrics) onMeasurement(ctx context.Context, e pipeline.Event) (ended func(context.Context, pipeline.Event)) {
	if e.Name != measureRequest {
		return nil
	}
	k := key{source: e.Source, result: resultOf(ctx, e.Err)}
	s := m.requests.find(k)
	if s == nil {
		s = m.requests.get(k, nil)
		m.beginRequests(e.Source)
	}
	s.count.Add(1)
	if e.Duration >= minWait {
		m.histograms[queueTime].Record(ctx, e.Duration.Seconds(), s.record...)
		s.longest.record(clock.Now(), e.Duration)
	}
	held := m.leases.get(key{source: e.Source}, nil)
	if k.result != acquired {
		return nil
	}
	held.count.Add(1)
	return held.ended
}

// makeLease completes a series of leases.
func (m *metrics) makeLease(s *series) {
	s.ended = func(ctx context.Context, e pipeline.Event) {
		s.count.Add(-1)
		m.histograms[leaseTime].Record(ctx, e.Duration.Seconds(), s.record...)
	}
}

// beginRequests adds the series of granted and of rejected requests, with the count 0, while less than a third of the limit is used: a
// series that begins with a burst of rejections has no rate, because Prometheus sees only its end. Two thirds are left to limiters that are
// asked.
func (m *metrics) beginRequests(at pipeline.Source) {
	m.requests.addBelow(m.requests.limit/3, key{source: at, result: acquired}, key{source: at, result: rejected})
}

// inForce exports the state of the circuits of p, and of the pipelines that it contains, and begins the counters of their rate
// limiters at 0.
func (m *metrics) inForce(p *pipeline.Pipeline) {
	breakers := map[string]breaker{}
	for source, s := range p.Strategies() {
		for _, name := range rateLimiters(source.Strategy, s) {
			m.beginRequests(pipeline.Source{Pipeline: source.Pipeline, Instance: source.Instance, Strategy: name})
		}
		if b, ok := s.(breaker); ok {
			breakers[source.Strategy] = b
		}
		if e, ok := s.(interface{ Pipeline() *pipeline.Pipeline }); ok {
			m.inForce(e.Pipeline())
		}
	}
	m.circuits.put(pipeline.Source{Pipeline: p.Name(), Instance: p.Instance()}, breakers)
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
