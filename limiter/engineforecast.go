package limiter

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// A forecast is a limiter's permits as they will be if nobody comes who is not
// in the queue already. Time in it goes by in grid lines.
type forecast interface {
	// linesUntil is how many lines from now n permits are free.
	linesUntil(n int64) int64
	// pass lets that many lines go by.
	pass(lines int64)
	// take takes n permits that are free.
	take(n int64)
	// atMost is an upper bound of the lines that it takes to serve so many
	// waiters, one after the other, who want so many permits in all.
	atMost(waiters, permits int64) int64
}

// exactWaiters is how many waiters a forecast goes through one by one.
const exactWaiters = 64

// linesAhead is the number of grid lines after which a newcomer could take n
// permits: the queue is served in its order, and whatever is free on a line
// after that is the newcomer's.
func linesAhead(f forecast, q *queue, n int) int64 {
	want := weight(n)
	overtakes := n == 0 || q.order == NewestFirst
	var lines, seen, permits int64
	for w := q.first(); w != nil; w = q.after(w) {
		if w.n == 0 {
			continue // takes nothing
		}
		if seen == exactWaiters {
			rest := f.atMost(int64(q.length)-seen+1, saturate.Add(q.permits-permits, want))
			return saturate.Add(lines, rest)
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

// waitFor is the time from now until that many lines after line. It is at least
// a nanosecond: a line that has gone by unseen on a limiter that is replenished
// by hand is as near as can be.
func waitFor(now, line, lines, period int64) time.Duration {
	return max(until(later(line, lines, period), now), 1)
}
