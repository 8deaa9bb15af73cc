package limiter

import (
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// hookPatience is how long housekeeping waits for one function of the program's before it goes on without it.
const hookPatience = 100 * time.Millisecond

// runHooks calls f, which calls a function of the program's, for each i from 0 to n-1, one after the other on
// a goroutine of its own. A call that panics is reported, one that ends its goroutine ends nothing else, and one
// that has not returned after hookPatience is left behind: it goes on by itself, and runHooks with the next.
// The result is for how long runHooks has waited for slow calls, in nanoseconds.
func runHooks(hook string, n int, f func(i int)) (lost int64) {
	if n == 0 {
		return 0
	}
	var next atomic.Int64
	patience := time.NewTimer(hookPatience)
	defer patience.Stop()
	for begun := int64(0); begun < int64(n); begun = next.Load() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				recovered.Call(hook, func() { f(int(i)) })
			}
		}()
		for waiting := true; waiting; {
			before := next.Load()
			patience.Reset(hookPatience)
			select {
			case <-done:
				waiting = false
			case <-patience.C:
				lost += int64(hookPatience)
				waiting = next.Load() != before
			}
		}
	}
	return lost
}
