package hedge

import (
	"context"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// An execution is one call of Execute: what sequential and concurrent attempts have in common. Only the caller's
// goroutine uses it.
type execution struct {
	options *Options
	ctx     context.Context // the caller's
	next    pipeline.Next
	timed   bool // a listener wants the attempts and how long they took

	max        int   // the highest number of attempts, the first included
	started    int   // the number of attempts that have started
	exhausted  bool  // the budget refused an attempt, and this was not reported yet
	reserved   bool  // an attempt was taken from the budget, and has not started
	contextErr error // the ContextError of the caller's context, if that kept an attempt from starting
	refusal    error // of the first hedge that was refused

	hasFirst bool
	first    outcome // of the first attempt, once it was handled

	winner    outcome // the outcome that Execute returns
	hasWinner bool    // disposeWinner disposes of the winner; keepWinner prevents that
	reported  bool    // the listener has seen the winner
}

func newExecution(ctx context.Context, next pipeline.Next, o *Options) execution {
	return execution{options: o, ctx: ctx, next: next, timed: next.ListeningToAttempts(), max: max(o.MaxHedges, 0) + 1}
}

// runSequentially makes one attempt after the other in the caller's goroutine.
func (e *execution) runSequentially() (any, error) {
	defer e.finishSequential()
	for {
		o := e.attempt()
		e.refundUncalled(&o)
		if !e.isHandled(&o) {
			e.win(&o)
			return o.result, o.err
		}
		if !e.afterHandled(o, 0) {
			return e.outcomeOfFirst()
		}
	}
}

// attempt makes the next attempt in the caller's goroutine.
func (e *execution) attempt() outcome {
	o := outcome{number: e.started}
	e.started++
	e.reserved = false
	ctx := withNumber(e.ctx, o.number)
	if !e.timed {
		o.result, o.err = e.next.Run(ctx)
		return o
	}
	began := clock.Now()
	o.result, o.err = e.next.Run(ctx)
	o.took = clock.Now() - began
	return o
}

// isHandled reports whether an outcome is handled, that is, does not win.
func (e *execution) isHandled(o *outcome) bool {
	if e.options.Handle == nil {
		return o.err != nil && !judge.Ended(e.ctx, o.err)
	}
	returned := false
	defer func() {
		if !returned { // Handle panics, and the outcome would be lost
			e.dispose(o)
		}
	}()
	handled := e.options.Handle(o.result, o.err)
	returned = true
	return handled
}

// afterHandled reports an outcome that was handled, and announces the next attempt. again reports whether that one
// starts. running is the number of other attempts.
func (e *execution) afterHandled(o outcome, running int) (again bool) {
	if o.number == 0 {
		e.first, e.hasFirst = o, true
	} else {
		defer e.dispose(&o) // after the listener and OnHedge have seen it
	}
	again = !e.refused(&o) && e.acquire()
	if again || running > 0 {
		holding.Release(e.ctx, o.result) // the others must get what it held; it can still be the outcome
	}
	severity := pipeline.SeverityWarning
	if !again && running == 0 {
		severity = pipeline.SeverityError
	}
	e.report(&o, severity)
	return e.announce(again, &o)
}

// refused reports whether what an attempt called refused it, or nothing was called. After that no attempt can start.
func (e *execution) refused(o *outcome) bool {
	if e.options.AfterRefusal {
		return false
	}
	if _, asked := pipeline.RetryAfter(o.err); !asked && !pipeline.NotCalled(o.err) {
		return false
	}
	e.startNoMore()
	if o.number > 0 && e.refusal == nil {
		e.refusal = o.err
	}
	return true
}

// acquire reports whether another attempt can start, and takes it from the budget. After it has returned false, no
// attempt of this execution can start.
func (e *execution) acquire() bool {
	if e.started >= e.max {
		return false
	}
	if e.contextErr = pipeline.ContextError(e.ctx); e.contextErr == nil {
		if e.options.Budget == nil {
			return true
		}
		if e.reserved = e.options.Budget.TryAcquire(e.ctx); e.reserved {
			return true
		}
		e.exhausted = true
	}
	e.startNoMore()
	return false
}

// startNoMore lets no other attempt start.
func (e *execution) startNoMore() { e.max = e.started }

// announce announces the attempt that acquire has allowed to the listener and OnHedge, and reports whether it starts: the
// context can end meanwhile. after is the outcome that it starts after, or the zero outcome. If allowed is false, announce
// only reports that the budget is exhausted.
func (e *execution) announce(allowed bool, after *outcome) bool {
	if !allowed {
		if e.exhausted {
			e.exhausted = false
			e.reportNext(budget.EventExhausted, after)
		}
		return false
	}
	e.reportNext(EventHedging, after)
	if e.options.OnHedge != nil {
		e.options.OnHedge(e.ctx, Hedge{Number: e.started, Result: after.result, Err: after.err, Source: e.next.Source()})
	}
	if e.contextErr = pipeline.ContextError(e.ctx); e.contextErr == nil {
		return true
	}
	e.startNoMore()
	e.refund()
	return false
}

// reportNext reports an event about the attempt that would be next.
func (e *execution) reportNext(event string, after *outcome) {
	if e.next.Listening() {
		e.next.Report(e.ctx, pipeline.Event{
			Name: event, Severity: pipeline.SeverityWarning, Result: after.result, Err: after.err, Attempt: e.started,
		})
	}
}

// refund gives an attempt that does not start back to the budget.
func (e *execution) refund() {
	if e.reserved {
		e.reserved = false
		budget.Refund(e.ctx, e.options.Budget)
	}
}

// refundUncalled gives an attempt that called nothing back to the budget.
func (e *execution) refundUncalled(o *outcome) {
	if e.options.Budget != nil && o.number > 0 && pipeline.NotCalled(o.err) {
		budget.Refund(e.ctx, e.options.Budget)
	}
}

// outcomeOfFirst returns the outcome of the first attempt, for an execution without a winner.
func (e *execution) outcomeOfFirst() (any, error) {
	e.winner, e.hasWinner, e.reported = e.first, true, true
	e.hasFirst = false
	reason := e.contextErr
	if reason == nil && e.first.err != nil {
		reason = e.refusal // so that a retry outside waits for what the refusal asks for
	}
	if reason == nil {
		return e.first.result, e.first.err
	}
	return e.first.result, judge.GaveUp("hedge", e.first.err, e.started, reason)
}

// win reports the outcome that Execute returns.
func (e *execution) win(o *outcome) {
	e.winner, e.hasWinner = *o, o.returned()
	e.report(o, pipeline.SeverityInformation)
	e.reported = true
}

// report reports the outcome of an attempt, see [judge.ReportAttempt].
func (e *execution) report(o *outcome, severity pipeline.Severity) {
	if !e.timed {
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

// finishSequential disposes of the outcomes that Execute does not return.
func (e *execution) finishSequential() {
	defer e.disposeWinner()
	e.settle()
	e.keepWinner()
}

// settle ends an execution whose attempts have all ended or were abandoned. It disposes of the first outcome if
// another attempt won.
func (e *execution) settle() {
	defer e.refund()
	if e.hasFirst {
		e.hasFirst = false
		e.dispose(&e.first)
	}
}

// keepWinner is the last step of finishing, and disposeWinner is deferred before the first. If a function of the
// program panics or calls Goexit before keepWinner, Execute does not return the winner, and disposeWinner disposes of it.
func (e *execution) keepWinner() { e.hasWinner = e.hasWinner && !e.reported }

func (e *execution) disposeWinner() {
	if e.hasWinner {
		e.dispose(&e.winner)
	}
}

// dispose disposes of an outcome that Execute does not return.
func (e *execution) dispose(o *outcome) {
	defer o.dispose(e.options.Dispose)
	holding.Release(e.ctx, o.result)
}
