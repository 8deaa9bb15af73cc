package hedge

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// EventHedging means that a hedge is about to start. Attempt is its number, 1 for the first. Result and Err are the
// outcome that was handled, if the hedge starts because of that. Its severity is Warning.
const EventHedging = "OnHedging"

// ErrLost is the [context.Cause] of an attempt that was abandoned because another one decided, and the Err of its
// ExecutionAttempt event.
var ErrLost = errors.New("hedge: another attempt decided")

// A Strategy makes more attempts beside one that takes long. Make one with [New]. It is safe for concurrent use, and
// keeps nothing from one execution to the next.
type Strategy struct{ options Options }

// New makes a hedging strategy. If o is nil, the defaults apply. If o is invalid, making a pipeline of the strategy
// fails.
func New(o *Options) *Strategy {
	return &Strategy{options: o.withDefaults()}
}

// Name returns [Options.Name], or "Hedging".
func (s *Strategy) Name() string { return s.options.Name }

// Options returns the options with the defaults filled in. A strategy that [New] makes with them is equal to s.
func (s *Strategy) Options() Options { return s.options }

// Describe returns the [Options], and what [budget.Describe] returns of the Budget. It is for [pipeline.Pipeline.Describe].
func (s *Strategy) Describe() (options, state any) {
	return s.options, budget.Describe(s.options.Budget)
}

// Validate returns what is wrong with the options, or nil.
func (s *Strategy) Validate() error { return s.options.Validate() }

// Execute runs next until an outcome wins or all were handled. If an attempt takes long, others run beside it. Execute
// implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if s.options.Budget != nil {
		s.options.Budget.Count(ctx)
	}
	if s.options.MaxHedges < 0 {
		return next.Run(ctx)
	}
	r := &race{options: &s.options, ctx: ctx, next: next, max: s.options.MaxHedges + 1}
	r.done = make(chan int, r.max)
	return r.run()
}

// AttemptNumber returns the number of an attempt from its context: 0 for the first. For any other context it also
// returns 0. A callback can use it to call another server with each attempt.
func AttemptNumber(ctx context.Context) int {
	number, _ := ctx.Value(attemptKey{}).(int)
	return number
}

// attemptKey is the key of the number of the attempt.
type attemptKey struct{}

// withNumber returns a context whose AttemptNumber is number.
func withNumber(ctx context.Context, number int) context.Context {
	if AttemptNumber(ctx) == number { // the first attempt, unless this hedge is inside another
		return ctx
	}
	return context.WithValue(ctx, attemptKey{}, number) // an int below 256 becomes an any without an allocation
}

// Dispose converts dispose, which knows the type of the results, to the type of [Options.Dispose]. dispose is called
// with every result that is a T and not nil, whether it comes with an error or not.
func Dispose[T any](dispose func(T)) func(result any, err error) {
	return func(result any, _ error) {
		if v, ok := result.(T); ok && !isnil.Value(v) { // a callback that fails often returns a nil pointer with its error
			dispose(v)
		}
	}
}

// A race is one call of Execute. Each attempt has a goroutine; everything else happens in the caller's, which waits until an
// attempt ends or the next one is to start. An outcome that is not received before the race ends is a loser's.
//
// A race is not pooled, although its channel could be used again: what was made in a testing/synctest bubble must not be
// used outside it.
type race struct {
	options *Options
	ctx     context.Context // the caller's
	next    pipeline.Next
	done    chan int         // the number of each attempt that has ended; buffered for all, so that no attempt waits
	wake    <-chan time.Time // when the next attempt is to start; nil if no time is set

	attempts [MostHedges + 1]*attempt // the started ones, by number
	primary  attempt                  // the first, here to save an allocation
	started  int                      // the number of attempts that have started
	max      int                      // the highest number of attempts, the first included
	running  int                      // the number of attempts whose outcome was not received

	reserved   bool     // an attempt was taken from the budget, and has not started
	contextErr error    // the ContextError of the caller's context, if that kept an attempt from starting
	refusal    error    // of the first hedge that was refused
	returned   *attempt // whose outcome Execute returns
}

// An attempt runs in a goroutine of its own.
type attempt struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	began    time.Duration        // only if there is a listener
	outcome  pipeline.Event       // its Result, Err, Attempt and Duration; the race's once the attempt is received
	panicked *pipeline.PanicError // not nil if the attempt panicked or called Goexit; then it is the Err, too
	received bool                 // used by the race only
}

