package admission

import (
	"cmp"
	"math"
	"time"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
)

// A Quota is what one policy tells a client.
type Quota struct {
	Policy    string
	Permits   int64         // what a window has, or a bucket holds
	Window    time.Duration // 0: there is none, as for a concurrency limit
	Remaining int64
	Reset     time.Duration // until there is more; 0: not known
}

// A QuotaSource finds the quota of a policy. It asks for each answer, because the permits of the limiter change, and a reload or an
// override can change its options. If each key has a limiter, a lease knows its own; otherwise the functions look for it.
type QuotaSource[R any] struct {
	policy     string
	fromLease  bool                                                  // the lease of a key's limiter says everything
	statistics func(r R, key string) (s limiter.Statistics, ok bool) // key is the key for Partitioned
	size       func(r R, key string) rate.Limits                     // without permits they are not known
}

// ValidateQuota adds everything that is wrong with the Quota and the Window of a policy to problems. isPipeline reports whether the
// policy is a pipeline.
func ValidateQuota(problems *validate.Problems, quota int64, window time.Duration, isPipeline bool) {
	switch {
	case quota < 0:
		problems.Add("Quota", quota, "must be at least 0")
	case quota > 0 && isPipeline:
		problems.Add("Quota", quota, "must not be set with {Pipeline}, of which clients are told nothing")
	}
	problems.NotNegative("Window", window)
}

// NewQuotaSource returns the QuotaSource of p. If permits is 0, the quota is that of the limiter. It returns nil if the
// limiter has no statistics or the quota is not known.
func NewQuotaSource[R any](p *Policy[R], permits int64, window time.Duration) *QuotaSource[R] {
	s := &QuotaSource[R]{
		policy: p.Name, fromLease: p.Keyed() && permits == 0, statistics: statisticsOf(p), size: limitsOf(p, permits, window),
	}
	if s.statistics == nil || s.size == nil {
		return nil
	}
	return s
}

// Current returns the quota of a client at this moment. lease is the limiter's answer to its request. A retryAfter above
// 0, of a rejection, replaces the reset of the quota.
func (s *QuotaSource[R]) Current(r R, key string, lease limiter.Lease, retryAfter time.Duration) (q Quota, ok bool) {
	l, remaining, ok := s.find(r, key, lease)
	if !ok || l.Permits == 0 {
		return Quota{}, false
	}
	q = Quota{Policy: s.policy}
	q.Permits, q.Window = l.Quota()
	q.Remaining = min(max(remaining, 0), q.Permits)
	switch {
	case retryAfter > 0:
		q.Reset = retryAfter
	case l.Kind == rate.TokenBucket:
		q.Reset = l.TimeToRestore(q.Permits - q.Remaining)
	default: // of other windows, only the limiter knows when they end
		q.Reset = cmp.Or(l.UntilNext(time.Now()), q.Window)
	}
	return q, true
}

// find returns the limits that are the quota, and what remains.
func (s *QuotaSource[R]) find(r R, key string, lease limiter.Lease) (l rate.Limits, remaining int64, ok bool) {
	if s.fromLease {
		if l, remaining, ok = lease.Quota(); ok {
			return l, remaining, true
		}
	}
	if remaining, ok = lease.Remaining(); !ok { // the statistics of a shared limiter take a round trip
		statistics, ok := s.statistics(r, key)
		if !ok {
			return l, 0, false
		}
		remaining = statistics.AvailablePermits
	}
	return s.size(r, key), remaining, true
}

// Granted returns what p has granted to the call, and the key that it was granted for. If p has admitted the call
// without a grant, the lease is the zero Lease. r is the request as the handler gets it.
func (c *Call[R]) Granted(p *Policy[R], r R) (key string, lease limiter.Lease) {
	g, ok := c.grantOf(p)
	if !ok && p.Partitioned != nil {
		g.key = p.Key(r)
	}
	return g.key, g.lease
}

// statisticsOf returns a function for the statistics of the policy's limiter, or nil if the limiter has none.
func statisticsOf[R any](p *Policy[R]) func(r R, key string) (limiter.Statistics, bool) {
	if s, ok := p.Limiter.(limiter.StatisticsProvider); ok {
		return func(R, string) (limiter.Statistics, bool) { return s.Statistics(), true }
	}
	if s, ok := p.Partitioned.(interface {
		Statistics(key string) (limiter.Statistics, error)
	}); ok {
		return func(_ R, key string) (limiter.Statistics, bool) {
			statistics, err := s.Statistics(key)
			return statistics, err == nil
		}
	}
	if s, ok := p.Requests.(interface {
		Statistics(r R) (limiter.Statistics, error)
	}); ok {
		return func(r R, _ string) (limiter.Statistics, bool) {
			statistics, err := s.Statistics(r)
			return statistics, err == nil
		}
	}
	return nil
}

// limitsOf returns a function for the limits that are the quota: the given ones, or else those of the limiter of p. It returns
// nil if there are none.
func limitsOf[R any](p *Policy[R], permits int64, window time.Duration) func(r R, key string) rate.Limits {
	if permits > 0 {
		given := rate.Limits{Kind: rate.FixedWindow, Permits: int(min(permits, math.MaxInt)), Period: window}
		return func(R, string) rate.Limits { return given }
	}
	if l, ok := p.Limiter.(interface{ Limits() rate.Limits }); ok && !isnil.Value(l) && l.Limits().Kind != rate.Concurrency {
		return func(R, string) rate.Limits { return l.Limits() }
	}
	if l, ok := p.Partitioned.(interface {
		Limits(key string) (rate.Limits, error)
	}); ok {
		return func(_ R, key string) rate.Limits { return orNone(l.Limits(key)) }
	}
	if l, ok := p.Requests.(interface {
		Limits(r R) (rate.Limits, error)
	}); ok {
		return func(r R, _ string) rate.Limits { return orNone(l.Limits(r)) }
	}
	return nil
}

func orNone(l rate.Limits, err error) rate.Limits {
	if err != nil {
		return rate.Limits{}
	}
	return l
}
