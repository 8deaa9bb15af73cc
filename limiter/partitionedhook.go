package limiter

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

const (
	// hookTimeout is how long housekeeping waits for one function of the program before it goes on without it.
	hookTimeout = 100 * time.Millisecond
	// hookShortTimeout replaces hookTimeout for hookSlowFor after a call has been overdue. Otherwise a thousand limiters
	// that wait for one dead server would hold up the housekeeping of all others for a hundred seconds.
	hookShortTimeout = time.Millisecond
	hookSlowFor      = 10 * time.Second
	// hookLogEvery is the shortest time between two lines in the log about one hook.
	hookLogEvery = 10 * time.Second
	// closesAtMost bounds the goroutines in a Close that does not return. With that many, no partition with a custom
	// limiter is forgotten, so MaxPartitions bounds what a flood of keys can leave behind.
	closesAtMost = 1000
)

// A hook is a method of custom limiters that housekeeping calls, with what is known of its calls in all partitions of a
// PartitionedLimiter.
type hook struct {
	name     string       // in the log
	running  atomic.Int64 // calls that have not returned
	slow     atomic.Int64 // the moment at which a call was last found to be overdue
	panicLog atomic.Int64 // the moment of the last line about a panic
	slowLog  atomic.Int64 // the moment of the last line about a call that is overdue
	logging  atomic.Bool  // a line is being written; a log handler can block, too
}

func (h *hook) init(name string) {
	h.name = name
	for _, last := range []*atomic.Int64{&h.slow, &h.panicLog, &h.slowLog} {
		last.Store(unknown)
	}
}

// run calls f, which calls the hook, for each i from 0 to n-1 on another goroutine. If a call panics, that is logged.
// If a call ends its goroutine, is overdue or panics, run continues with the next one; an overdue call goes on by
// itself. run returns how many nanoseconds it has waited for slow calls.
func (h *hook) run(n int, f func(i int)) (lost int64) {
	if n == 0 {
		return 0
	}
	var begun atomic.Int64 // calls
	timeout := hookTimeout
	if recently(&h.slow, hookSlowFor) {
		timeout = hookShortTimeout
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for first := int64(0); first < int64(n); first = begun.Load() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := begun.Add(1) - 1; i < int64(n); i = begun.Add(1) - 1 {
				h.call(func() { f(int(i)) })
			}
		}()
		seen := first + 1 // calls begun when the timer was last looked at
		for waiting := true; waiting; {
			timer.Reset(timeout)
			select {
			case <-done:
				waiting = false
			case <-timer.C:
				lost += int64(timeout)
				current := begun.Load()
				waiting = current != seen || current == first // the goroutine may still be about to run
				seen = current
				if !waiting && timeout == hookTimeout {
					h.overdue()
					timeout = hookShortTimeout
				}
			}
		}
	}
	return lost
}

// call calls f. If f panics, call recovers and logs it.
func (h *hook) call(f func()) {
	h.running.Add(1)
	defer h.running.Add(-1)
	defer func() {
		if p := recover(); p != nil {
			h.log(&h.panicLog, func() { recovered.Report(h.name, p, debug.Stack()) })
		}
	}()
	f()
}

// overdue notes that a call has not returned.
func (h *hook) overdue() {
	h.slow.Store(moment())
	go h.log(&h.slowLog, func() { recovered.Overdue(h.name, hookTimeout) })
}

// log calls write, unless a line was written less than hookLogEvery before, or one is being written.
func (h *hook) log(last *atomic.Int64, write func()) {
	if !h.logging.CompareAndSwap(false, true) {
		return
	}
	defer h.logging.Store(false)
	if !recently(last, hookLogEvery) {
		last.Store(moment())
		write()
	}
}

// recently reports whether the moment in last is less than d ago. A moment of another clock, such as that of a
// testing/synctest bubble, never is.
func recently(last *atomic.Int64, d time.Duration) bool {
	then, now := last.Load(), moment()
	return inBubble(then) == inBubble(now) && then <= now && now-then < int64(d)
}
