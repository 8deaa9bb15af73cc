package hedge

import (
	"context"
	"errors"
	"sync/atomic"
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
type Strategy struct {
	options Options
	problem error // what Validate returns
}

// New makes a hedging strategy. If o is nil, the defaults apply. If o is invalid, making a pipeline of the strategy
// fails.
func New(o *Options) *Strategy {
	return &Strategy{options: o.withDefaults(), problem: o.Validate()}
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
func (s *Strategy) Validate() error { return s.problem }

// Execute runs next until an outcome wins or all were handled. If an attempt takes long, others run beside it. Execute
// implements [pipeline.Strategy].
func (s *Strategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if s.options.Budget != nil {
		s.options.Budget.Count(ctx)
	}
	if s.options.MaxHedges < 0 {
		return next.Run(ctx)
	}
	return newRace(ctx, next, &s.options).run()
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
// attempt ends or the next one is to start.
//
// A race is not pooled, although its channel and its timer could be used again: what was made in a testing/synctest
// bubble must not be used outside it.
type race struct {
	options *Options
	ctx     context.Context // the caller's
	next    pipeline.Next
	done    chan int    // the number of each attempt that has ended; buffered for all, so that no attempt waits
	timer   *time.Timer // for the next attempt; nil until it is needed

	attempts [MostHedges + 1]*attempt // the started ones, by number
	primary  attempt                  // the first, here to save an allocation
	started  int                      // the number of attempts that have started
	max      int                      // the highest number of attempts, the first included
	running  int                      // the number of attempts whose outcome was not received

	reserved   bool     // an attempt was taken from the budget, and has not started
	exhausted  bool     // the budget refused an attempt, and this was not reported yet
	contextErr error    // the ContextError of the caller's context, if that kept an attempt from starting
	refusal    error    // of the first hedge that was refused
	returned   *attempt // whose outcome Execute returns
}

func newRace(ctx context.Context, next pipeline.Next, o *Options) *race {
	r := &race{options: o, ctx: ctx, next: next, max: o.MaxHedges + 1}
	r.done = make(chan int, r.max)
	return r
}

// run makes the attempts and returns the outcome that decides.
func (r *race) run() (any, error) {
	defer r.finish() // also if a function of the options panics
	r.startNext()
	for {
		a := r.await()
		switch {
		case a == nil: // the running attempts take long
			if r.announce(r.acquire(), pipeline.Event{}) {
				r.startNext()
			}
		case a.panicked != nil || !r.isHandled(a):
			r.abandon()
			r.report(a, pipeline.SeverityInformation)
			if a.panicked != nil {
				a.settled = true
				a.panicked.Continue()
			}
			r.returned = a
			return a.outcome.Result, a.outcome.Err
		case r.afterHandled(a):
			r.startNext()
		case r.running == 0:
			return r.outcomeOfFirst()
		}
	}
}

// startNext starts an attempt, and sets the timer for the one after it. If the delay is 0, that one starts, too.
func (r *race) startNext() {
	for {
		r.start()
		if r.started >= r.max {
			r.setTimer(-1)
			return
		}
		delay := r.options.delay(r.ctx, r.started-1)
		if delay != 0 || !r.announce(r.acquire(), pipeline.Event{}) {
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
		a = new(attempt)
	}
	a.race, a.outcome.Attempt = r, r.started
	a.ctx, a.cancel = context.WithCancelCause(withNumber(r.ctx, r.started))
	if r.next.ListeningToAttempts() {
		a.began = clock.Now()
	}
	r.attempts[r.started] = a
	r.started++
	r.reserved = false
	r.running++
	go a.run()
}

// await returns the next attempt that ends, or nil if the timer fires first.
func (r *race) await() *attempt {
	var timer <-chan time.Time
	if r.timer != nil {
		timer = r.timer.C
	}
	select {
	case number := <-r.done:
		return r.receive(number)
	case <-timer:
	}
	select {
	case number := <-r.done: // it ended together with the timer, so a hedge can be unnecessary
		return r.receive(number)
	default:
		return nil
	}
}

// receive counts that an attempt has ended. One that called nothing goes back to the budget.
func (r *race) receive(number int) *attempt {
	a := r.attempts[number]
	r.running--
	if r.options.Budget != nil && number > 0 && pipeline.NotCalled(a.outcome.Err) {
		budget.Refund(r.ctx, r.options.Budget)
	}
	return a
}

// isHandled reports whether an outcome is handled, that is, does not win.
func (r *race) isHandled(a *attempt) bool {
	if r.options.Handle != nil {
		return r.options.Handle(a.outcome.Result, a.outcome.Err)
	}
	return a.outcome.Err != nil && !judge.Ended(r.ctx, a.outcome.Err)
}

// afterHandled reports an outcome that was handled, and announces the next attempt. again reports whether that one starts.
func (r *race) afterHandled(a *attempt) (again bool) {
	if a.outcome.Attempt > 0 {
		defer r.dispose(a) // after the listener and OnHedge have seen it
	}
	if again = !r.isRefused(a) && r.acquire(); again || r.running > 0 {
		holding.Release(r.ctx, a.outcome.Result) // the others must get what it held; it can still be the outcome
	}
	severity := pipeline.SeverityWarning
	if !again && r.running == 0 {
		severity = pipeline.SeverityError
	}
	r.report(a, severity)
	return r.announce(again, a.outcome)
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

// acquire reports whether another attempt can start, and takes it from the budget. After it has returned false, no
// attempt of this execution can start.
func (r *race) acquire() bool {
	if r.started >= r.max || r.hasEnded() {
		return false
	}
	if r.options.Budget == nil {
		return true
	}
	if r.reserved = r.options.Budget.TryAcquire(r.ctx); !r.reserved {
		r.max, r.exhausted = r.started, true
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

// announce announces the attempt that acquire has allowed, and reports whether it starts: the context can end meanwhile. after
// is the outcome that it starts after, or zero. If allowed is false, announce only reports that the budget is exhausted.
func (r *race) announce(allowed bool, after pipeline.Event) bool {
	e := pipeline.Event{
		Name: EventHedging, Severity: pipeline.SeverityWarning, Result: after.Result, Err: after.Err, Attempt: r.started,
	}
	switch {
	case allowed:
		r.next.Announce(r.ctx, e, r.options.OnHedge)
		allowed = !r.hasEnded()
	case r.exhausted:
		r.exhausted = false
		e.Name = budget.EventExhausted
		r.next.Report(r.ctx, e)
	}
	if !allowed {
		r.refund()
	}
	return allowed
}

// refund gives an attempt that does not start back to the budget.
func (r *race) refund() {
	if r.reserved {
		r.reserved = false
		budget.Refund(r.ctx, r.options.Budget)
	}
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
	a.reported = true
	o := a.outcome
	o.Severity = severity
	if a.panicked != nil {
		o.Err = pipeline.ErrAborted
	}
	r.next.ReportAttempt(r.ctx, o)
}

// dispose disposes of an outcome that Execute does not return.
func (r *race) dispose(a *attempt) {
	a.settled = true
	if r.options.Dispose != nil {
		defer r.options.Dispose(a.outcome.Result, a.outcome.Err)
	}
	holding.Release(r.ctx, a.outcome.Result)
}

// abandon cancels the contexts of the attempts that are not received. An attempt that is still running disposes of its
// outcome when it ends.
func (r *race) abandon() {
	r.setTimer(-1)
	for _, a := range r.attempts[:r.started] {
		if a.state.CompareAndSwap(stateRunning, stateAbandoned) {
			a.lost = true
		}
		a.cancel(ErrLost)
	}
}

// finish abandons the attempts that still run, reports the losers, and disposes of the outcomes that Execute does not
// return: of all, if a function of the program panics or calls Goexit. It reports even the attempts that still run, because
// after Execute the pipeline can be closed.
func (r *race) finish() {
	settled := false
	defer func() {
		if !settled && r.returned != nil {
			r.dispose(r.returned)
		}
	}()
	defer r.refund()
	r.abandon()
	r.settle(0)
	settled = true
}

// settle settles the attempts from that number on, each of them even if a function of the program panics.
func (r *race) settle(number int) {
	if number == r.started {
		return
	}
	defer r.settle(number + 1)
	switch a := r.attempts[number]; {
	case a.lost && r.next.ListeningToAttempts():
		r.next.ReportAttempt(r.ctx, pipeline.Event{
			Severity: pipeline.SeverityInformation, Err: ErrLost, Attempt: number, Duration: clock.Now() - a.began,
		})
	case a.lost, a.settled, a == r.returned:
	default:
		defer r.dispose(a)
		if !a.reported {
			r.report(a, pipeline.SeverityInformation)
		}
	}
}

// An attempt runs in a goroutine of its own.
type attempt struct {
	race     *race
	ctx      context.Context
	cancel   context.CancelCauseFunc
	began    time.Duration // only if there is a listener
	state    atomic.Uint32
	outcome  pipeline.Event       // its Result, Err, Attempt and Duration; the attempt's until state is stateEnded, then the race's
	panicked *pipeline.PanicError // not nil if the attempt panicked or called Goexit; then it is the Err, too

	// Only the race's goroutine uses them:
	lost     bool // state is stateAbandoned
	reported bool
	settled  bool // nothing is to be disposed of
}

// The states of an attempt. Exactly one of two steps leaves stateRunning: the end of the attempt or the end of the race.
// In stateEnded the race disposes of the outcome, in stateAbandoned the attempt does.
const (
	stateRunning uint32 = iota
	stateEnded
	stateAbandoned
)

// run makes the attempt, and hands the outcome to the race.
func (a *attempt) run() {
	returned := false
	defer func() {
		if !returned {
			a.panicked = pipeline.Recovered(recover())
			a.outcome.Result, a.outcome.Err = nil, a.panicked
		}
		if a.race.next.ListeningToAttempts() {
			a.outcome.Duration = clock.Now() - a.began
		}
		a.cancel(nil)
		if a.state.CompareAndSwap(stateRunning, stateEnded) {
			a.race.done <- a.outcome.Attempt
			return
		}
		a.disposeAbandoned()
	}()
	a.outcome.Result, a.outcome.Err = a.race.next.Run(a.ctx)
	returned = true
}

// disposeAbandoned disposes of an outcome that came after the execution had ended. There is no caller to whom a panic
// could go on. So a panic of the attempt goes to Dispose, or to the log if Dispose is nil, and a panic of Dispose goes
// to the log.
func (a *attempt) disposeAbandoned() {
	if p := a.panicked; p != nil && p.Value != nil && a.race.options.Dispose == nil {
		recovered.Report("hedge: an attempt that lost", p.Value, p.Stack)
		return
	}
	recovered.Call("hedge: Dispose", func() { a.race.dispose(a) })
}
