package timeout

import "sync/atomic"

// A habit predicts whether an execution will ask its context for Done, from
// whether those before it did. A context that waits to be asked is far cheaper
// if it never is, and dearer than the standard library's if it is; most
// callbacks always ask, or never do.
//
// After an execution that asked, the next ones get a context that is armed from
// the start: one, then two, up to 64 as long as every test in between asked, too.
type habit struct {
	left atomic.Int32 // so many executions before the next test
	run  atomic.Int32 // so many there were after the last one
}

const longestRun = 64

// armed tells whether the next execution's context is to be armed from the start.
func (h *habit) armed() bool { return h.left.Load() > 0 && h.left.Add(-1) >= 0 }

// learn is told how it went with one that was not.
func (h *habit) learn(asked bool) {
	if !asked {
		if h.run.Load() != 0 {
			h.run.Store(0)
		}
		return
	}
	run := min(max(2*h.run.Load(), 1), longestRun)
	h.run.Store(run)
	h.left.Store(run)
}
