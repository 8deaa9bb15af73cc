package hedge

import (
	"context"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// An execution is one call of Execute: what sequential and concurrent attempts have in common. Only the caller's
// goroutine uses it.
type execution struct {
	options   *Options
	ctx       context.Context // the caller's
	next      pipeline.Next
	listening bool

	most      int   // the highest number of attempts, the first included
	started   int   // the number of attempts that have started
	exhausted bool  // the budget refused an attempt, and this was not reported yet
	charged   bool  // an attempt was taken from the budget, and has not started
	cut       error // the ContextError of the caller's context, if that kept a hedge from starting

	hasFirst bool
	first    outcome // of the first attempt, once it was handled

	hasWinner bool
	returning bool    // the winner was reported, and Execute is about to return it
	winner    outcome // the one that Execute returns
}

func newExecution(ctx context.Context, next pipeline.Next, o *Options) execution {
	return execution{options: o, ctx: ctx, next: next, listening: next.Listening(), most: o.MaxHedges + 1}
}

// handles reports whether an outcome is handled, that is, does not win.
func (e *execution) handles(o *outcome) bool {
	if e.options.Handle != nil {
		judged := false
		defer func() {
			if !judged { // Handle panics, and the outcome would be lost
				e.dispose(o)
			}
		}()
		handled := e.options.Handle(o.result, o.err)
		judged = true
		return handled
	}
	return o.err != nil && !judge.Ended(e.ctx, o.err)
}

// handled reports an outcome that did not win. running is the number of other attempts. It returns whether another
// attempt starts in its place.
func (e *execution) handled(o outcome, running int) (again bool) {
	if o.number == 0 {
		e.first, e.hasFirst = o, true
	} else {
		defer e.dispose(&o) // after the listener and OnHedge have seen it
	}
	again = e.mayStart()
	severity := pipeline.SeverityWarning
	if !again && running == 0 {
		severity = pipeline.SeverityError
	}
	e.report(&o, severity)
	if !again {
		e.reportExhausted(&o)
		return false
	}
	e.announce(&o)
	return e.stillMay()
}

// mayStart reports whether another attempt can start, and takes it from the budget. After it has returned false, no
// attempt of this execution can start.
func (e *execution) mayStart() bool {
	if e.started >= e.most {
		return false
	}
	if e.cut = pipeline.ContextError(e.ctx); e.cut == nil {
		if e.options.Budget == nil {
			return true
		}
		if e.charged = e.options.Budget.TryAcquire(e.ctx); e.charged {
			return true
		}
		e.exhausted = true
	}
	e.most = e.started
	return false
}

// stillMay reports whether the attempt that was announced can start: the context can have ended while the listener and
// OnHedge ran.
func (e *execution) stillMay() bool {
	if e.cut = pipeline.ContextError(e.ctx); e.cut == nil {
		return true
	}
	e.most = e.started
	e.refund()
	return false
}

// refund gives an attempt that does not start back to the budget.
func (e *execution) refund() {
	if e.charged {
		e.charged = false
		budget.Refund(e.ctx, e.options.Budget)
	}
}

// refundUncalled gives an attempt that called nothing back to the budget.
func (e *execution) refundUncalled(o *outcome) {
	if e.options.Budget != nil && o.number > 0 && judge.NotCalled(o.err) {
		budget.Refund(e.ctx, e.options.Budget)
	}
}

// allHandled returns the outcome of an execution that nothing won.
func (e *execution) allHandled() (any, error) {
	e.winner, e.hasWinner, e.returning = e.first, true, true
	e.hasFirst = false
	if e.cut == nil {
		return e.first.result, e.first.err
	}
	return e.first.result, judge.GaveUp("hedge", e.first.err, e.started, e.cut)
}

// disposeFirst disposes of the outcome of the first attempt if another attempt decided.
func (e *execution) disposeFirst() {
	if e.hasFirst {
		e.hasFirst = false
		e.dispose(&e.first)
	}
}

func (e *execution) dispose(o *outcome) { o.dispose(e.options.Dispose) }

// win reports the outcome that Execute returns.
func (e *execution) win(o *outcome) {
	e.winner, e.hasWinner = *o, o.returned()
	e.report(o, pipeline.SeverityInformation)
	e.returning = true
}

// disposeWinnerUnless is deferred before all other steps of finishing; the last of them sets *done. If a function of the
// program panics or calls Goexit in between, Execute does not return the winner, and disposeWinnerUnless disposes of it.
func (e *execution) disposeWinnerUnless(done *bool) {
	if e.hasWinner && (!e.returning || !*done) {
		e.dispose(&e.winner)
	}
}

// report reports the outcome of an attempt, see [judge.ReportAttempt].
func (e *execution) report(o *outcome, severity pipeline.Severity) {
	if !e.listening {
		return
	}
	err := o.err
	if !o.returned() {
		err = pipeline.ErrAborted
	}
	judge.ReportAttempt(e.ctx, e.next, pipeline.Event{
		Severity: severity, Result: o.result, Err: err, Attempt: o.number, Duration: o.took,
	})
}

// announce reports that another attempt is about to start, and calls OnHedge. after is the outcome that it starts
// after, or the zero outcome.
func (e *execution) announce(after *outcome) {
	if e.listening {
		e.reportHedge(EventHedging, after)
	}
	if e.options.OnHedge != nil {
		e.options.OnHedge(e.ctx, Hedge{Number: e.started, Result: after.result, Err: after.err, Source: e.next.Source()})
	}
}

// reportExhausted reports that the budget refused an attempt, once for each time.
func (e *execution) reportExhausted(after *outcome) {
	if e.exhausted && e.listening {
		e.reportHedge(budget.EventExhausted, after)
	}
	e.exhausted = false
}

// reportHedge reports an event about the attempt that is next.
func (e *execution) reportHedge(name string, after *outcome) {
	e.next.Report(e.ctx, pipeline.Event{
		Name: name, Severity: pipeline.SeverityWarning, Result: after.result, Err: after.err, Attempt: e.started,
	})
}
