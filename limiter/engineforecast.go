package limiter

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// A forecast predicts the permits of a limiter if there are no callers but those in its queue. Time passes in it by
// grid lines.
type forecast interface {
	// linesUntil returns how many lines must pass until n permits are free.
	linesUntil(n int64) int64
	// pass lets that many lines pass.
	pass(lines int64)
	// take takes n permits that are free.
	take(n int64)
	// atMost returns an upper bound of the lines that must pass until all of the waiters are served, one after the
	// other. permits is the sum of what they wait for, and none waits for more than largest.
	atMost(waiters, permits, largest int64) int64
}

// exactWaiters is how many waiters a forecast looks at one by one.
const exactWaiters = 64

// linesAhead returns the number of lines after which a newcomer could take n permits, if the queue is served in its
// order and the newcomer takes what is then left.
func linesAhead(f forecast, q *queue, n int) int64 {
	want := weight(n)
	overtakes := n == 0 || q.order == NewestFirst
	var lines, seen, permits int64
	for w := q.first(); w != nil; w = q.after(w) {
		if w.n == 0 {
			continue // it takes nothing
		}
		if seen == exactWaiters {
			waiters, rest := int64(q.length-q.zeros)-seen+1, saturate.Add(q.permits-permits, want)
			largest := rest - (waiters - 1) // if all others wait for one; exact if all do
			return saturate.Add(lines, f.atMost(waiters, rest, largest))
		}
		need := int64(w.n)
		if overtakes && want < need {
			if k := f.linesUntil(want); k < f.linesUntil(need) {
				return saturate.Add(lines, k)
			}
		}
		k := f.linesUntil(need)
		f.pass(k)
		f.take(need)
		lines = saturate.Add(lines, k)
		permits += need
		seen++
	}
	return saturate.Add(lines, f.linesUntil(want))
}

// waitFor returns the time from now to the moment line + lines×period. It is at least a nanosecond: on a limiter that
// is replenished by hand, that moment can be in the past.
func waitFor(now, line, lines, period int64) time.Duration {
	return max(until(later(line, lines, period), now), 1)
}
