package hedge

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// A race is an execution with several attempts at a time. Each attempt has a goroutine; everything else happens in the
// caller's, which waits until an attempt ends or the next one is to start.
//
// A race is not pooled, although its channel and its timer could be used again: what was made in a testing/synctest
// bubble must not be used outside it.
type race struct {
	execution
	done    chan int                // the number of each attempt that has ended; buffered for all, so that no runner waits
	timer   *time.Timer             // for the next attempt; nil until it is needed
	runners [MostHedges + 1]*runner // by number; nil if the attempt has not started or its outcome was received
	primary runner                  // of the first attempt, here to save an allocation
	running int                     // the number of attempts whose outcome was not received
}

func newRace(ctx context.Context, next pipeline.Next, o *Options) *race {
	r := &race{execution: newExecution(ctx, next, o)}
	r.done = make(chan int, r.max)
	return r
}

// run makes the attempts and returns the outcome that decides.
func (r *race) run() (any, error) {
	defer r.finish() // also if a function of the options panics
	r.startNext()
	for {
		o, ended := r.await()
		switch {
		case !ended:
			if r.mayHedge() {
				r.startNext()
			}
		case !o.returned() || !r.isHandled(&o):
			r.abandon()
			r.win(&o)
			return o.deliver()
		case r.afterHandled(o, r.running):
			r.startNext()
		case r.running == 0:
			return r.outcomeOfFirst()
		}
	}
}

// mayHedge announces an attempt because the running ones take long, and reports whether it starts.
func (r *race) mayHedge() bool { return r.announce(r.acquire(), &outcome{}) }

// startNext starts an attempt, and sets the timer for the one after it. If the delay is 0, that one starts, too.
func (r *race) startNext() {
	for {
		r.start()
		if r.started >= r.max {
			r.setTimer(-1)
			return
		}
		delay := r.options.delay(r.ctx, r.started-1)
		if delay != 0 || !r.mayHedge() {
			r.setTimer(delay)
			return
		}
	}
}

// setTimer sets the timer for the next attempt, or stops it if d is 0 or less.
func (r *race) setTimer(d time.Duration) {
	switch {
	case d > 0 && r.timer == nil:
		r.timer = time.NewTimer(d)
	case d > 0:
		r.timer.Reset(d)
	case r.timer != nil:
		r.timer.Stop()
	}
}

// start starts an attempt.
func (r *race) start() {
	a := &r.primary
	if r.started > 0 {
		a = new(runner)
	}
	a.race, a.outcome.number = r, r.started
	a.ctx, a.cancel = context.WithCancelCause(withNumber(r.ctx, r.started))
	if r.timed {
		a.began = clock.Now()
	}
	r.runners[r.started] = a
	r.started++
	r.reserved = false
	r.running++
	go a.run()
}

// await returns the outcome of the next attempt that ends. ended is false if the timer fires first.
func (r *race) await() (o outcome, ended bool) {
	var timer <-chan time.Time
	if r.timer != nil {
		timer = r.timer.C
	}
	select {
	case number := <-r.done:
		return r.receive(number), true
	case <-timer:
	}
	select {
	case number := <-r.done: // an attempt ended together with the timer, so a hedge can be unnecessary
		return r.receive(number), true
	default:
		return outcome{}, false
	}
}

// receive takes the outcome of an attempt that has ended.
func (r *race) receive(number int) outcome {
	a := r.runners[number]
	r.runners[number] = nil
	r.running--
	r.refundUncalled(&a.outcome)
	return a.outcome
}

// abandon cancels the contexts of all attempts whose outcome was not received. An attempt that is still running disposes
// of its outcome when it ends. The race disposes of the outcomes of the attempts that have ended.
func (r *race) abandon() {
	r.setTimer(-1)
	if r.running == 0 {
		return
	}
	for _, a := range r.runners[:r.started] {
		if a == nil {
			continue
		}
		if a.state.CompareAndSwap(stateRunning, stateAbandoned) {
			a.lost = true
		}
		a.cancel(ErrLost)
	}
}

// finish reports the attempts that lost, and disposes of the outcomes of the attempts that have ended and do not count.
// It reports even the attempts that still run, because after Execute the pipeline can be closed. If a function of the
// program panics or calls Goexit in one step, the other steps still run.
func (r *race) finish() {
	defer r.disposeWinner()
	r.abandon() // if a function of the options panicked, run has not called it
	r.finishLosers()
	r.keepWinner()
}

// finishLosers reports each attempt that lost, and disposes of the outcome if the attempt has ended. The steps are
// deferred, so that all of them run, the first attempt first.
func (r *race) finishLosers() {
	defer r.settle()
	for number := r.started - 1; number >= 0; number-- { // a range over slices.Backward would allocate
		a := r.runners[number]
		switch {
		case a == nil:
		case a.lost:
			defer r.reportLost(number, a)
		default:
			defer r.dispose(&a.outcome)
			defer r.report(&a.outcome, pipeline.SeverityInformation)
		}
	}
}

// reportLost reports an attempt that was abandoned while it ran.
func (r *race) reportLost(number int, a *runner) {
	if r.timed {
		r.report(&outcome{number: number, err: ErrLost, took: clock.Now() - a.began}, pipeline.SeverityInformation)
	}
}

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
	if a.race.timed {
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
	recovered.Call("hedge: Dispose", func() { a.race.dispose(o) })
}
