package limitertest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
)

// retriesAfter expects a rejected lease with that RetryAfter.
func (p *probe) retriesAfter(lease limiter.Lease, want time.Duration, why string) {
	got, ok := lease.RetryAfter()
	if !ok {
		p.fail(fmt.Sprintf("the rejection says to retry after %v: %s", want, why), describe(lease, nil))
	}
	if diff, most := got-want, max(2*p.s.Tolerance, p.s.Resolution); diff < -most || diff > most {
		p.fail(fmt.Sprintf("RetryAfter is %v: %s", want, why), got)
	}
}

// retryIsExact expects that n is rejected until d after the start, and that RetryAfter says so.
func (p *probe) retryIsExact(n int, d time.Duration, why string) {
	lease := p.rejected(n, why)
	p.retriesAfter(lease, d-time.Since(p.start), why)
	p.untilJustBefore(d)
	lease = p.rejected(n, "it is just too early to retry: "+why)
	p.retriesAfter(lease, p.justBefore(), why)
	p.until(d)
	p.granted(n, "the time to retry has come: "+why)
}

var retryCases = []testCase{
	{name: "a concurrency limiter knows no RetryAfter",
		rule: "Common 7", kinds: []Kind{Concurrency}, limits: withQueue(0), run: func(p *probe) {
			p.granted(4, "it is new")
			if lease := p.rejected(1, "all are taken"); !noRetryAfter(lease) {
				p.fail("there is no RetryAfter: it depends on others", describe(lease, nil))
			}
			w := p.acquire(1)
			p.rejectedWith(w, limiter.ReasonNoPermit, "there is no queue")
			if !noRetryAfter(w.lease) {
				p.fail("there is no RetryAfter: it depends on others", describe(w.lease, nil))
			}
		}},
	{name: "a fixed window says to retry at the next window",
		rule: "Common 7", kinds: []Kind{FixedWindow, Calendar}, needs: RetryAfter, run: func(p *probe) {
			p.granted(3, "it is new")
			p.until(p.s.Unit * 7 / 10)
			p.retryIsExact(4, p.s.Unit, "1 is left, and 3 come back with the window")
			p.retryIsExact(1, 2*p.s.Unit, "all are taken until the next window")
		}},
	{name: "a bucket says to retry when enough refills have come",
		rule: "Common 7", kinds: []Kind{TokenBucket}, needs: RetryAfter, limits: permits(10, 3), run: func(p *probe) {
			p.granted(10, "it is new")
			p.until(p.s.Unit * 3 / 10)
			p.retryIsExact(1, p.s.Unit, "the next refill brings 3")
			p.until(p.s.Unit * 13 / 10)
			p.retryIsExact(6, 3*p.s.Unit, "2 are left, and 2 refills bring 6")
			p.retryIsExact(10, 6*p.s.Unit, "2 are left, and 3 refills bring 9, of which 8 find room")
		}},
	{name: "a sliding window says to retry when enough segments have left",
		rule: "Common 7", kinds: []Kind{SlidingWindow}, needs: RetryAfter, run: func(p *probe) {
			segment := p.s.Unit / 4
			p.granted(1, "it is new")
			p.until(segment + segment/5)
			p.granted(2, "3 are left")
			p.until(3*segment + segment*2/5)
			p.granted(1, "1 is left")
			p.retriesAfter(p.rejected(2, "all are taken"), 5*segment-time.Since(p.start), "1 of segment 0 and 2 of segment 1 must leave")
			p.retriesAfter(p.rejected(4, "all are taken"), 7*segment-time.Since(p.start), "all must leave")
			p.retryIsExact(1, 4*segment, "the 1 of segment 0 must leave")
			p.retryIsExact(2, 5*segment, "the 2 of segment 1 must leave")
			p.retryIsExact(4, 9*segment, "the 2 taken now must leave too")
		}},
	{name: "RetryAfter of zero permits is when one is there",
		rule: "Common 7", kinds: timedKinds, needs: RetryAfter | ZeroPermits, run: func(p *probe) {
			p.granted(4, "it is new")
			p.until(p.s.Unit / 10)
			p.retryIsExact(0, p.s.Unit, "nothing is left")
		}},
	{name: "an Acquire without room says when to retry",
		rule: "Common 7", kinds: timedKinds, needs: RetryAfter, limits: withQueue(0), run: func(p *probe) {
			p.granted(4, "it is new")
			p.until(p.s.Unit / 10)
			w := p.acquire(2)
			p.rejectedWith(w, limiter.ReasonNoPermit, "there is no queue")
			p.retriesAfter(w.lease, p.s.Unit-w.ended.Sub(p.start), "permits come back then")
		}},
	{name: "RetryAfter counts the permits already waited for",
		rule: "Common 7", kinds: timedKinds, needs: RetryAfter | Queue, run: func(p *probe) {
			w := p.fillQueue(0, 3, 3)
			p.retriesAfter(p.rejected(1, "all are taken"), 2*p.s.Unit-time.Since(p.start),
				"the first 3 leave one, which the second 3 hold up for another Unit; then one is left")
			p.until(p.s.Unit)
			p.served(w[0], "permits came back")
			p.retryIsExact(1, 2*p.s.Unit, "the second 3 leave one")
			p.served(w[1], "permits came back")
		}},
	{name: "newest first: RetryAfter lets the queue be served first",
		rule: "Common 7", kinds: timedKinds, needs: RetryAfter | Queue | NewestFirst, limits: newestFirst(8), run: func(p *probe) {
			w := p.fillQueue(0, 3, 3)
			p.retryIsExact(1, p.s.Unit, "the newer 3 leave one, which a newcomer takes past the queue")
			p.served(w[1], "permits came back")
			p.waits(w[0], "nothing is left")
		}},
	{name: "a waiter that was pushed out is told when to retry",
		rule: "Common 7", kinds: timedKinds, needs: RetryAfter | Queue | NewestFirst, limits: newestFirst(4), run: func(p *probe) {
			w := p.fillQueue(0, 3)
			p.until(p.s.Unit / 2)
			newcomer := p.acquire(2)
			p.rejectedWith(w[0], limiter.ReasonQueueLimit, "2 need its room")
			p.retriesAfter(w[0].lease, 2*p.s.Unit-w[0].ended.Sub(p.start), "the newcomer takes 2 at the next Unit, and leaves too few")
			p.waits(newcomer, "nothing is left")
		}},
	{name: "a granted lease says nothing about retrying",
		rule: "Common 7", run: func(p *probe) {
			if lease := p.granted(4, "it is new"); !noRetryAfter(lease) || lease.Reason() != "" {
				p.fail("an acquired lease has neither RetryAfter nor reason", describe(lease, nil))
			}
		}},
}

func noRetryAfter(l limiter.Lease) bool {
	_, ok := l.RetryAfter()
	return !ok
}
