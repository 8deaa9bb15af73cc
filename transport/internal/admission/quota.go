package admission

import (
	"math"
	"time"

	"github.com/weir-go/weir/limiter"
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
	size       func(r R, key string) (q Quota, refill refill)        // the permits and the window; without permits it is not known
}

// NewQuotaSource returns the QuotaSource of p. If permits is 0, the quota is that of the limiter. It returns nil if the
// limiter has no statistics or the quota is not known.
func NewQuotaSource[R any](p *Policy[R], permits int64, window time.Duration) *QuotaSource[R] {
	s := &QuotaSource[R]{
		policy: p.Name, fromLease: p.Keyed() && permits == 0, statistics: statisticsOf(p), size: quotaSizeOf(p, permits, window),
	}
	if s.statistics == nil || s.size == nil {
		return nil
	}
	return s
}

// Current returns the quota of a client at this moment. lease is the limiter's answer to its request. A retryAfter above
// 0, of a rejection, replaces the reset of the quota.
func (s *QuotaSource[R]) Current(r R, key string, lease limiter.Lease, retryAfter time.Duration) (q Quota, ok bool) {
	q, refill, remaining, ok := s.find(r, key, lease)
	if !ok || q.Permits == 0 {
		return Quota{}, false
	}
	q.Policy = s.policy
	q.Remaining = min(max(remaining, 0), q.Permits)
	switch {
	case retryAfter > 0:
		q.Reset = retryAfter
	case refill.permits > 0:
		q.Reset = timeToFill(q.Permits-q.Remaining, refill)
	default:
		q.Reset = q.Window
	}
	return q, true
}

// find returns the permits and the window of the quota, and what remains.
func (s *QuotaSource[R]) find(r R, key string, lease limiter.Lease) (q Quota, f refill, remaining int64, ok bool) {
	if s.fromLease {
		if options, available, ok := lease.Quota(); ok {
			q, f = sizeOf(options)
			return q, f, available, true
		}
	}
	if remaining, ok = lease.Remaining(); !ok { // the statistics of a shared limiter take a round trip
		statistics, ok := s.statistics(r, key)
		if !ok {
			return Quota{}, refill{}, 0, false
		}
		remaining = statistics.AvailablePermits
	}
	q, f = s.size(r, key)
	return q, f, remaining, true
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

// A refill is how many permits come back in each period. It is zero for a window, because only the limiter knows when
// its window ends.
type refill struct {
	permits int64
	period  time.Duration
}

// quotaSizeOf returns a function for the permits and the window of the quota: the given ones, or else those of the limiter
// of p. It returns nil if there are none.
func quotaSizeOf[R any](p *Policy[R], permits int64, window time.Duration) func(r R, key string) (Quota, refill) {
	if permits > 0 {
		given := Quota{Permits: permits, Window: window}
		return func(R, string) (Quota, refill) { return given, refill{} }
	}
	switch l := p.Limiter.(type) {
	case interface {
		Options() limiter.TokenBucketOptions
	}:
		return func(R, string) (Quota, refill) { return sizeOf(l.Options()) }
	case interface {
		Options() limiter.FixedWindowOptions
	}:
		return func(R, string) (Quota, refill) { return sizeOf(l.Options()) }
	case interface {
		Options() limiter.SlidingWindowOptions
	}:
		return func(R, string) (Quota, refill) { return sizeOf(l.Options()) }
	}
	if l, ok := p.Partitioned.(interface {
		Limits(key string) (options any, err error)
	}); ok {
		return func(_ R, key string) (Quota, refill) { return sizeOfOrNone(l.Limits(key)) }
	}
	if l, ok := p.Requests.(interface {
		Limits(r R) (options any, err error)
	}); ok {
		return func(r R, _ string) (Quota, refill) { return sizeOfOrNone(l.Limits(r)) }
	}
	return nil
}

func sizeOfOrNone(options any, err error) (Quota, refill) {
	if err != nil {
		return Quota{}, refill{}
	}
	return sizeOf(options)
}

// sizeOf returns the quota that the options of a limiter are.
func sizeOf(options any) (Quota, refill) {
	switch o := options.(type) {
	case limiter.TokenBucketOptions:
		r := refill{int64(o.TokensPerPeriod), o.ReplenishmentPeriod}
		return Quota{Permits: int64(o.TokenLimit), Window: timeToFill(int64(o.TokenLimit), r)}, r
	case limiter.FixedWindowOptions:
		return Quota{Permits: int64(o.PermitLimit), Window: o.Window}, refill{}
	case limiter.SlidingWindowOptions:
		return Quota{Permits: int64(o.PermitLimit), Window: o.Window}, refill{}
	case limiter.ConcurrencyOptions:
		return Quota{Permits: int64(o.PermitLimit)}, refill{}
	default:
		return Quota{}, refill{}
	}
}

// timeToFill returns how long it takes at most until missing permits have come back.
func timeToFill(missing int64, r refill) time.Duration {
	if missing <= 0 || r.permits <= 0 {
		return 0
	}
	periods := (missing-1)/r.permits + 1
	if r.period > 0 && periods > math.MaxInt64/int64(r.period) {
		return math.MaxInt64
	}
	return time.Duration(periods) * r.period
}
