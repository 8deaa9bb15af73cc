// Package fairness decides when an instance asks the store for the permits that its callers wait for, and for how many at once, so
// that each instance with enough waiting callers gets at least half of its even share of them.
//
// An instance knows nothing of the others, and nothing of this is kept in the store, so one that dies leaves nothing behind. The
// rule: while permits are short, all callers of the instance that can wait go through its queue, and the queue asks at random
// moments. When permits come back, it asks in the first half of a short time if it got none the last time, and in the second half
// if it got some. It first asks for a quarter of what comes back at once, and for twice as many whenever it was granted all.
//
// A scenario: 24 permits come back every 100 ms to instances A and B, with 30 waiting callers each. The store has told both when.
// Without the rule, the first to ask takes all 24, asks again at the right moment, and so gets all permits as long as it has
// waiting callers. With the rule, both ask for 6 within 3 ms, one of them for the other 12 within 6 ms more, and that one asks
// later than its rival the next time.
package fairness

import (
	"math"
	"time"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/rate"
)

// Turns are the turns of one instance at asking for the permits of one key. The zero value is ready for use.
type Turns struct {
	Random *deterministic.Source // nil: that of math/rand/v2

	shortUntil time.Time
	next       time.Time     // the turn: the instance does not ask before
	most       int64         // permits to ask for at most; 0: a quarter of a line
	got        bool          // permits since the last rejection
	rtt        time.Duration // of the last request for a lease
	rejected   time.Time     // when a request for a lease was last rejected
	winsSince  time.Time     // since when requests for the last free lease were granted; zero: not the last one
}

// Short reports whether permits are short: callers were rejected lately or, of leases, others hold what is missing.
func (t *Turns) Short(now time.Time) bool { return now.Before(t.shortUntil) }

// Left returns the time until the instance asks again. A turn that is more than the longest delay ahead is that of a waiter for
// permits of a later line. It is ignored, because a caller that comes now may find permits.
func (t *Turns) Left(now time.Time) time.Duration {
	if left := t.next.Sub(now); left <= longest {
		return max(left, 0)
	}
	return 0
}

// Reset makes the instance ask at once: the limits have changed.
func (t *Turns) Reset() { t.next, t.most = time.Time{}, 0 }

// AtMost returns how many permits to ask for at most.
func (t *Turns) AtMost(g *rate.Schedule, rtt time.Duration, now time.Time) int64 {
	if !t.Short(now) || 6*rtt > spoils(g) {
		return math.MaxInt64 // a store so far away is asked for all at once
	}
	if t.most == 0 {
		t.most = max(line(g)/4, 1)
	}
	return t.most
}

// Granted returns for how long the instance does not ask after it has got all that it has asked for, as AtMost allows. Far from the
// store, that is never 0: without a pause, the callers that were served just now and come back at once would miss the next
// request, and half of the callers would share each of them.
func (t *Turns) Granted(g *rate.Schedule, rtt time.Duration, now time.Time) time.Duration {
	t.got = true
	if !t.Short(now) {
		return (rtt / 16).Truncate(time.Millisecond)
	}
	t.most += min(t.most, math.MaxInt64-t.most)
	return t.after(0, t.late(delay(g, rtt)), now)
}

// Rejected returns for how long the instance does not ask after a rejection, if permits come back in backIn. got reports whether
// some of what it has asked for was granted.
func (t *Turns) Rejected(g *rate.Schedule, rtt, backIn time.Duration, got bool, now time.Time) time.Duration {
	t.shortUntil = now.Add(min(3*min(saturate.Micros(g.Period), time.Minute)+time.Second, 2*time.Minute))
	most := delay(g, rtt)
	d := t.early(most)
	if t.got || got {
		d = t.late(most)
	}
	t.got, t.most = false, 0
	return t.after(max(backIn-lead(g, rtt), 0), d, now)
}

func (t *Turns) after(wait, d time.Duration, now time.Time) time.Duration {
	if wait > math.MaxInt64-d {
		return wait
	}
	t.next = now.Add(wait + d)
	return wait + d
}

// early and late are random delays in the first and the second half of most.
func (t *Turns) early(most time.Duration) time.Duration { return t.Random.UpTo(most/2 + 1) }

func (t *Turns) late(most time.Duration) time.Duration { return most/2 + t.early(most) }

// longest is the longest delay of permits that come back with time.
const longest = 50 * time.Millisecond

// delay returns the longest delay of g. It is short enough that all permits of a line are taken long before more would be lost.
func delay(g *rate.Schedule, rtt time.Duration) time.Duration {
	return min(8*rtt, spoils(g)/16, max(saturate.Micros(g.Period), rtt)/2, longest)
}

// lead returns how much earlier a request must be sent to arrive when permits come back; 0 if that is not worth more calls,
// because they are not lost meanwhile. The time until then is counted from the store's decision, half a round trip before the
// answer came, and the request takes the other half. A request that arrives too early costs another round trip, so the
// lead is a little shorter.
func lead(g *rate.Schedule, rtt time.Duration) time.Duration {
	if 4*rtt < spoils(g) {
		return 0
	}
	return max(rtt-rtt/16-time.Millisecond, 0)
}

// spoils returns how long after a line permits are lost that were not taken: a bucket is full, a fixed window is over, or a
// segment of a sliding window, so that the permits come back a segment later.
func spoils(g *rate.Schedule) time.Duration {
	if g.Kind == rate.TokenBucket {
		return saturate.Micros(saturate.Mul(g.Period, (g.Permits-1)/max(g.Refill, 1)+1))
	}
	return saturate.Micros(g.Period)
}

// line returns how many permits come back on a line.
func line(g *rate.Schedule) int64 {
	switch g.Kind {
	case rate.TokenBucket:
		return min(g.Refill, g.Permits)
	case rate.SlidingWindow:
		return g.Permits / max(g.Segments, 1)
	default:
		return g.Permits
	}
}
