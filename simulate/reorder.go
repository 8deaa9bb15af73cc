package simulate

import (
	"container/heap"
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
	held   entryHeap
	latest entry // with the latest time
	last   entry // that was taken
	taken  bool  // whether last is set
	some   bool  // whether latest is set
}

// add adds an entry. It reports false if the entry comes too late.
func (r *reorder) add(e entry) bool {
	if r.some && e.at < saturate.Add(r.latest.at, -int64(r.window)) || r.taken && e.at < r.last.at {
		return false
	}
	if !r.some || e.at > r.latest.at {
		r.latest, r.some = e, true
	}
	heap.Push(&r.held, e)
	return true
}

// take removes the first entry, if no earlier one can come or all is true.
func (r *reorder) take(all bool) (entry, bool) {
	if len(r.held) == 0 {
		return entry{}, false
	}
	ready := r.held[0].at <= saturate.Add(r.latest.at, -int64(r.window)) || len(r.held) > maxHeld
	if !all && !ready {
		return entry{}, false
	}
	r.last, r.taken = heap.Pop(&r.held).(entry), true
	return r.last, true
}

// An entryHeap has the earliest entry first, and of several with one time the first line.
type entryHeap []entry

func (h entryHeap) Len() int { return len(h) }
func (h entryHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].line < h[j].line
}
func (h entryHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *entryHeap) Push(e any)   { *h = append(*h, e.(entry)) }
func (h *entryHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = entry{}
	*h = (*h)[:last]
	return e
}
