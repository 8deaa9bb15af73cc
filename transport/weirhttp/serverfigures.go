package weirhttp

import (
	"math"
	"net/http"
	"time"

	"github.com/weir-go/weir/limiter"
)

// figures returns what a policy has to tell about its limits, as they are now. ok
// is false if it knows nothing. The lease is what the policy has answered, the key the
// one of a Partitioned.
type figures func(r *http.Request, key string, lease limiter.Lease) (l limits, ok bool)

// figuresOf returns nil where it can never know anything.
func figuresOf(p *Policy) figures {
	statistics := statisticsOf(p)
	quota := quotaOf(p)
	if statistics == nil || quota == nil {
		return nil
	}
	return func(r *http.Request, key string, lease limiter.Lease) (limits, bool) {
		remaining, ok := lease.Remaining() // asking a limiter on another machine takes a round trip
		if !ok {
			var s limiter.Statistics
			if s, ok = statistics(r, key); !ok {
				return limits{}, false
			}
			remaining = s.AvailablePermits
		}
		l, refill := quota()
		l.remaining = min(max(remaining, 0), l.quota)
		l.reset = l.window
		if refill.permits > 0 {
			l.reset = timeToFill(l.quota-l.remaining, refill)
		}
		return l, true
	}
}

// tell tells the client about every policy that was asked on this route.
func (c *call) tell(w http.ResponseWriter, r *http.Request) {
	for _, p := range c.route.policies[c.first:] {
		if p.figures != nil {
			lease, key, ok := c.leaseOf(p)
			if !ok && p.Partitioned != nil { // let through without a grant
				key = p.Key(r)
			}
			p.tell(w, r, key, lease, 0)
		}
	}
}

// leaseOf returns what the policy has granted, and the key.
func (c *call) leaseOf(p *policy) (lease limiter.Lease, key string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		if g := &c.held[i]; g.policy == p {
			return g.lease, g.key, true
		}
	}
	return limiter.Lease{}, "", false
}

// tell tells the client about one policy. A rejection knows better than the
// figures when it is worth coming back.
func (p *policy) tell(w http.ResponseWriter, r *http.Request, key string, lease limiter.Lease, retryAfter time.Duration) {
	l, ok := p.figures(r, key, lease)
	if !ok {
		return
	}
	l.policy = p.name
	if retryAfter > 0 {
		l.reset = retryAfter
	}
	writeLimits(w.Header(), p.Headers, l)
}

// statisticsOf returns how to ask the policy's limiter how it is doing.
func statisticsOf(p *Policy) func(r *http.Request, key string) (limiter.Statistics, bool) {
	if s, ok := p.Limiter.(limiter.StatisticsProvider); ok {
		return func(*http.Request, string) (limiter.Statistics, bool) { return s.Statistics(), true }
	}
	if s, ok := p.Partitioned.(interface {
		Statistics(key string) (limiter.Statistics, error)
	}); ok {
		return func(_ *http.Request, key string) (limiter.Statistics, bool) {
			of, err := s.Statistics(key)
			return of, err == nil
		}
	}
	if s, ok := p.Requests.(interface {
		Statistics(r *http.Request) (limiter.Statistics, error)
	}); ok {
		return func(r *http.Request, _ string) (limiter.Statistics, bool) {
			of, err := s.Statistics(r)
			return of, err == nil
		}
	}
	return nil
}

// A refill is how much comes back after every period; the zero refill stands for a
// window, of which nobody outside knows when it is over.
type refill struct {
	permits int64
	period  time.Duration
}

// quotaOf returns how to find the quota and the window: from the limiter each time,
// because they may change, unless the policy says them.
func quotaOf(p *Policy) func() (limits, refill) {
	said := limits{quota: p.Quota, window: p.Window}
	if said.quota > 0 {
		return func() (limits, refill) { return said, refill{} }
	}
	switch l := p.Limiter.(type) {
	case interface {
		Options() limiter.TokenBucketOptions
	}:
		return func() (limits, refill) {
			o := l.Options()
			of := refill{int64(o.TokensPerPeriod), o.ReplenishmentPeriod}
			return limits{quota: int64(o.TokenLimit), window: timeToFill(int64(o.TokenLimit), of)}, of
		}
	case interface {
		Options() limiter.FixedWindowOptions
	}:
		return func() (limits, refill) {
			o := l.Options()
			return limits{quota: int64(o.PermitLimit), window: o.Window}, refill{}
		}
	case interface {
		Options() limiter.SlidingWindowOptions
	}:
		return func() (limits, refill) {
			o := l.Options()
			return limits{quota: int64(o.PermitLimit), window: o.Window}, refill{}
		}
	}
	return nil
}

// timeToFill is how long it takes at most until so many permits are back.
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
