package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/answerby"
	"github.com/weir-go/weir/internal/contexterror"
	"github.com/weir-go/weir/internal/turn"
)

// A pendingAnswer is the part of a call or leaseCall that its caller waits for. The answer is valid once done is closed,
// if err is nil. What is granted to a caller that has left is given back.
type pendingAnswer struct {
	callerGone <-chan struct{} // closed when the caller's context ends; nil: it never does
	claimed    atomic.Bool     // by the goroutine that answers, or by the caller that leaves
	undecided  atomic.Bool     // set before claimed: the caller's context has ended, so its outage policy does not decide
	err        error
	done       chan struct{}
	onAnswer   func() // if not nil, called instead of closing done
}

// claim reports whether p was not claimed before. Only the goroutine that claims p sets err or answers the caller.
func (p *pendingAnswer) claim() bool { return p.claimed.CompareAndSwap(false, true) }

func (p *pendingAnswer) notify() {
	if p.onAnswer != nil {
		p.onAnswer()
	} else {
		close(p.done)
	}
}

// failWith answers with an error.
func (p *pendingAnswer) failWith(err error) {
	if p.claim() {
		p.err = err
		p.notify()
	}
}

// abandoned reports whether the caller has left. If so, the call has been answered.
func (p *pendingAnswer) abandoned() bool {
	if p.claimed.Load() {
		return true
	}
	if !isClosed(p.callerGone) {
		return false
	}
	p.undecided.Store(true)
	p.failWith(errCallerLeft)
	return true
}

// await waits for the answer. ctx is the caller's.
func (p *pendingAnswer) await(ctx context.Context, limit *time.Timer) error {
	if err := waitUntilDoneOrGone(p.callerGone, limit, p.done); err != nil {
		if err == errCallerLeft { //nolint:errorlint // it is never wrapped
			p.undecided.Store(true)
		}
		if p.claim() {
			p.err = err
		} else {
			<-p.done
		}
	}
	turn.Take(ctx)              // the answer goes to what all callers of the key use
	if p.err == errCallerLeft { //nolint:errorlint // it is never wrapped
		return undecided(ctx)
	}
	return p.err
}

// waitLimit returns a timer for how long a caller waits for an answer: CallTimeout, or less if package answerby says so.
// The round trip goes on: a store that pauses for less than CallTimeout does not count as away.
func (s *Store) waitLimit(ctx context.Context) *time.Timer {
	d := s.o.CallTimeout
	if t, ok := answerby.Of(ctx); ok {
		d = min(d, time.Until(t))
	}
	return time.NewTimer(d)
}

// isHasty reports whether a caller may need an answer before CallTimeout.
func isHasty(ctx context.Context) bool {
	_, ok := answerby.Of(ctx)
	return ok
}

// errCallerLeft means that the caller's context has ended. Only the caller's goroutine asks the context for its error.
// A context is the program's code: if it panicked on a goroutine of this package, or under a lock, what was granted
// would be lost.
var errCallerLeft = errors.New("the caller has left")

func isClosed(gone <-chan struct{}) bool {
	select {
	case <-gone:
		return true
	default:
		return false
	}
}

// An undecidedError is the error of a call whose context has ended before the store answered. A caller whose context
// ends in the queue gets the context's error instead, because the store has answered that there are no permits.
type undecidedError struct{ err error }

func undecided(ctx context.Context) error {
	err := contexterror.Of(ctx)
	if err == nil { // the program's own type of context can close Done while Err is still nil
		err = errCallerLeft
	}
	return &undecidedError{err}
}

func (e *undecidedError) Error() string { return e.err.Error() }

func (e *undecidedError) Unwrap() error { return e.err }

// Undecided returns true: the limiter took no decision before the caller's context ended.
func (e *undecidedError) Undecided() bool { return true }

// waitUntilDone returns nil when done is closed, or an error if ctx ends or limit fires first.
func waitUntilDone(ctx context.Context, limit *time.Timer, done <-chan struct{}) error {
	err := waitUntilDoneOrGone(ctx.Done(), limit, done)
	if err == errCallerLeft { //nolint:errorlint // it is never wrapped
		return undecided(ctx)
	}
	return err
}

// waitUntilDoneOrGone is waitUntilDone without a context: the error is errCallerLeft if gone is closed.
func waitUntilDoneOrGone(gone <-chan struct{}, limit *time.Timer, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-gone:
		return errCallerLeft
	case <-limit.C:
		return unavailable(errTimeout)
	}
}
