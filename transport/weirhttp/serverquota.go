package weirhttp

import (
	"math"
	"net/http"
	"time"

	"github.com/weir-go/weir/limiter"
)

// A quotaSource finds the quota of a policy for the headers. It calls both functions for each answer, because the
// permits of the limiter change, and a reload can change its options.
type quotaSource struct {
	statistics func(r *http.Request, key string) (s limiter.Statistics, ok bool) // key is the key for Partitioned
	size       func() (quota, refill)                                            // the permits and the window of the quota
}

// newQuotaSource returns the quotaSource of p. It returns nil if the limiter has no statistics or the quota is not
// known.
func newQuotaSource(p *Policy) *quotaSource {
	s := &quotaSource{statistics: statisticsOf(p), size: quotaSizeOf(p)}
	if s.statistics == nil || s.size == nil {
		return nil
	}
	return s
}

// current returns the quota of a client at this moment. lease is the limiter's answer to its request.
func (s *quotaSource) current(r *http.Request, key string, lease limiter.Lease) (q quota, ok bool) {
	remaining, ok := lease.Remaining() // the statistics of a shared limiter take a round trip
	if !ok {
		statistics, ok := s.statistics(r, key)
		if !ok {
			return quota{}, false
		}
		remaining = statistics.AvailablePermits
	}
	q, refill := s.size()
	q.remaining = min(max(remaining, 0), q.permits)
	q.reset = q.window
	if refill.permits > 0 {
		q.reset = timeToFill(q.permits-q.remaining, refill)
	}
	return q, true
}

// writeQuotas tells the client about every policy of the route that was asked.
func (c *call) writeQuotas(w http.ResponseWriter, r *http.Request) {
	for _, p := range c.route.policies[c.firstPolicy:] {
		if p.quota == nil {
			continue
		}
		g, ok := c.grantOf(p)
		if !ok && p.Partitioned != nil { // admitted without a grant
			g.key = p.Key(r)
		}
		p.writeQuota(w, r, g.key, g.lease, 0)
	}
}

// writeQuota tells the client about one policy. A retryAfter above 0, of a rejection, replaces the reset of the quota.
func (p *preparedPolicy) writeQuota(w http.ResponseWriter, r *http.Request, key string, lease limiter.Lease, retryAfter time.Duration) {
	q, ok := p.quota.current(r, key, lease)
	if !ok {
		return
	}
	q.policy = p.name
	if retryAfter > 0 {
		q.reset = retryAfter
	}
	q.write(w.Header(), p.Headers)
}

// statisticsOf returns a function for the statistics of the policy's limiter, or nil if the limiter has none.
func statisticsOf(p *Policy) func(r *http.Request, key string) (limiter.Statistics, bool) {
	if s, ok := p.Limiter.(limiter.StatisticsProvider); ok {
		return func(*http.Request, string) (limiter.Statistics, bool) { return s.Statistics(), true }
	}
	if s, ok := p.Partitioned.(interface {
		Statistics(key string) (limiter.Statistics, error)
	}); ok {
		return func(_ *http.Request, key string) (limiter.Statistics, bool) {
			statistics, err := s.Statistics(key)
			return statistics, err == nil
		}
	}
	if s, ok := p.Requests.(interface {
		Statistics(r *http.Request) (limiter.Statistics, error)
	}); ok {
		return func(r *http.Request, _ string) (limiter.Statistics, bool) {
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

// quotaSizeOf returns a function for the permits and the window of the quota: those of the policy, or else those of its
// limiter. It returns nil if neither has them.
func quotaSizeOf(p *Policy) func() (quota, refill) {
	fromPolicy := quota{permits: p.Quota, window: p.Window}
	if fromPolicy.permits > 0 {
		return func() (quota, refill) { return fromPolicy, refill{} }
	}
	switch l := p.Limiter.(type) {
	case interface {
		Options() limiter.TokenBucketOptions
	}:
		return func() (quota, refill) {
			o := l.Options()
			r := refill{int64(o.TokensPerPeriod), o.ReplenishmentPeriod}
			return quota{permits: int64(o.TokenLimit), window: timeToFill(int64(o.TokenLimit), r)}, r
		}
	case interface {
		Options() limiter.FixedWindowOptions
	}:
		return func() (quota, refill) {
			o := l.Options()
			return quota{permits: int64(o.PermitLimit), window: o.Window}, refill{}
		}
	case interface {
		Options() limiter.SlidingWindowOptions
	}:
		return func() (quota, refill) {
			o := l.Options()
			return quota{permits: int64(o.PermitLimit), window: o.Window}, refill{}
		}
	}
	return nil
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
