package weirhttp

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// An attemptContext is the context of an attempt whose strategies gave it one that ends when they are done, as a
// timeout or a hedge does. With theirs, the base would stop delivering the body that the caller is about to read. So
// this one ends
//
//   - with the strategies' context, until the response is there and detach is called;
//   - with the caller's context from then on;
//   - when end is called, because the body has been read or closed.
//
// The first call of Done makes a context of the standard library, the armed one, and from then on this one answers from
// it: so contexts that are made from this one need no goroutine. Until then it answers from the contexts above.
//
// A nil *attemptContext is that of an attempt that uses the caller's context.
type attemptContext struct {
	caller     context.Context
	strategies context.Context // values come from here

	mu       sync.Mutex
	detached bool            // the strategies' context no longer counts
	ended    error           // what Err returns after end
	armed    context.Context // below the caller's; nil: Done was not called
	cancel   context.CancelCauseFunc
	stop     func() bool // stops the propagation from the strategies' context; nil: there is none
}

// errCancelled is the cause of a context that ended with a request's Cancel channel.
var errCancelled = fmt.Errorf("weirhttp: the request's Cancel channel was closed: %w", context.Canceled)

// withCancelChannel returns a context that ends when ch is closed, too, so that waits of strategies end then. The base
// gets the channel itself, in the request. stop ends the goroutine that this takes.
func withCancelChannel(parent context.Context, ch <-chan struct{}) (ctx context.Context, stop context.CancelCauseFunc) {
	deadline, ok := parent.Deadline() // not on the goroutine, where a panic of the program's context would end the process
	ctx, stop = context.WithCancelCause(parent)
	go func() {
		select {
		case <-ch:
			// An http.Client with a Timeout closes the channel and sets a deadline, both for the same moment.
			// The error must not depend on which of the two is seen first.
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
func (c *attemptContext) Done() <-chan struct{} { return c.arm().Done() }

// arm returns the armed context, which it makes if there is none.
func (c *attemptContext) arm() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed != nil {
		return c.armed
	}
	c.armed, c.cancel = context.WithCancelCause(c.caller)
	switch {
	case c.ended != nil:
		c.cancel(c.ended)
	case c.detached:
	case c.strategies.Err() != nil: // Err may have returned that already
		c.expire()
	default:
		c.stop = context.AfterFunc(c.strategies, c.expire)
	}
	return c.armed
}

// expire ends the armed context with the strategies' context.
func (c *attemptContext) expire() { c.cancel(context.Cause(c.strategies)) }

// Err returns the error of the context that ended this one.
func (c *attemptContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errLocked()
}

func (c *attemptContext) errLocked() error {
	if c.ended != nil {
		return c.ended
	}
	source := c.strategies
	if c.detached {
		source = c.caller
	}
	if c.armed == nil {
		return source.Err()
	}
	// Not nil if and only if Done is closed: the armed context decides whether this one has ended, the source only
	// with which error. Of contexts that end together, one ends first.
	err := c.armed.Err()
	if err == nil {
		return nil
	}
	if sourceErr := source.Err(); sourceErr != nil {
		return sourceErr
	}
	return err
}

// Deadline returns that of the strategies' context until detach, then that of the caller's.
func (c *attemptContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	detached := c.detached
	c.mu.Unlock()
	if detached {
		return c.caller.Deadline()
	}
	return c.strategies.Deadline()
}

// Value returns the value of the strategies' context. The exception is the key by which the context package looks for
// an ancestor that it can hook onto: there it must find the armed context, not one that ends with the strategies. That
// key is unexported, but its value is a context, which shows it.
func (c *attemptContext) Value(key any) any {
	value := c.strategies.Value(key)
	if _, ok := key.(exchangeKey); ok {
		return value
	}
	if _, ok := value.(context.Context); !ok {
		return value
	}
	armed := c.arm()
	if own := armed.Value(key); own == any(armed) {
		return own
	}
	return value
}

// String returns only what never changes: fmt would read all fields, and race with arm.
func (c *attemptContext) String() string { return fmt.Sprintf("%v.attempt", c.strategies) }

// detach makes the context independent of the strategies'. If that one has ended already, detach returns its cause.
func (c *attemptContext) detach() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := c.strategies.Err() != nil
	if c.stop != nil {
		ended = !c.stop()
	}
	if ended {
		return context.Cause(c.strategies)
	}
	c.detached = true
	return nil
}

// end ends the context. It can be called again.
func (c *attemptContext) end() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return
	}
	if c.ended = c.errLocked(); c.ended == nil {
		c.ended = context.Canceled
	}
	if c.stop != nil {
		c.stop()
	}
	if c.cancel != nil {
		c.cancel(context.Canceled)
	}
}
