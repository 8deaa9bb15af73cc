package simulate

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// maxHeld is how many lines are held back to bring them into their order.
const maxHeld = 1 << 20

// An entry is a line of a recording that was read.
type entry struct {
	at   int64 // nanoseconds
	line int64
	key  string
	cost int
}

// A reorder brings lines into the order of their times. It holds back the lines of a window of time.
type reorder struct {
	window time.Duration
	held   minHeap[entry]
	latest entry // with the latest time
	last   entry // that was taken
	taken  bool  // whether last is set
	some   bool  // whether latest is set
}

// beforeEntry reports which of two entries comes first: the earlier one, and of two with one time that of the first line.
func beforeEntry(e, f *entry) bool { return e.at < f.at || e.at == f.at && e.line < f.line }

func newReorder(window time.Duration) *reorder {
	return &reorder{window: window, held: minHeap[entry]{before: beforeEntry}}
}

// add adds an entry. It reports false if the entry comes too late.
func (r *reorder) add(e entry) bool {
	if r.some && e.at < saturate.Add(r.latest.at, -int64(r.window)) || r.taken && e.at < r.last.at {
		return false
	}
	if !r.some || e.at > r.latest.at {
		r.latest, r.some = e, true
	}
	r.held.push(e)
	return true
}

// take removes the first entry, if no earlier one can come or all is true.
func (r *reorder) take(all bool) (entry, bool) {
	if len(r.held.items) == 0 {
		return entry{}, false
	}
	ready := r.held.items[0].at <= saturate.Add(r.latest.at, -int64(r.window)) || len(r.held.items) > maxHeld
	if !all && !ready {
		return entry{}, false
	}
	r.last, r.taken = r.held.pop(), true
	return r.last, true
}
