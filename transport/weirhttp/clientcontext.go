package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/transport/internal/admission"
)

// An attemptContext is the context that the base gets for an attempt. Strategies such as a timeout or a hedge run the
// attempt with a context that ends when the strategies are done. If the base got the strategies' context, it would then
// stop delivering the body that the caller is about to read. So an attemptContext ends
//
//   - with the strategies' context, until the response is there and detach is called;
//   - with the caller's context from then on;
//   - when end is called, because the body has been read or closed.
//
// The first call of Done makes a context of package context, the field standard. From then on the methods answer from
// standard: package context can hook child contexts onto it without a goroutine. Until then the methods answer from
// caller and strategies.
//
// If an attempt uses the caller's context, its *attemptContext is nil.
type attemptContext struct {
	caller     context.Context
	strategies context.Context // values come from here

	mu       sync.Mutex
	detached bool            // the strategies' context no longer counts
	ended    error           // what Err returns after end
	standard context.Context // a child of caller; nil: Done was not called
	cancel   context.CancelCauseFunc
	stop     func() bool // stops the propagation from the strategies' context; nil: there is none
}

// errCancelled is the cause of a context that ended with a request's Cancel channel.
var errCancelled = fmt.Errorf("weirhttp: the request's Cancel channel was closed: %w", context.Canceled)

// withCancelChannel returns a child of parent that also ends when ch is closed, so that closing ch ends the waits of
// strategies. The base gets ch itself, in the request. stop ends the goroutine that waits for ch.
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

// Done returns the Done of the standard context.
func (c *attemptContext) Done() <-chan struct{} { return c.makeStandard().Done() }

// makeStandard returns the standard context, and makes it if there is none.
func (c *attemptContext) makeStandard() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.standard != nil {
		return c.standard
	}
	c.standard, c.cancel = context.WithCancelCause(c.caller)
	switch {
	case c.ended != nil:
		c.cancel(c.ended)
	case c.detached:
	case c.strategies.Err() != nil: // a call of Err may already have returned this error
		c.expire()
	default:
		c.stop = context.AfterFunc(c.strategies, c.expire)
	}
	return c.standard
}

// expire ends the standard context with the strategies' context.
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
	if c.standard == nil {
		return source.Err()
	}
	// Err must be nil as long as Done is open. The source can end a moment before the standard context does, so the
	// standard context decides whether there is an error, and the source only which error it is.
	err := c.standard.Err()
	if err == nil {
		return nil
	}
	if sourceErr := source.Err(); sourceErr != nil {
		return sourceErr
	}
	return err
}

// Deadline returns the deadline of the strategies' context until detach is called, then the deadline of the caller's.
func (c *attemptContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	detached := c.detached
	c.mu.Unlock()
	if detached {
		return c.caller.Deadline()
	}
	return c.strategies.Deadline()
}

// Value returns the value of the strategies' context, with one exception. Package context looks for an ancestor to hook
// a child onto with an unexported key whose value is a context. For that key Value must return the standard context:
// otherwise the child would end with the strategies.
func (c *attemptContext) Value(key any) any {
	value := c.strategies.Value(key)
	switch key.(type) {
	case exchangeKey, holding.Key, callKey, admission.CallKey[*http.Request]:
		return value
	}
	if _, ok := value.(context.Context); !ok {
		return value
	}
	standard := c.makeStandard()
	if own := standard.Value(key); own == any(standard) {
		return own
	}
	return value
}

// String returns only what never changes: fmt would read all fields, and race with makeStandard.
func (c *attemptContext) String() string { return fmt.Sprintf("%v.attempt", c.strategies) }

// detach makes c independent of the strategies' context. If the strategies' context has already ended, detach returns
// its cause.
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
