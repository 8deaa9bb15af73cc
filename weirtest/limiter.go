package weirtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
)

// A Limiter is a [limiter.Limiter] that follows a script: each call of TryAcquire or Acquire takes the next [Answer],
// and the last answer is given to all calls that follow. It records every call. It is safe for concurrent use.
//
// The zero value has an empty script and grants everything, at once.
//
// For a limiter with a script for each key, return one Limiter for each key from a [limiter.Factory].
type Limiter struct {
	mu     sync.Mutex
	script []Answer
	calls  []Call
}

// NewLimiter returns a Limiter that follows the script.
func NewLimiter(script ...Answer) *Limiter {
	l := new(Limiter)
	l.SetScript(script...)
	return l
}

// SetScript replaces the answers that have not been given yet, for the next phase of a test. Calls that wait for their
// answer keep it. Without any answers everything is granted.
func (l *Limiter) SetScript(script ...Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.script = slices.Clone(script)
}

// TryAcquire gives the next answer of the script. If that answer waits, so does TryAcquire, as it does for a limiter
// on another machine.
//
// A negative n is a [limiter.ErrPermitCount], and if ctx has ended, its error is returned. Neither takes an answer.
func (l *Limiter) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return l.answer(ctx, Call{Try: true, Permits: n})
}

// Acquire gives the next answer of the script, like [Limiter.TryAcquire].
func (l *Limiter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return l.answer(ctx, Call{Permits: n})
}

// answer records c, waits as the script says, and returns the answer.
func (l *Limiter) answer(ctx context.Context, c Call) (limiter.Lease, error) {
	index, a := l.begin(ctx, c)
	if err := a.wait(ctx); err != nil {
		a = Fail(err)
	}
	return l.end(index, a)
}

// begin records c as waiting and returns its place among the calls and its answer.
func (l *Limiter) begin(ctx context.Context, c Call) (index int, a Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch err := pipeline.ContextError(ctx); {
	case c.Permits < 0:
		a = Fail(fmt.Errorf("%w: %d", limiter.ErrPermitCount, c.Permits))
	case err != nil:
		a = Fail(err)
	case len(l.script) == 0:
		a = Grant()
	default:
		a = l.script[0]
		if len(l.script) > 1 {
			l.script = l.script[1:]
		}
	}
	l.calls = append(l.calls, c)
	return len(l.calls) - 1, a
}

// end records the answer and returns it. The tag of a lease is the place of its call.
func (l *Limiter) end(index int, a Answer) (limiter.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	call := &l.calls[index]
	switch {
	case a.err != nil:
		call.State, call.Err = Failed, a.err
		return limiter.Lease{}, a.err
	case a.rejects:
		call.State = Rejected
		return custom.Rejected(a.retryAfter, a.reason), nil
	}
	call.State, call.Charged = Held, call.Permits
	return custom.GrantedBy((*leaseOwner)(l), call.Permits, int64(index)), nil
}

// Calls returns all calls so far, in the order in which they came.
func (l *Limiter) Calls() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// Count returns the number of calls that are in the state s. A test that ends with Count([Held]) above 0 has found
// permits that were not given back.
func (l *Limiter) Count(s State) int {
	n := 0
	for _, c := range l.Calls() {
		if c.State == s {
			n++
		}
	}
	return n
}

// A Call is one call of a [Limiter] and what has become of it.
type Call struct {
	Try     bool  // TryAcquire was called, otherwise Acquire
	Permits int   // the number of permits asked for
	State   State // what has become of the call so far
	Charged int   // the permits of the lease: those granted, or what [limiter.Lease.Adjust] made of them; 0 if none or refunded
	Err     error // the error that the call returned; nil in every state but Failed
}

// A State says what has become of a [Call].
type State uint8

// The states of a call.
const (
	Waiting  State = iota // the answer waits
	Held                  // granted, and the lease has not been released
	Released              // granted, and the lease has been released
	Refunded              // granted, and taken back by a [limiter.Chain] because a later limiter rejected
	Rejected              // rejected
	Failed                // the call returned an error
)

var states = textenum.Texts[State]{Package: "weirtest", Type: "State", Texts: []string{
	Waiting: "waiting", Held: "held", Released: "released", Refunded: "refunded", Rejected: "rejected", Failed: "failed",
}}

// String returns the name in lower case, or State(n) if there is no such state.
func (s State) String() string { return states.String(s) }

// MarshalText implements [encoding.TextMarshaler].
func (s State) MarshalText() ([]byte, error) { return states.Marshal(s) }

// An Answer is what a [Limiter] answers to one call. The zero value grants.
type Answer struct {
	ready      <-chan struct{} // nil: ready at once
	delay      time.Duration
	rejects    bool
	retryAfter time.Duration
	reason     string
	err        error
}

// Grant is the answer that grants what is asked for.
func Grant() Answer { return Answer{} }

// Reject is the answer of a [custom.Rejected] lease. A retryAfter of 0 or less means that it is not known; an empty
// reason means none.
func Reject(retryAfter time.Duration, reason string) Answer {
	return Answer{rejects: true, retryAfter: retryAfter, reason: reason}
}

// Fail is the answer that returns err, which must not be nil: the call could not be decided.
func Fail(err error) Answer { return Answer{err: err} }

// When returns a that is given when something can be received from ready, usually because the test closes it. If the
// context of the call ends before, the call returns its error.
func (a Answer) When(ready <-chan struct{}) Answer {
	a.ready = ready
	return a
}

// After returns a that is given after d, which begins when an [Answer.When] is over. If the context of the call ends
// before, the call returns its error.
func (a Answer) After(d time.Duration) Answer {
	a.delay = d
	return a
}

// wait waits until the answer is ready, or returns the error of ctx.
func (a Answer) wait(ctx context.Context) error {
	if a.ready != nil {
		select {
		case <-a.ready:
		case <-ctx.Done():
			return pipeline.ContextError(ctx)
		}
	}
	if a.delay <= 0 {
		return nil
	}
	timer := time.NewTimer(a.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return pipeline.ContextError(ctx)
	}
}

// leaseOwner is a Limiter with the methods of a [custom.Owner], which the code under test does not call.
type leaseOwner Limiter

// Release implements [custom.Owner]. It is called for every Release of every copy of the lease.
func (o *leaseOwner) Release(_ int, tag int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if call := &o.calls[tag]; call.State == Held {
		call.State = Released
	}
}

// Refund implements [custom.Owner].
func (o *leaseOwner) Refund(_ int, tag int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if call := &o.calls[tag]; call.State == Held {
		call.State, call.Charged = Refunded, 0
	}
}

// Lends returns true, so that [limiter.Lease.Lends] does: a call is Held until its lease is released.
func (*leaseOwner) Lends() bool { return true }

// Adjust implements [custom.Adjuster]. A released lease can be adjusted too: windows and buckets allow it.
func (o *leaseOwner) Adjust(_ int, tag int64, cost int) (newTag int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls[tag].Charged = cost
	return tag, true
}
