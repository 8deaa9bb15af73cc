// Package exchange decides which attempts of a pipeline's strategies at one request or call may be made. The clients and the servers
// of weirhttp and weirgrpc use it.
package exchange

import (
	"errors"
	"slices"
	"sync"

	"github.com/weir-go/weir/pipeline"
)

// An Exchange is one request with all attempts at it. A describes an attempt.
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
	// Repeat reports whether the request can be sent again. It is called with the Exchange locked.
	Repeat func() bool
	// Overlap is true if attempts can run at the same time.
	Overlap bool
	// Wait makes Settle wait until no attempt is running, because attempts use values of the caller.
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

// Borrow reports whether an attempt can use a value of the caller. If it returns true, Return must follow, and Settle waits for it.
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

// late returns the error of an attempt after Settle.
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