// run makes the attempts and returns the outcome that decides.
func (r *race) run() (any, error) {
	defer r.finish() // also if a function of the options panics
	r.startNext()
	for {
		a := r.await()
		switch {
		case a == nil: // the running attempts take long
			if r.acquire(pipeline.Event{}) && r.announce(pipeline.Event{}) {
				r.startNext()
			}
		case a.panicked != nil || !judge.Handles(r.ctx, r.options.Handle, a.outcome.Result, a.outcome.Err):
			return r.decide(a)
		case r.afterHandled(a):
			r.startNext()
		case r.running == 0:
			return r.outcomeOfFirst()
		}
	}
}

// startNext starts an attempt, and sets the time for the one after it. If the delay is 0, that one starts, too.
func (r *race) startNext() {
	r.wake = nil
	for {
		r.start()
		if r.started >= r.max {
			return
		}
		delay := r.options.delay(r.ctx, r.started-1)
		if delay > 0 {
			r.wake = time.After(delay)
		}
		if delay != 0 || !r.acquire(pipeline.Event{}) || !r.announce(pipeline.Event{}) {
			return
		}
	}
}

// start starts an attempt.
func (r *race) start() {
	a := &r.primary
	if r.started > 0 {
		a = new(attempt)
	}
	a.outcome.Attempt = r.started
	a.ctx, a.cancel = context.WithCancelCause(withNumber(r.ctx, r.started))
	if r.next.ListeningToAttempts() {
		a.began = clock.Now()
	}
	r.attempts[r.started] = a
	r.started++
	r.reserved = false
	r.running++
	go r.attempt(a)
}

// attempt makes an attempt, and hands its outcome to the race.
func (r *race) attempt(a *attempt) {
	returned := false
	defer func() {
		if !returned {
			a.panicked = pipeline.Recovered(recover())
			a.outcome.Result, a.outcome.Err = nil, a.panicked
		}
		if r.next.ListeningToAttempts() {
			a.outcome.Duration = clock.Now() - a.began
		}
		a.cancel(nil)
		r.done <- a.outcome.Attempt
	}()
	a.outcome.Result, a.outcome.Err = r.next.Run(a.ctx)
	returned = true
}

// await returns the next attempt that ends, or nil if it is time for another. A hedge that called nothing goes back to
// the budget.
func (r *race) await() *attempt {
	var number int
	select {
	case number = <-r.done:
	case <-r.wake:
		select {
		case number = <-r.done: // at the same moment, so a hedge can be unnecessary
		default:
			return nil
		}
	}
	a := r.attempts[number]
	a.received = true
	r.running--
	r.refund(a)
	return a
}

// refund gives a hedge that called nothing back to the budget.
func (r *race) refund(a *attempt) {
	if r.options.Budget != nil && a.outcome.Attempt > 0 && pipeline.NotCalled(a.outcome.Err) {
		budget.Refund(r.ctx, r.options.Budget)
	}
}

// decide ends the race with the outcome of a. It reports the losers although they still run, because the pipeline can be
// closed after Execute.
func (r *race) decide(a *attempt) (any, error) {
	r.cancel()
	r.report(a, pipeline.SeverityInformation)
	for number, loser := range r.attempts[:r.started] {
		if !loser.received && r.next.ListeningToAttempts() {
			r.next.ReportAttempt(r.ctx, pipeline.Event{
				Severity: pipeline.SeverityInformation, Err: ErrLost, Attempt: number, Duration: clock.Now() - loser.began,
			})
		}
	}
	r.returned = a
	if a.panicked != nil {
		a.panicked.Continue()
	}
	return a.outcome.Result, a.outcome.Err
}

// afterHandled reports an outcome that was handled, and announces the next attempt. It reports whether that one starts.
func (r *race) afterHandled(a *attempt) bool {
	again := !r.isRefused(a) && r.acquire(a.outcome)
	severity := pipeline.SeverityError
	if again || r.running > 0 {
		severity = pipeline.SeverityWarning
		holding.Release(r.ctx, a.outcome.Result) // the others must get what it held; it can still be the outcome
	}
	r.report(a, severity)
	return again && r.announce(a.outcome)
}

