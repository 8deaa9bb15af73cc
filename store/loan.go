package store

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// A loan is what an instance has taken of one key to give it out itself. It is guarded by
// its cell's lock. The zero loan is empty.
//
// Of a token bucket, permits have places: the first permit ever taken is at place 1, and
// each line pays for as many places as it brings tokens, the lowest first. A borrowed
// permit may be given out as long as its place is unpaid, because until then it counts as
// missing in the store. All places are different, so in no time are more given out than the
// bucket allows, by however many instances; and what lies unused vanishes as fast as it
// comes back to the others. Of a window, what was borrowed counts until the next line.
type loan struct {
	blocks []block    // the oldest first; seldom more than one
	size   int64      // how many to borrow next time
	at     time.Time  // of the last borrowing
	under  *borrowing // one that is under way
	serial int64
	by     *limiter.Granter
}

// A block has the places above next, up to top, counted from its line.
type block struct {
	serial         int64
	def            *backend.Definition
	line           int64
	low, next, top int64
	now            int64     // the store's time when it was borrowed, which was
	sent           time.Time // after this
}

// lines is how many lines have gone by since, the store's clock taken to be as late as it can
// be.
func (b *block) lines(at time.Time) int64 {
	return b.def.TickAt(b.now+at.Sub(b.sent).Microseconds()+1) - b.line
}

// left is how many permits of the block may be given out.
func (b *block) left(at time.Time) int64 {
	switch lines := b.lines(at); {
	case lines <= 0:
	case b.def.Refill == 0:
		return 0
	default:
		b.next = max(b.next, saturate.Mul(lines, b.def.Refill))
	}
	return max(b.top-b.next, 0)
}

// tag says from which block, and on which line, a permit was given out.
func (b *block) tag(at time.Time) int64 { return b.serial<<20 | b.lines(at)&(1<<20-1) }

// noTag is of what cannot be put back.
const noTag = 0

func (l *loan) none() bool { return len(l.blocks) == 0 }

// left forgets the blocks of which nothing is left, and returns what the others have. The
// newest is kept until its line is over, because something may be put back into it.
func (ce *cell) left(now time.Time) (sum int64) {
	l := &ce.loan
	kept := l.blocks[:0]
	for i, b := range l.blocks {
		n := b.left(now)
		switch sum += n; {
		case n > 0 || i == len(l.blocks)-1 && b.lines(now) <= 0:
			kept = append(kept, b)
		case b.def.Kind == backend.KindSlidingWindow && b.top > b.next:
			// It must not be used later than it was taken, but it would count on.
			ce.c.giveLoanBack(ce.key, b.def, b.top-b.next, backend.Receipt{Tick: b.line, Missing: b.top})
		}
	}
	l.blocks = kept
	return sum
}

// lend gives out n permits of what was borrowed.
func (ce *cell) lend(n int, now time.Time) (limiter.Lease, bool) {
	l := &ce.loan
	if l.none() || ce.left(now) < weight(n) {
		return limiter.Lease{}, false
	}
	if n == 0 {
		return limiter.Granted(0, nil), true
	}
	rest := int64(n)
	for i := range l.blocks {
		b := &l.blocks[i]
		some := min(rest, b.top-b.next)
		b.next += some
		if rest -= some; rest == 0 {
			return l.by.Grant(n, b.tag(now)), true
		}
	}
	return limiter.Lease{}, false // not reached: as many are left
}

// lentBy owns the leases of what a cell has lent.
type lentBy cell

// Release does nothing: the permits are spent.
func (o *lentBy) Release(int, int64) {}

// Remaining is what the store had when it was last asked, and what is left of the loan.
func (o *lentBy) Remaining(int, int64) (int64, bool) {
	ce := (*cell)(o)
	ce.mu.Lock()
	defer ce.mu.Unlock()
	if ce.last.def == nil {
		return 0, false
	}
	return max(ce.last.left(), 0) + ce.left(time.Now()), true
}

// Refund puts permits back into the block, if it is there and no line has gone by since: a
// permit that was taken after them has to keep a place that was unpaid when it was given out.
func (o *lentBy) Refund(n int, tag int64) {
	ce := (*cell)(o)
	ce.c.granted.Add(-1)
	if back := ce.putBack(int64(n), tag); back < int64(n) {
		ce.c.s.report(Event{Kind: EventRefundLost, Limiter: ce.c.name, Key: ce.key, Permits: int64(n) - back, Err: errReturned})
	}
}

// Adjust puts back what was too much, and takes what was too little in the store.
func (o *lentBy) Adjust(n int, tag int64, cost int) (int64, bool) {
	ce := (*cell)(o)
	if cost <= n {
		ce.putBack(int64(n-cost), tag)
		return tag, true
	}
	q := ce.c.newCall(ce.key, []backend.Request{{Op: backend.OpCharge, Max: int64(cost - n)}})
	q.then = func() {}
	ce.c.sendOrFail(q)
	return noTag, true // not all of it was of the block
}

// putBack returns how many could be put back, and lets those have them who wait.
func (ce *cell) putBack(n, tag int64) (back int64) {
	ce.mu.Lock()
	defer ce.mu.Unlock()
	now := time.Now()
	for i := range ce.loan.blocks {
		b := &ce.loan.blocks[i]
		if b.tag(now) == tag {
			back = min(n, b.next-b.low)
			b.next -= back
		}
	}
	if back > 0 {
		ce.c.s.lent.add(ce)
		ce.reject = rejection{}
		ce.wake()
	}
	return back
}
