package hedge

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// An execution is one call of Execute, as far as it does not matter whether there
// are several attempts at a time. What belongs to it is touched in the caller's
// goroutine only.
type execution struct {
	options   *Options
	ctx       context.Context // the caller's
	next      pipeline.Next
	listening bool

	most      int   // so many attempts there may be, the first included
	started   int   // so many there were
	exhausted bool  // the budget said no, and no event has said so
	charged   bool  // the budget was charged for an attempt that has not started
	cut       error // the error of the caller's context, if that kept a hedge from starting

	hasFirst bool
	first    outcome // of the first attempt, once it was handled

	hasWinner bool
	returning bool    // the winner was reported, and is about to be returned
	winner    outcome // the one that Execute returns
}

func newExecution(ctx context.Context, next pipeline.Next, o *Options) execution {
	return execution{options: o, ctx: ctx, next: next, listening: next.Listening(), most: o.MaxHedges + 1}
}

// handles reports whether an outcome does not win.
func (e *execution) handles(o *outcome) bool {
	if e.options.Handle != nil {
		judged := false
		defer func() {
			if !judged { // it panics, and nobody else has the outcome
				e.dispose(o)
			}
		}()
		handled := e.options.Handle(o.result, o.err)
		judged = true
		return handled
	}
	return o.err != nil && !judge.Ended(e.ctx, o.err)
}

// handled does what there is to do about an outcome that did not win while so many
// other attempts run, and tells whether another attempt is to start in its place.
func (e *execution) handled(o outcome, running int) (again bool) {
	if o.number == 0 {
		e.first, e.hasFirst = o, true
	} else {
		defer e.dispose(&o) // when those who are told of it have seen it
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

// mayStart reports whether there may be another attempt. What keeps it from starting
// keeps all others of this execution, too.
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

// stillMay reports whether the attempt that was announced may start: the functions that were told of it may
// have taken their time.
func (e *execution) stillMay() bool {
	if e.cut = pipeline.ContextError(e.ctx); e.cut == nil {
		return true
	}
	e.most = e.started
	e.refund()
	return false
}

// refund gives back what the budget was charged for an attempt that does not start.
func (e *execution) refund() {
	if e.charged {
		e.charged = false
		budget.Refund(e.ctx, e.options.Budget)
	}
}

// refundUncalled gives back what the budget was charged for an attempt that called nothing.
func (e *execution) refundUncalled(o *outcome) {
	if e.options.Budget != nil && o.number > 0 && judge.NotCalled(o.err) {
		budget.Refund(e.ctx, e.options.Budget)
	}
}

// allHandled returns the outcome of an execution that nothing won.
func (e *execution) allHandled() (any, error) {
	e.winner, e.hasWinner, e.returning = e.first, true, true
	e.hasFirst = false
	result, err := e.first.result, e.first.err
	switch {
	case e.cut == nil || errors.Is(err, e.cut):
		return result, err
	case err == nil: // a result that was not wanted
		return result, fmt.Errorf("hedge: gave up after attempt %d: %w", e.started, e.cut)
	default:
		return result, judge.GaveUp("hedge", err, e.started, e.cut)
	}
}

// disposeFirst disposes of the first outcome if another attempt decided.
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

// disposeWinnerUnless is deferred until everything else is done, which sets *done. A winner that is not
// returned after all, because a function of the program panics or leaves the goroutine, is disposed of.
func (e *execution) disposeWinnerUnless(done *bool) {
	if e.hasWinner && (!e.returning || !*done) {
		e.dispose(&e.winner)
	}
}

// report reports how an attempt ended. A severity above Information stands for one
// that was handled.
func (e *execution) report(o *outcome, severity pipeline.Severity) {
	if !e.listening {
		return
	}
	err := o.err
	if !o.returned() {
		err = pipeline.ErrAborted
	}
	e.next.Report(e.ctx, pipeline.Event{
		Name:     pipeline.EventExecutionAttempt,
		Severity: severity,
		Result:   o.result,
		Err:      err,
		Attempt:  o.number,
		Handled:  severity > pipeline.SeverityInformation,
		Duration: o.took,
	})
}

// announce tells who wants to know that there will be another attempt, and after
// which outcome, if that is why.
func (e *execution) announce(after *outcome) {
	if e.listening {
		e.reportHedge(EventHedging, after)
	}
	if e.options.OnHedge != nil {
		e.options.OnHedge(e.ctx, Hedge{
			Number: e.started,
			Result: after.result,
			Err:    after.err,
			Source: e.next.Source(),
		})
	}
}

// reportExhausted reports that the budget had no other attempt, the first time.
func (e *execution) reportExhausted(after *outcome) {
	if e.exhausted && e.listening {
		e.reportHedge(budget.EventExhausted, after)
	}
	e.exhausted = false
}

func (e *execution) reportHedge(name string, after *outcome) {
	e.next.Report(e.ctx, pipeline.Event{
		Name:     name,
		Severity: pipeline.SeverityWarning,
		Result:   after.result,
		Err:      after.err,
		Attempt:  e.started,
	})
}
