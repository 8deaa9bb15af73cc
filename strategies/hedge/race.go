package hedge

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/pipeline"
)

// A race is an execution with several attempts at a time. Each has its goroutine;
// everything else happens in the caller's, which waits for the next attempt that
// ends, or the moment to start one.
//
// It is made anew for each execution although its channel and its timer could be
// used again: one that was made in a bubble of testing/synctest must not be used
// outside of it.
type race struct {
	execution
	done    chan int // the numbers of attempts; with room for all, so that none waits
	timer   *time.Timer
	runners [MostHedges + 1]*runner // by number; nil: its outcome was received
	primary runner                  // the first of them: it is always needed
	running int
}

func newRace(ctx context.Context, next pipeline.Next, o *Options) *race {
	r := &race{execution: newExecution(ctx, next, o)}
	r.done = make(chan int, r.most)
	return r
}

func (r *race) run() (any, error) {
	defer r.finish() // also where a function of the options panics
	r.startNext()
	for {
		o, came := r.await()
		switch {
		case !came:
			r.hedge()
		case !o.returned() || !r.handles(&o):
			r.abandon()
			r.win(&o)
			return o.deliver()
		case r.handled(o, r.running):
			r.startNext()
		case r.running == 0:
			return r.allHandled()
		}
	}
}

// hedge makes another attempt because those that run take long, and reports whether
// there may be one.
func (r *race) hedge() bool {
	var none outcome
	if !r.mayStart() {
		r.reportExhausted(&none)
		return false
	}
	r.announce(&none)
	if !r.stillMay() {
		return false
	}
	r.startNext()
	return true
}

// startNext starts an attempt, and sets the timer for the one after it. Without a
// delay that one starts, too.
func (r *race) startNext() {
	r.start()
	if r.started >= r.most {
		r.setTimer(-1)
		return
	}
	delay := r.options.delay(r.ctx, r.started-1)
	if delay == 0 && r.hedge() {
		return
	}
	r.setTimer(delay)
}

// setTimer sets the timer for the next attempt. Zero or less is for none.
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

func (r *race) start() {
	a := &r.primary
	if r.started > 0 {
		a = new(runner)
	}
	a.race, a.outcome.number = r, r.started
	a.ctx, a.cancel = context.WithCancelCause(withNumber(r.ctx, r.started))
	if r.listening {
		a.began = clock.Now()
	}
	r.runners[r.started] = a
	r.started++
	r.charged = false
	r.running++
	go a.run()
}

// await returns the next outcome, or none where the time for a hedge comes first.
func (r *race) await() (o outcome, came bool) {
	var due <-chan time.Time
	if r.timer != nil {
		due = r.timer.C
	}
	select {
	case number := <-r.done:
		return r.receive(number), true
	case <-due:
	}
	select {
	case number := <-r.done: // at the same time: there may be no need for a hedge
		return r.receive(number), true
	default:
		return outcome{}, false
	}
}

func (r *race) receive(number int) outcome {
	a := r.runners[number]
	r.runners[number] = nil
	r.running--
	r.refundUncalled(&a.outcome)
	return a.outcome
}

// abandon ends the contexts of all attempts that run. From then on each looks after
// its outcome itself, unless it has one already.
func (r *race) abandon() {
	r.setTimer(-1)
	if r.running == 0 {
		return
	}
	for _, a := range r.runners[:r.started] {
		if a == nil {
			continue
		}
		if a.fate.CompareAndSwap(fateRunning, fateAbandoned) {
			a.lost = true // before it can tell that it is
		}
		a.cancel(ErrLost)
	}
}

// finish reports the attempts that lost, and disposes of the outcomes that there
// are. Nothing of a race is reported later, when the pipeline may be gone. A function of
// the program that panics or leaves the goroutine meanwhile skips nothing of it.
func (r *race) finish() {
	done := false
	defer r.disposeWinnerUnless(&done)
	r.abandon() // done before, unless a function of the options panicked
	r.finishOthers()
	done = true
}

// finishOthers is what finish does about each attempt. The steps are deferred, the last one first.
func (r *race) finishOthers() {
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

func (r *race) reportLost(number int, a *runner) {
	if r.listening {
		r.report(&outcome{number: number, err: ErrLost, took: clock.Now() - a.began}, pipeline.SeverityInformation)
	}
}
