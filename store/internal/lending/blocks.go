// Package lending has the arithmetic of permits that an instance borrows from the store, to grant them without a call.
package lending

import (
	"slices"
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// Blocks are the borrowed permits of one key. The zero value has none.
//
// The permits of a token bucket have positions in the order in which they were taken. Each line restores Refill positions,
// the lowest first. The rule: a borrowed permit can be granted until its position is restored. Until then it is missing
// in the store, so all instances together never grant more than the bucket allows. The borrowed permits of a window can
// be granted until the next line.
type Blocks struct {
	all    []block // the oldest first; usually one at most
	serial int64
	size   int64     // how many permits to borrow next
	asked  time.Time // when more permits were last needed than the blocks had
	// borrowed is when the newest block was asked for.
	borrowed time.Time
}

const (
	// Lifetime is how long borrowed permits can be granted. A block is sized to be used up earlier.
	Lifetime = time.Second
	// smallest is the size of the smallest block that is worth borrowing: each use saves a call, and the rest can cost one.
	smallest = 4
)

// A block has the positions from next+1 to top, as they are numbered on the line on which it was taken.
type block struct {
	Unused
	serial int64
	low    int64     // what next was when the block was borrowed
	next   int64     // positions up to this one are granted or restored
	top    int64     // the last position
	now    int64     // the store's time when it was borrowed, or a later one
	sent   time.Time // when the store was asked for it, before the store decided
}

// Unused are permits to give back.
type Unused struct {
	Definition *backend.Definition
	Receipt    rate.Receipt
	Permits    int64
}

// NextSize returns how many permits to borrow now, at most so many, because more are needed than there are. The size doubles if
// that was last so within half of Lifetime, so that at the same rate the next block is used up, too. It is halved if it was longer
// ago than Lifetime: then the block was not used up. 0 means that the key is asked for too seldom for a block. Without a block, the
// size doubles within a tenth of Lifetime only, and is halved after that: a key that is asked for once a second has two close
// questions now and then.
func (l *Blocks) NextSize(most int64, now time.Time) int64 {
	switch since := now.Sub(l.asked); {
	case since < Lifetime/10, l.size >= smallest && since < Lifetime/2:
		l.size *= 2
	case since > Lifetime || l.size < smallest:
		l.size /= 2
	}
	l.size, l.asked = max(min(l.size, most), 1), now
	if l.size < smallest {
		return 0
	}
	return l.size
}

// Add adds the granted permits of an answer of the store, with its clock at now. missing is how many permits are missing after the
// grant, and sent when the request was sent.
func (l *Blocks) Add(d *backend.Definition, r rate.Receipt, granted, missing, now int64, sent time.Time) {
	l.serial++
	next := missing - granted
	l.all = append(l.all, block{
		Unused: Unused{Definition: d, Receipt: r}, serial: l.serial, low: next, next: next, top: missing, now: now, sent: sent,
	})
	l.borrowed = sent
}

// NoneUsable is called if all permits of a block were restored before it came: the store is too far away for blocks of that size.
func (l *Blocks) NoneUsable() { l.size = 0 }

// SeeClock is called with the store's time in any answer, and with the moment when its request was sent. If it is later than a
// block knows, the clock has stepped forward, and what lines have restored meanwhile cannot be granted any more.
func (l *Blocks) SeeClock(now int64, sent time.Time) {
	for i := range l.all {
		if b := &l.all[i]; now >= b.latest(sent) {
			b.now, b.sent = now, sent
		}
	}
}

// latest returns the latest time that the store's clock can show.
func (b *block) latest(at time.Time) int64 { return b.now + at.Sub(b.sent).Microseconds() + 1 }

// lines returns how many lines can have passed since the block was taken.
func (b *block) lines(at time.Time) int64 { return b.Definition.LineAt(b.latest(at)) - b.Receipt.Line }

// left skips the positions that are restored and returns how many permits of the block can be granted.
func (b *block) left(at time.Time) int64 {
	switch lines := b.lines(at); {
	case lines <= 0:
	case b.Definition.Refill == 0:
		return 0
	default:
		b.next = max(b.next, saturate.Mul(lines, b.Definition.Refill))
	}
	return max(b.top-b.next, 0)
}

// tag identifies the block and the line of a grant.
func (b *block) tag(at time.Time) int64 { return b.serial<<20 | b.lines(at)&(1<<20-1) }

// NoBlock is the tag of a grant that cannot be put back.
const NoBlock = 0

// Empty reports whether there is no block, not even a used one.
func (l *Blocks) Empty() bool { return len(l.all) == 0 }

// Left returns how many permits can be granted.
func (l *Blocks) Left(at time.Time) (sum int64) {
	for i := range l.all {
		sum += l.all[i].left(at)
	}
	return sum
}

// Take takes n permits, or returns false if there are fewer. If n is 0, it reports whether there is one. The tag is for PutBack.
func (l *Blocks) Take(n int64, at time.Time) (tag int64, ok bool) {
	if l.Left(at) < max(n, 1) {
		return NoBlock, false
	}
	for i := range l.all {
		b := &l.all[i]
		part := min(n, b.left(at))
		b.next += part
		if n -= part; n == 0 {
			return b.tag(at), true
		}
	}
	return NoBlock, false // unreachable: Left has counted them
}

// PutBack puts up to n permits of a grant back into their block, and returns how many. It does so if the block exists and no line
// has passed since the grant. The block's highest positions are then granted again, and the grants that follow the one that is
// put back count as having its positions. If a line had passed, it could have restored these positions before the later grants
// were made, which would break the rule of Blocks.
func (l *Blocks) PutBack(n, tag int64, at time.Time) (back int64) {
	for i := range l.all {
		if b := &l.all[i]; b.tag(at) == tag {
			back = min(n, b.next-b.low)
			b.next -= back
		}
	}
	return back
}

// Trim drops blocks that are used up, but the newest only when its line is over, because permits can be put back into it. It
// returns what must be given back at once: the permits of a sliding window that cannot be granted any more, but count as taken
// until the window has passed.
func (l *Blocks) Trim(at time.Time) (back []Unused) {
	l.all = slices.DeleteFunc(l.all, func(b block) bool {
		if b.left(at) > 0 || b.serial == l.serial && b.lines(at) <= 0 {
			return false
		}
		if b.Definition.Segments > 0 && b.top > b.next {
			b.Permits = b.top - b.next
			back = append(back, b.Unused)
		}
		return true
	})
	return back
}

// Drop drops all blocks, and returns what is unused, the newest first: only so does a bucket take all of it back.
func (l *Blocks) Drop(at time.Time) (back []Unused) {
	back = l.Trim(at)
	for _, b := range slices.Backward(l.all) {
		if b.Permits = b.left(at); b.Permits > 0 {
			back = append(back, b.Unused)
		}
	}
	l.all = nil
	return back
}

// Expires returns for how long the permits that were borrowed last can be granted.
func (l *Blocks) Expires(now time.Time) time.Duration { return Lifetime - now.Sub(l.borrowed) }
