package weirhttp

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A lifetime is the context of an attempt whose strategies gave it one that ends
// when they are done, as a timeout's or a hedge's does: with it the base would stop
// to deliver the body that the caller is about to read. Until the response is there,
// this one ends with theirs. From then on it ends with the caller's, and when the
// body has been read or closed.
//
// Like a timeout's it is armed by the first who asks for Done: from then on it speaks
// for a context of the standard library's, so that those made from it need no
// goroutine. Until then it answers from the contexts it depends on.
//
// A nil *lifetime is that of an attempt that needs none.
type lifetime struct {
	caller     context.Context
	strategies context.Context // what they gave; values come from here

	mu       sync.Mutex
	detached bool            // the strategies do not count any more
	ended    error           // what Err returns once it has been ended
	armed    context.Context // below the caller's; nil: nobody has asked for Done
	cancel   context.CancelCauseFunc
	stop     func() bool // no longer listen to the strategies'; nil if nobody does
}

// lifetime returns the context that the base gets for an attempt with the strategies' ctx.
func (a *attempt) lifetime(ctx context.Context) context.Context {
	x := a.exchange
	if ctx == context.Context(x) && !x.cancellable {
		return ctx // it ends when the caller's does
	}
	a.life = &lifetime{caller: x.caller, strategies: ctx}
	return a.life
}

// errCancelled is the cause of the end of a context that ended with a request's Cancel
// channel.
var errCancelled = fmt.Errorf("weirhttp: the request's Cancel channel was closed: %w", context.Canceled)

// withCancelChannel returns a context that ends when ch is closed, too, so that waits of
// strategies end then. The base gets the channel itself, as part of the request. stop
// ends the goroutine that this takes.
func withCancelChannel(parent context.Context, ch <-chan struct{}) (ctx context.Context, stop context.CancelCauseFunc) {
	deadline, ok := parent.Deadline() // not on the goroutine, where a panic of the caller's context ends the process
	ctx, stop = context.WithCancelCause(parent)
	go func() {
		select {
		case <-ch:
			// An http.Client with a Timeout closes the channel and sets a deadline, both for the same moment.
			// Which of the two is seen first must not decide what the error says.
			if ok && !time.Now().Before(deadline) {
				<-ctx.Done()
				return
			}
			stop(errCancelled)
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

// Done arms the context.
func (l *lifetime) Done() <-chan struct{} { return l.arm().Done() }

func (l *lifetime) arm() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.armed != nil {
		return l.armed
	}
	l.armed, l.cancel = context.WithCancelCause(l.caller)
	switch {
	case l.ended != nil:
		l.cancel(l.ended)
	case l.detached:
	case l.strategies.Err() != nil: // as our Err may have said already
		l.expire()
	default:
		l.stop = context.AfterFunc(l.strategies, l.expire)
	}
	return l.armed
}

// expire ends it with the strategies' context.
func (l *lifetime) expire() { l.cancel(context.Cause(l.strategies)) }

// Err is of the kind that the context ended with that it depends on.
func (l *lifetime) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errLocked()
}

func (l *lifetime) errLocked() error {
	if l.ended != nil {
		return l.ended
	}
	counts := l.strategies
	if l.detached {
		counts = l.caller
	}
	if l.armed == nil {
		return counts.Err()
	}
	// Not nil if, and only if, Done is closed: of contexts that end together one ends
	// first.
	err := l.armed.Err()
	if err == nil {
		return nil
	}
	if theirs := counts.Err(); theirs != nil {
		return theirs
	}
	return err
}

// Deadline is the strategies' as long as it counts.
func (l *lifetime) Deadline() (time.Time, bool) {
	l.mu.Lock()
	detached := l.detached
	l.mu.Unlock()
	if detached {
		return l.caller.Deadline()
	}
	return l.strategies.Deadline()
}

// Value asks the strategies' context: what they put there is for the base, too. Only
// where the context package looks for the context of its own that ends, it must not
// find one of theirs. That a value is a context is how to tell.
func (l *lifetime) Value(key any) any {
	value := l.strategies.Value(key)
	if _, ok := key.(exchangeKey); ok {
		return value
	}
	if _, ok := value.(context.Context); !ok {
		return value
	}
	armed := l.arm()
	if own := armed.Value(key); own == any(armed) {
		return own
	}
	return value
}

// String does not look at what changes, as fmt would.
func (l *lifetime) String() string { return fmt.Sprintf("%v.attempt", l.strategies) }

// detach makes it independent of the strategies. It returns why it is too late for
// that, or nil.
func (l *lifetime) detach() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := l.strategies.Err() != nil
	if l.stop != nil {
		ended = !l.stop()
	}
	if ended {
		return context.Cause(l.strategies)
	}
	l.detached = true
	return nil
}

// end ends it. It may be called again.
func (l *lifetime) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return
	}
	if l.ended = l.errLocked(); l.ended == nil {
		l.ended = context.Canceled
	}
	if l.stop != nil {
		l.stop()
	}
	if l.cancel != nil {
		l.cancel(context.Canceled)
	}
}
