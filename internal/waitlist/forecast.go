package waitlist

import (
	"math"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/rate"
)

// Exact is how many waiters [List.LineBehind] looks at one by one. That adds as many segments to a state at the most.
const Exact = 64

// LineBehind returns the line of g on which a newcomer could take n permits, if the queue is served in its order and the newcomer
// takes what is then left. Time passes in s, which cannot be used afterwards.
func (l *List[V]) LineBehind(g *rate.Schedule, s *rate.State, n int) int64 {
	lineOf := func(n int64) int64 { return g.LineOf(s, n-g.Free(s)) }
	want := Weight(n)
	overtakes := n == 0 || l.order == rate.NewestFirst
	if l.order == rate.Fair && n == 0 {
		return lineOf(want)
	}
	if l.order == rate.Fair && l.length > 0 { // as if the newcomer's tenant were served last
		owed := -min(g.Free(s), 0)
		return saturate.Add(s.Line, mostLines(g, int64(l.length-l.zeros)+1, saturate.Add(saturate.Add(l.permits, want), owed)))
	}
	var seen, permits int64
	for w := range l.All() {
		if w.Permits == 0 {
			continue // it takes nothing
		}
		if seen == Exact {
			waiters, rest := int64(l.length-l.zeros)-seen+1, saturate.Add(l.permits-permits, want)
			return saturate.Add(s.Line, mostLines(g, waiters, rest))
		}
		need := min(int64(w.Permits), g.Permits) // the limit can have been lowered just now
		line := lineOf(need)
		if overtakes && want < need {
			if earlier := lineOf(want); earlier < line {
				return earlier
			}
		}
		g.AdvanceTo(s, line)
		g.Charge(s, need)
		permits += need
		seen++
	}
	return lineOf(want)
}

// mostLines returns an upper bound of the lines that must pass until all of the waiters are served, one after the other.
// permits is the sum of what they wait for.
//
// It is the lesser of two. A waiter can leave a part of the permits of a line unused, so it needs one line more than its
// permits do, or one window. And while there are waiters, fewer than largest permits are free after each line, so that each
// line adds at least gain.
func mostLines(g *rate.Schedule, waiters, permits int64) int64 {
	refill := int64(math.MaxInt64)
	if g.Kind == rate.TokenBucket {
		refill = g.Refill
	}
	lines := saturate.Add(permits/refill, waiters)
	largest := permits - (waiters - 1) // if all others wait for one; exact if all do
	if gain := min(refill, g.Permits-largest+1); gain > 0 {
		lines = min(lines, 1+(permits-1)/gain)
	}
	return saturate.Mul(lines, max(g.Segments, 1))
}
