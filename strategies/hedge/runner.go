package hedge

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/recovered"
)

// A runner is one attempt of a race.
type runner struct {
	race    *race
	ctx     context.Context
	cancel  context.CancelCauseFunc
	began   time.Duration // only if somebody listens
	fate    atomic.Uint32
	lost    bool    // the race's: its fate is fateAbandoned
	outcome outcome // the attempt's alone until its fate is fateEnded
}

// The fates of an attempt. It is running until either it ends or it is abandoned,
// whichever comes first: that decides who looks after its outcome.
const (
	fateRunning uint32 = iota
	fateEnded
	fateAbandoned
)

// run is the attempt's goroutine.
func (a *runner) run() {
	defer a.end()
	a.outcome.gone = true // stays if it does not return
	a.outcome.result, a.outcome.err = a.race.next.Run(a.ctx)
	a.outcome.gone = false
}

// end hands the outcome on. It is deferred, and recovers.
func (a *runner) end() {
	o := &a.outcome
	if o.gone {
		if v := recover(); v != nil {
			o.gone, o.panicky = false, &PanicError{Value: v, Stack: debug.Stack()}
		}
	}
	if a.race.listening {
		o.took = clock.Now() - a.began
	}
	a.cancel(nil)
	if a.fate.CompareAndSwap(fateRunning, fateEnded) {
		a.race.done <- o.number
		return
	}
	a.disposeAlone()
}

// disposeAlone disposes of an outcome that came after the execution had ended. There is no caller any more
// to whom a panic could go on: that of the attempt goes to Dispose, or to the log where there is none, and
// that of Dispose to the log.
func (a *runner) disposeAlone() {
	o, dispose := &a.outcome, a.race.options.Dispose
	if dispose == nil && o.panicky != nil {
		recovered.Report("hedge: an attempt that lost", o.panicky.Value, o.panicky.Stack)
		return
	}
	recovered.Call("hedge: Dispose", func() { o.dispose(dispose) })
}