// isRefused reports whether what an attempt called refused it, or nothing was called. After that no attempt can start.
func (r *race) isRefused(a *attempt) bool {
	if r.options.AfterRefusal {
		return false
	}
	if _, asked := pipeline.RetryAfter(a.outcome.Err); !asked && !pipeline.NotCalled(a.outcome.Err) {
		return false
	}
	r.max = r.started
	if a.outcome.Attempt > 0 && r.refusal == nil {
		r.refusal = a.outcome.Err
	}
	return true
}

// acquire reports whether another attempt can start, and takes it from the budget. after is the outcome that it would start
// after, or zero. After acquire has returned false, no attempt of this execution can start.
func (r *race) acquire(after pipeline.Event) bool {
	if r.started >= r.max || r.hasEnded() {
		return false
	}
	if r.options.Budget == nil {
		return true
	}
	if r.reserved = r.options.Budget.TryAcquire(r.ctx); !r.reserved {
		r.max = r.started
		r.next.Report(r.ctx, r.warning(budget.EventExhausted, after))
	}
	return r.reserved
}

// hasEnded reports whether the caller's context has ended. Then no attempt can start.
func (r *race) hasEnded() bool {
	if r.contextErr = pipeline.ContextError(r.ctx); r.contextErr != nil {
		r.max = r.started
	}
	return r.contextErr != nil
}

// announce announces the attempt that acquire has allowed, and reports whether it starts: the context can end meanwhile.
func (r *race) announce(after pipeline.Event) bool {
	r.next.Announce(r.ctx, r.warning(EventHedging, after), r.options.OnHedge)
	return !r.hasEnded()
}

// warning returns an event about the next attempt.
func (r *race) warning(name string, after pipeline.Event) pipeline.Event {
	return pipeline.Event{Name: name, Severity: pipeline.SeverityWarning, Result: after.Result, Err: after.Err, Attempt: r.started}
}

// outcomeOfFirst returns the outcome of the first attempt, for an execution in which no outcome wins.
func (r *race) outcomeOfFirst() (any, error) {
	r.returned = r.attempts[0]
	o := &r.returned.outcome
	reason := r.contextErr
	if reason == nil && o.Err != nil {
		reason = r.refusal // so that a retry outside waits for what the refusal asks for
	}
	if reason == nil {
		return o.Result, o.Err
	}
	return o.Result, judge.GaveUp("hedge", o.Err, r.started, reason)
}

// report reports the outcome of an attempt.
func (r *race) report(a *attempt, severity pipeline.Severity) {
	o := a.outcome
	o.Severity = severity
	if a.panicked != nil {
		o.Err = pipeline.ErrAborted
	}
	r.next.ReportAttempt(r.ctx, o)
}

// cancel cancels the contexts of all attempts.
func (r *race) cancel() {
	for _, a := range r.attempts[:r.started] {
		a.cancel(ErrLost)
	}
}

// finish disposes of the outcomes that Execute does not return: of all, if a function of the program panics or calls
// Goexit, and of those of the losers when they end. A hedge that was taken from the budget and did not start goes back.
func (r *race) finish() {
	r.cancel()
	for _, a := range r.attempts[:r.started] {
		if a.received && a != r.returned {
			r.dispose(a)
		}
	}
	if losers := r.running; losers > 0 {
		go func() {
			for range losers {
				go r.dispose(r.attempts[<-r.done]) // a Dispose that takes long delays no other
			}
		}()
	}
	if r.reserved {
		budget.Refund(r.ctx, r.options.Budget)
	}
}

// dispose disposes of an outcome that Execute does not return. There is no caller to whom a panic of that attempt could go
// on. So it goes to Dispose, or to the log if Dispose is nil.
func (r *race) dispose(a *attempt) {
	if p := a.panicked; p != nil && p.Value != nil && r.options.Dispose == nil {
		recovered.Report("hedge: an attempt that lost", p.Value, p.Stack)
	}
	recovered.Hook("hedge: Dispose", func() {
		if !a.received {
			r.refund(a)
		}
		if r.options.Dispose != nil {
			defer r.options.Dispose(a.outcome.Result, a.outcome.Err)
		}
		holding.Release(r.ctx, a.outcome.Result)
	})
}
