package store

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// A blockList is what an instance has taken of one key to give it out itself. It is guarded by
// its cell's lock. The zero loan is empty.
//
// Of a token bucket, permits have places: the first permit ever taken is at place 1, and
// each line pays for as many places as it brings tokens, the lowest first. A borrowed
// permit may be given out as long as its place is unpaid, because until then it counts as
// missing in the store. All places are different, so in no time are more given out than the
// bucket allows, by however many instances; and what lies unused vanishes as fast as it
// comes back to the others. Of a window, what was borrowed counts until the next line.
type blockList struct {
	blocks    []block     // the oldest first; seldom more than one
	nextSize  int64       // how many to borrow next time
	fetchedAt time.Time   // of the last borrowing
	fetching  *blockFetch // one that is under way
	serial    int64
	granter   *limiter.Granter
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

// noBlock is of what cannot be put back.
const noBlock = 0

func (l *blockList) empty() bool { return len(l.blocks) == 0 }

// blockPermits forgets the blocks of which nothing is left, and returns what the others have. The
// newest is kept until its line is over, because something may be put back into it.
func (ks *keyState) blockPermits(now time.Time) (sum int64) {
	l := &ks.blocks
	kept := l.blocks[:0]
	for i, b := range l.blocks {
		n := b.left(now)
		switch sum += n; {
		case n > 0 || i == len(l.blocks)-1 && b.lines(now) <= 0:
			kept = append(kept, b)
		case b.def.Kind == backend.KindSlidingWindow && b.top > b.next:
			// It must not be used later than it was taken, but it would count on.
			ks.c.returnBlock(ks.key, b.def, b.top-b.next, backend.Receipt{Tick: b.line, Missing: b.top})
		}
	}
	l.blocks = kept
	return sum
}

// grantFromBlocks gives out n permits of what was borrowed.
func (ks *keyState) grantFromBlocks(n int, now time.Time) (limiter.Lease, bool) {
	l := &ks.blocks
	if l.empty() || ks.blockPermits(now) < weight(n) {
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
			return l.granter.Grant(n, b.tag(now)), true
		}
	}
	return limiter.Lease{}, false // not reached: as many are left
}

// blockOwner owns the leases of what a cell has lent.
type blockOwner keyState

// Release does nothing: the permits are spent.
func (o *blockOwner) Release(int, int64) {}

// Remaining is what the store had when it was last asked, and what is left of the loan.
func (o *blockOwner) Remaining(int, int64) (int64, bool) {
	ks := (*keyState)(o)
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.lastAnswer.def == nil {
		return 0, false
	}
	return max(ks.lastAnswer.left(), 0) + ks.blockPermits(time.Now()), true
}

// Refund puts permits back into the block, if it is there and no line has gone by since: a
// permit that was taken after them has to keep a place that was unpaid when it was given out.
func (o *blockOwner) Refund(n int, tag int64) {
	ks := (*keyState)(o)
	ks.c.granted.Add(-1)
	if back := ks.putBack(int64(n), tag); back < int64(n) {
		ks.c.s.report(Event{Kind: EventRefundLost, Limiter: ks.c.name, Key: ks.key, Permits: int64(n) - back, Err: errBlockGone})
	}
}

// Adjust puts back what was too much, and takes what was too little in the store.
func (o *blockOwner) Adjust(n int, tag int64, cost int) (int64, bool) {
	ks := (*keyState)(o)
	if cost <= n {
		ks.putBack(int64(n-cost), tag)
		return tag, true
	}
	q := ks.c.newCall(ks.key, []backend.Request{{Op: backend.OpCharge, Max: int64(cost - n)}})
	q.onAnswer = func() {}
	ks.c.sendBackground(q)
	return noBlock, true // not all of it was of the block
}

// putBack returns how many could be put back, and lets those have them who wait.
func (ks *keyState) putBack(n, tag int64) (back int64) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	now := time.Now()
	for i := range ks.blocks.blocks {
		b := &ks.blocks.blocks[i]
		if b.tag(now) == tag {
			back = min(n, b.next-b.low)
			b.next -= back
		}
	}
	if back > 0 {
		ks.c.s.returner.add(ks)
		ks.rejection = rememberedRejection{}
		ks.wake()
	}
	return back
}
