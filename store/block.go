package store

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// A blockList has the permits of one key that this instance has borrowed from the store to grant by itself. The lock of
// its keyState guards it. The zero value is empty.
//
// The permits of a token bucket have positions in the order in which they were taken. Each line restores Refill positions,
// the lowest first. The rule: a borrowed permit can be granted until its position is restored. Until then it is missing
// in the store, so all instances together never grant more than the bucket allows. The borrowed permits of a window can
// be granted until the next line.
type blockList struct {
	blocks    []block     // the oldest first; usually one at most
	nextSize  int64       // how many permits to borrow next
	fetchedAt time.Time   // when the last fetch began
	fetching  *blockFetch // the fetch that is under way, or nil
	serial    int64
}

// A block has the positions from next+1 to top, as they are numbered on the line on which it was taken.
type block struct {
	serial  int64
	def     *backend.Definition
	receipt rate.Receipt
	low     int64     // what next was when the block was borrowed
	next    int64     // positions up to this one are granted or restored
	top     int64     // the last position
	now     int64     // the store's time when it was borrowed
	sent    time.Time // when the block was asked for, before the store decided
}

// lines returns how many lines have passed since the block was taken, by the latest time that the store's clock can show.
func (b *block) lines(at time.Time) int64 {
	return b.def.LineAt(b.now+at.Sub(b.sent).Microseconds()+1) - b.receipt.Line
}

// dropRestored skips the positions that are restored and returns how many permits of the block can be granted.
func (b *block) dropRestored(at time.Time) int64 {
	switch lines := b.lines(at); {
	case lines <= 0:
	case b.def.Refill == 0:
		return 0
	default:
		b.next = max(b.next, saturate.Mul(lines, b.def.Refill))
	}
	return max(b.top-b.next, 0)
}

// tag identifies the block and the line of a grant.
func (b *block) tag(at time.Time) int64 { return b.serial<<20 | b.lines(at)&(1<<20-1) }

// noBlock is the tag of a grant that cannot be put back.
const noBlock = 0

func (l *blockList) empty() bool { return l == nil || len(l.blocks) == 0 }

// dropUsedBlocks drops used-up blocks and returns how many permits the others have. It keeps the newest block until its
// line is over, because permits can be put back into it.
func (ks *keyState) dropUsedBlocks(now time.Time) (sum int64) {
	l := ks.blocks
	if l.empty() {
		return 0
	}
	kept := l.blocks[:0]
	for i, b := range l.blocks {
		n := b.dropRestored(now)
		switch sum += n; {
		case n > 0 || i == len(l.blocks)-1 && b.lines(now) <= 0:
			kept = append(kept, b)
		case b.def.Segments > 0 && b.top > b.next:
			// The rest must not be granted after its line, but would count as taken in the store until the window has passed.
			ks.c.giveBack(backend.OpReturnBlock, ks.key, b.def, b.top-b.next, b.receipt)
		}
	}
	l.blocks = kept
	return sum
}

// grantFromBlocks grants n permits, or returns false if the blocks have fewer.
func (ks *keyState) grantFromBlocks(n int, now time.Time) (limiter.Lease, bool) {
	l := ks.blocks
	if l.empty() || ks.dropUsedBlocks(now) < weight(n) {
		return limiter.Lease{}, false
	}
	if n == 0 {
		return custom.Granted(0, nil), true
	}
	rest := int64(n)
	for i := range l.blocks {
		b := &l.blocks[i]
		part := min(rest, b.top-b.next)
		b.next += part
		if rest -= part; rest == 0 {
			return custom.GrantedBy((*blockOwner)(ks), n, b.tag(now)), true
		}
	}
	return limiter.Lease{}, false // unreachable: dropUsedBlocks has counted them
}

// blockOwner owns the leases of permits granted from blocks.
type blockOwner keyState

// Release does nothing: the permits are spent.
func (o *blockOwner) Release(int, int64) {}

// Remaining returns what the store had left at its last answer, and what the blocks have left.
func (o *blockOwner) Remaining(int, int64) (int64, bool) {
	ks := (*keyState)(o)
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.lastAnswer.def == nil {
		return 0, false
	}
	return max(ks.lastAnswer.free(), 0) + ks.dropUsedBlocks(time.Now()), true
}

// Level is that of the store at its last answer, with what the blocks have left.
func (o *blockOwner) Level(int, int64) (limiter.Level, bool) {
	ks := (*keyState)(o)
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.lastAnswer.def == nil {
		return limiter.Level{}, false
	}
	now := time.Now()
	return limiter.Level{Remaining: ks.lastAnswer.free() + ks.dropUsedBlocks(now), Full: ks.lastAnswer.untilFull(now)}, true
}

// Refund puts permits back into their block if the block exists and no line has passed since the grant. It lowers next, so
// the block's highest positions are granted again, and the grants that follow the refunded one count as having its
// positions. If a line had passed, it could have restored these positions before the later grants were made, which would
// break blockList's rule.
func (o *blockOwner) Refund(n int, tag int64) {
	ks := (*keyState)(o)
	ks.c.count.granted.Add(-1)
	if back := ks.putBack(int64(n), tag); back < int64(n) {
		ks.c.s.report(Event{Kind: EventRefundLost, Limiter: ks.c.name, Key: ks.key, Permits: int64(n) - back, Err: errBlockGone})
	}
}

// Adjust puts back the permits that cost does not need, and charges in the store what cost needs beyond the grant.
func (o *blockOwner) Adjust(n int, tag int64, cost int) (int64, bool) {
	ks := (*keyState)(o)
	if cost <= n {
		ks.putBack(int64(n-cost), tag)
		return tag, true
	}
	ks.c.takeMore(ks.key, int64(cost-n), func(*calls.Call) {})
	return noBlock, true // a part of it is not from the block
}

// putBack returns how many permits could be put back, and wakes waiting callers.
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
