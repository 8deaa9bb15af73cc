package weirrls

import (
	"slices"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/admission"
)

// A decision is one request. Its methods are called in this order:
//
//	prepare   finds the limit of each descriptor
//	ask       asks the limits
//	decide    decides about the request by their answers
//	settle    gives back what a rejected request has taken
//	response  makes the answer
//	end       releases the leases
type decision struct {
	call
	domain    *domain // nil: not known
	request   *ratelimitv3.RateLimitRequest
	measuring bool
	checks    []check

	over     bool // the overall code
	byQuotas bool // all limits with Quota are over
}

// A check is one descriptor of a request.
type check struct {
	descriptor *common.RateLimitDescriptor
	rule       *rule  // nil for a limit that the request brings with it
	limit      *limit // nil: no limit applies
	hits       hits   // nil: there is nothing to ask
	failOpen   bool   // if the limit is undecided, it does not reject the request

	asked   bool
	verdict verdict
	err     error         // why the limit is undecided, or what failed after it had refused the hits
	took    time.Duration // by the limiter, if the request is measured
	settled bool          // what it took was given back
}

// hits are those of a descriptor, and the limit that they are taken from.
type hits interface {
	// takesTime reports whether take and refund can take time, such as a round trip to a store.
	takesTime() bool
	// counter tells counters apart.
	counter() counterID
	// take takes the hits, or gives them back if the descriptor says so.
	take() (verdict, error)
	// refundable reports whether a rejected request takes nothing. refund gives back what it has taken.
	refundable() bool
	refund()
	// describe makes the status of the descriptor. over reports whether it is over the limit, and decided whether the limit has
	// decided that.
	describe(s *ratelimitv3.RateLimitResponse_DescriptorStatus, over, decided bool)
	// rejection returns the answer of the limiter that has refused the hits.
	rejection() limiter.Lease
	release()
}

// A verdict is what a limit says about hits.
type verdict uint8

const (
	within verdict = iota
	refused
	undecided
)

type counterID struct {
	limit *limit // that of a limiter
	key   string
	span  timeSpan
}

// over reports whether the descriptor is over its limit.
func (c *check) over() bool { return c.verdict == refused || c.failed() }

// failed reports whether that is so because the limit is undecided.
func (c *check) failed() bool { return c.verdict == undecided && !c.failOpen }

// objects reports whether the limit is against the request.
func (c *check) objects() bool { return c.over() && !c.limit.Shadow }

// prepare finds the limit of each descriptor.
func (d *decision) prepare() {
	d.checks = make([]check, len(d.request.GetDescriptors()))
	if d.domain == nil {
		return
	}
	var replaced []string
	for i := range d.checks {
		c := &d.checks[i]
		c.descriptor = d.request.GetDescriptors()[i]
		d.findLimit(c)
		if c.limit != nil {
			replaced = append(replaced, c.limit.Replaces...) // also if it is replaced itself
		}
	}
	if len(replaced) == 0 {
		return
	}
	for i := range d.checks {
		if c := &d.checks[i]; c.hits != nil && slices.Contains(replaced, c.limit.Name) {
			c.limit, c.hits = nil, nil
		}
	}
}

// findLimit finds the limit of a descriptor.
func (d *decision) findLimit(c *check) {
	n := max(1, uint64(d.request.GetHitsAddend()))
	if own := c.descriptor.GetHitsAddend(); own != nil {
		n = own.GetValue()
	}
	negative := n > 0 && c.descriptor.GetIsNegativeHits()
	countersOpen := negative || d.options.CountersFailOpen // who gives back asks for nothing
	if o := c.descriptor.GetLimit(); o != nil {
		h := newCounterHits(&d.call, d.domain.override, d.domain.counterKey(keyOf(c.descriptor)), n, negative)
		if h.setOverride(o) {
			c.limit, c.hits, c.failOpen = h.limit, h, countersOpen
			return
		}
	}
	rule, key := d.domain.match(c.descriptor)
	if rule == nil {
		return
	}
	l := rule.limit
	c.rule, c.limit, c.failOpen = rule, l, negative || l.FailOpen
	switch {
	case l.Unlimited:
	case l.Window != nil:
		h := newCounterHits(&d.call, l, d.domain.counterKey(key), n, negative)
		h.setWindow(l.Window)
		c.hits, c.failOpen = h, countersOpen || l.FailOpen
	default:
		if l.Partitioned == nil {
			key = "" // all keys have one limiter
		}
		c.hits = &limiterHits{call: &d.call, limit: l, key: admission.BoundedKey(key), n: n, negative: negative}
	}
}

