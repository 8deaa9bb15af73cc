package budget

import (
	"sync/atomic"
	"time"
)

// slot is the length of a slot of time. It does not depend on the window, so that Reconfigure can change the window and
// keep what was counted.
const slot = time.Second / 4

// ahead is a number of slots that is added so that slot numbers are above 0, also of a budget that was made outside the
// testing/synctest bubble in which it is used, where the clock begins in the year 2000.
const ahead = 1 << 33 * slot

// remembered is the number of slots of a ring: a little more than a LongestWindow has.
const remembered = 256

// countBits is the number of bits of a slot's word that are its count: more than can be counted in a quarter of a
// second. The other bits are the number of the slot, enough for another 68 years.
const countBits = 30

// A ring counts by slots of time, without a lock. A word holds the number of a slot and its count, so that one
// compare-and-swap both begins a slot and drops the old count. The zero ring has counted nothing.
type ring [remembered]atomic.Uint64

// add counts one in the slot now.
func (r *ring) add(now uint64) {
	word := &r[now%remembered]
	for {
		old := word.Load()
		if old>>countBits >= now { // above now if this goroutine was delayed: it counts in the later slot
			word.Add(1)
			return
		}
		if word.CompareAndSwap(old, now<<countBits|1) {
			return
		}
	}
}

// takeBack counts one less in the oldest of the last n slots that has a count. No other goroutine may change the ring
// meanwhile.
func (r *ring) takeBack(now, n uint64) {
	for i := n; i > 0; i-- {
		at := now - (i - 1)
		word := &r[at%remembered]
		if old := word.Load(); old>>countBits == at && old&(1<<countBits-1) > 0 {
			word.Store(old - 1)
			return
		}
	}
}

// sum returns what was counted in the last n slots, of which now is the last.
func (r *ring) sum(now, n uint64) (sum uint64) {
	for i := range n {
		at := now - i
		if word := r[at%remembered].Load(); word>>countBits == at {
			sum += word & (1<<countBits - 1)
		}
	}
	return sum
}
