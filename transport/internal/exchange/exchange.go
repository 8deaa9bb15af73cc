// Package exchange has what the clients and the servers of weirhttp and weirgrpc have in common: one request, or one call,
// with all the attempts that the strategies of a pipeline make at it.
package exchange

import (
	"errors"
	"slices"
	"sync"

	"github.com/weir-go/weir/pipeline"
)

// An Exchange decides which attempts may be made, and remembers how they ended. A is what the program knows of an attempt.
//
//	state                                 another attempt may begin
//	no attempt has begun                  yes
//	an attempt is running                 if Overlap is true and Repeat returns true
//	all have ended, none was processed    yes
//	all have ended, one was processed     if Repeat returns true
//	settled: the caller has its answer    no
type Exchange[A any] struct {
	// Name begins the texts of refusals: "weirhttp: the request".
	Name string
	// Repeat reports whether what an attempt has sent can be sent again. It is called with the Exchange locked.
	Repeat func() bool
	// Overlap is true if attempts can run at the same time.
	Overlap bool
	// Wait is true if attempts use what belongs to the caller, so that Settle waits until none is running.
	Wait bool

	mu        sync.Mutex
	idle      sync.Cond // Settle waits for it
	begun     int       // attempts
	running   int       // attempts
	borrowed  int       // calls of Borrow without Return
	processed bool      // an attempt may have had an effect
	settled   bool
	ended     []A // in the order in which they ended
}

// Begin counts an attempt that begins and returns its number, from 0. If the attempt must not be made, the error is a
// refusal.
func (x *Exchange[A]) Begin() (number int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.settled:
		return 0, x.late()
	case x.running > 0 && !(x.Overlap && x.Repeat()):
		return 0, Refusal(x.Name + " is being sent, and must not be sent twice at the same time")
	case x.processed && !x.Repeat():
		return 0, Refusal(x.Name + " has been sent, and must not be sent again")
	}
	x.running++
	x.begun++
	return x.begun - 1, nil
}

// End records how an attempt ended. processed is false if the attempt certainly had no effect. If the caller has its answer
// already, the error is a refusal.
func (x *Exchange[A]) End(a A, processed bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stopLocked(processed)
	if x.settled {
		return x.late()
	}
	x.ended = append(x.ended, a)
	return nil
}

// Abort is End for an attempt that has panicked or left its goroutine.
func (x *Exchange[A]) Abort() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stopLocked(true)
}

func (x *Exchange[A]) stopLocked(processed bool) {
	x.processed = x.processed || processed
	x.running--
	x.idle.Broadcast()
}

// Borrow reports whether an attempt can use what belongs to the caller. If it returns true, Return must follow, and Settle
// waits for it.
func (x *Exchange[A]) Borrow() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.settled {
		return false
	}
	x.borrowed++
	return true
}

// Return ends what Borrow began.
func (x *Exchange[A]) Return() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.borrowed--
	x.idle.Broadcast()
}

// Settle lets no other attempt begin: the caller gets its answer now. first is false if Settle was called before.
func (x *Exchange[A]) Settle() (first bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	first, x.settled = !x.settled, true
	x.idle.L = &x.mu
	for x.borrowed > 0 || x.Wait && x.running > 0 {
		x.idle.Wait()
	}
	return first
}

// Begun returns how many attempts have begun.
func (x *Exchange[A]) Begun() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.begun
}

// Ended returns the attempts that ended before Settle was called, in the order in which they ended.
func (x *Exchange[A]) Ended() []A {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clip(x.ended)
}

// late returns the refusal of an attempt after the answer.
func (x *Exchange[A]) late() error { return Refusal(x.Name + " has been answered") }

// A Refusal is the error of an attempt that was not made, or that ended after the caller had its answer. A retry does not
// repeat it, and a circuit breaker inside of it does not count it, because it says nothing about the server.
type Refusal string

// IsRefusal reports whether err is or wraps the error of an attempt that was not made.
func IsRefusal(err error) bool {
	_, ok := errors.AsType[Refusal](err)
	return ok
}

func (e Refusal) Error() string        { return string(e) }
func (e Refusal) Is(target error) bool { return target == pipeline.ErrRejected }
func (e Refusal) Retryable() bool      { return false }
func (e Refusal) NotCalled() bool      { return true }

// A FinalError is the error of an attempt after which no other should follow: that would be refused, or fail in the same way,
// and a retry would have waited for nothing.
type FinalError struct{ error }

// Final returns a FinalError that wraps err.
func Final(err error) *FinalError { return &FinalError{err} }

// Unwrap returns the error of the attempt.
func (e *FinalError) Unwrap() error { return e.error }

// Retryable returns false, which stops a retry with any Handle that respects it.
func (e *FinalError) Retryable() bool { return false }