// ask asks the limits. Those in this process are asked in order, and then all that can take time, such as those of a
// store, at once. If one in this process rejects the request, those from which it would take nothing are not asked.
func (d *decision) ask() {
	var slow []*check
	for i := range d.checks {
		switch c := &d.checks[i]; {
		case c.hits == nil:
		case c.hits.takesTime():
			slow = append(slow, c)
		default:
			d.take(c)
		}
	}
	if len(slow) > 0 && !d.options.Shadow && slices.ContainsFunc(d.checks, func(c check) bool { return c.objects() && !d.isQuota(&c) }) {
		slow = slices.DeleteFunc(slow, func(c *check) bool { return c.hits.refundable() })
	}
	for _, c := range slow {
		c.asked, c.verdict, c.err = true, undecided, errGoexit // unless take returns
	}
	each(slow, d.take)
}

// take asks the limit of c.
func (d *decision) take(c *check) {
	var began time.Duration
	if d.measuring {
		began = clock.Now()
	}
	c.asked, c.verdict, c.err = true, undecided, errGoexit // unless it returns
	c.verdict, c.err = c.hits.take()
	if d.measuring {
		c.took = clock.Now() - began
	}
}

// maxConcurrent bounds the goroutines that ask limits for one request, however many descriptors it has.
const maxConcurrent = 16

// each calls f with each check, at the same time if there are several. Checks of one counter are next to each other in
// order, because their sums depend on it.
func each(checks []*check, f func(*check)) {
	switch len(checks) {
	case 0:
		return
	case 1:
		f(checks[0])
		return
	}
	groups := make(map[counterID][]*check)
	for _, c := range checks {
		id := c.hits.counter()
		groups[id] = append(groups[id], c)
	}
	var wg sync.WaitGroup
	running := make(chan struct{}, maxConcurrent)
	for _, group := range groups {
		running <- struct{}{}
		wg.Go(func() {
			defer func() { <-running }()
			for _, c := range group {
				f(c)
			}
		})
	}
	wg.Wait()
}

// gone reports whether the context ended before a limit had decided.
func (d *decision) gone() bool {
	return d.ctx.Err() != nil && slices.ContainsFunc(d.checks, func(c check) bool { return pipeline.IsContextError(c.err) })
}

// decide decides about the request by the answers of its limits: it is over if an ordinary limit is, or if all limits with
// Quota are.
func (d *decision) decide() {
	ordinary, quotas, quotasOver := false, 0, 0
	for i := range d.checks {
		switch c := &d.checks[i]; {
		case !d.isQuota(c):
			ordinary = ordinary || c.objects()
		case c.objects():
			quotasOver++
			fallthrough
		default:
			quotas++
		}
	}
	d.byQuotas = quotas > 0 && quotas == quotasOver
	d.over = !d.options.Shadow && (ordinary || d.byQuotas)
}

// isQuota reports whether c rejects only together with all other quotas of the request.
func (d *decision) isQuota(c *check) bool {
	if c.limit == nil {
		return d.options.Quota
	}
	return !c.limit.Unlimited && (d.options.Quota || c.limit.Quota)
}

// settle gives back what a rejected request has taken. What was given back stays given back, what a Window counts stays
// counted, and hits that can be a report count whatever the answer.
func (d *decision) settle() {
	if !d.over {
		return
	}
	var slow []*check
	for i := range d.checks {
		switch c := &d.checks[i]; {
		case !c.asked || c.settled || c.verdict != within || !c.hits.refundable():
		case c.hits.takesTime():
			slow = append(slow, c)
		default:
			c.refund()
		}
	}
	each(slow, (*check).refund)
}

func (c *check) refund() {
	c.settled = true
	c.hits.refund()
}

// end releases the leases. If finished is false, a limiter or a listener has ended the goroutine: then nothing was
// answered, and what was taken is given back. Permits of windows and buckets stay taken after a release.
func (d *decision) end(finished bool) {
	if !finished {
		d.over = true
		d.settle()
	}
	for i := range d.checks {
		if c := &d.checks[i]; c.asked {
			c.hits.release()
		}
	}
}
