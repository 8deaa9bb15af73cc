package hedge

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/recovered"
)

// A runner is one attempt of a race, in a goroutine of its own.
type runner struct {
	race    *race
	ctx     context.Context
	cancel  context.CancelCauseFunc
	began   time.Duration // only if there is a listener
	state   atomic.Uint32
	lost    bool    // state is stateAbandoned; only the race's goroutine uses it
	outcome outcome // the runner's until state is stateEnded, then the race's
}

// The states of a runner. Exactly one of two steps leaves stateRunning: the end of the attempt or the end of the race.
// In stateEnded the race disposes of the outcome, in stateAbandoned the runner does.
const (
	stateRunning uint32 = iota
	stateEnded
	stateAbandoned
)

// run makes the attempt.
func (a *runner) run() {
	defer a.end()
	a.outcome.exited = true // stays if the attempt panics or calls Goexit
	a.outcome.result, a.outcome.err = a.race.next.Run(a.ctx)
	a.outcome.exited = false
}

// end hands the outcome to the race. It is deferred, and recovers a panic of the attempt.
func (a *runner) end() {
	o := &a.outcome
	if o.exited {
		if v := recover(); v != nil {
			o.exited, o.panicked = false, &PanicError{Value: v, Stack: debug.Stack()}
		}
	}
	if a.race.listening {
		o.took = clock.Now() - a.began
	}
	a.cancel(nil)
	if a.state.CompareAndSwap(stateRunning, stateEnded) {
		a.race.done <- o.number
		return
	}
	a.disposeAbandoned()
}

// disposeAbandoned disposes of an outcome that came after the execution had ended. There is no caller to whom a panic
// could go on. So a panic of the attempt goes to Dispose, or to the log if Dispose is nil, and a panic of Dispose goes
// to the log.
func (a *runner) disposeAbandoned() {
	o, dispose := &a.outcome, a.race.options.Dispose
	if dispose == nil && o.panicked != nil {
		recovered.Report("hedge: an attempt that lost", o.panicked.Value, o.panicked.Stack)
		return
	}
	recovered.Call("hedge: Dispose", func() { o.dispose(dispose) })
}
