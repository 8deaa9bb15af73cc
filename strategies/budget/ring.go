package budget

import (
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
)

// slot is how finely time is divided. It does not depend on the window, so that
// that can change while what was counted stays.
const slot = time.Second / 4

// slotNow returns the number of the present slot.
func slotNow() uint64 { return uint64((clock.Now() + ahead) / slot) }

// ahead keeps the numbers above 0: in a bubble of testing/synctest it is the year
// 2000, long before the process started. A fixed number of slots.
const ahead = 1 << 33 * slot

// remembered is how many slots a ring has: a little more than LongestWindow.
const remembered = 256

// countBits is how many bits of a slot's word are its count: more than can be
// counted in its time. The rest is its number, enough for another 68 years.
const countBits = 30

// A ring counts by slots of time, without a lock. A word is the number of a slot
// and its count in one, so that it changes hands in one step. The zero ring has
// counted nothing.
type ring [remembered]atomic.Uint64

func (r *ring) add(now uint64) {
	word := &r[now%remembered]
	for {
		old := word.Load()
		if old>>countBits >= now { // later: we were held up, and count where we are
			word.Add(1)
			return
		}
		if word.CompareAndSwap(old, now<<countBits|1) {
			return
		}
	}
}

// takeBack counts one less in the oldest of the last n slots that has counted. No
// other goroutine may change the ring meanwhile.
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

// sum returns what was counted in the last n slots, the present one included.
func (r *ring) sum(now, n uint64) (sum uint64) {
	for i := range n {
		at := now - i
		if word := r[at%remembered].Load(); word>>countBits == at {
			sum += word & (1<<countBits - 1)
		}
	}
	return sum
}
