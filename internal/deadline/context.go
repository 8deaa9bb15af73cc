// Package deadline has the context of an execution that package timeout limits.
package deadline

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
)

// A Context is the context of an execution with a timeout. Until Done is called, Err reads the clock, and there is no
// timer. The first call of Done arms the Context: from then on its methods are those of a context of the standard
// library. So a context that is made from it, even from a value context around it, needs no goroutine, ends with the same
// error and has the same cause, because package context finds one of its own inside.
//
// Once Err has returned an error, it returns the same one forever, and Done is closed: an Err that the clock or the
// parent decides arms the Context, too.
//
// Its size matters, because an execution that does not call Done allocates nothing else.
type Context struct {
	parent   context.Context
	cause    error         // the context.Cause once the deadline has passed
	deadline time.Duration // by clock.Now, and before the parent's
	// state is nil, then ended if Finish comes first, then the standard context, which stays. It can skip ended.
	state atomic.Pointer[armed]
}

// An armed is the standard context of a Context.
type armed struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// ended is the state of a Context that was finished before it was armed.
var ended = new(armed)

// New returns a context that ends at the moment deadline, which must be before the deadline of parent, with that cause. The
// caller must call Finish.
func New(parent context.Context, cause error, deadline time.Duration) *Context {
	return &Context{parent: parent, cause: cause, deadline: deadline}
}

// Err is ctx.Err, except that it does not read the clock for a [Context] that is not armed. It is for code on the way from
// a timeout to the callback, such as a limiter: no time goes by there, unless it waits for Done, which arms the context.
func Err(ctx context.Context) error {
	c, ok := ctx.(*Context)
	if !ok {
		return ctx.Err()
	}
	if c.state.Load() == nil && Err(c.parent) == nil {
		return nil
	}
	return c.arm().Err()
}

// Deadline returns the deadline in terms of the wall clock as that is now, because a caller can hand it to another machine.
func (c *Context) Deadline() (time.Time, bool) {
	now := time.Now()
	return now.Add(c.deadline - clock.Of(now)), true
}

// String does not read fields that change: without it, fmt would, and race with arm.
func (c *Context) String() string {
	return fmt.Sprintf("%v.timeout(%v)", c.parent, c.cause)
}

// Done arms the context.
func (c *Context) Done() <-chan struct{} { return c.arm().Done() }

// Err reads the parent's Err and the clock until the context is armed.
func (c *Context) Err() error {
	if c.state.Load() == nil && Err(c.parent) == nil && clock.Now() < c.deadline {
		return nil
	}
	return c.arm().Err()
}

// Value returns the parent's value. If the Context is armed, it does so through the standard context, which package
// context finds by a key of its own.
func (c *Context) Value(key any) any {
	if a := c.state.Load(); a != nil && a != ended {
		return a.ctx.Value(key)
	}
	return c.parent.Value(key)
}

// AfterFunc is [context.AfterFunc] of the armed context, for code that looks for the method.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(c.arm(), f)
}

// arm returns the standard context, and makes it if there is none yet.
func (c *Context) arm() context.Context {
	for {
		a := c.state.Load()
		if a != nil && a != ended {
			return a.ctx
		}
		made := new(armed)
		if a == ended {
			made.ctx, made.cancel = context.WithCancel(c.parent)
			made.cancel()
		} else {
			at, _ := c.Deadline()
			made.ctx, made.cancel = context.WithDeadlineCause(c.parent, at, c.cause)
		}
		if c.state.CompareAndSwap(a, made) {
			return made.ctx
		}
		made.cancel() // another goroutine was first
	}
}

// Finish ends the context, with [context.Canceled] unless it has ended before.
func (c *Context) Finish() {
	if !c.state.CompareAndSwap(nil, ended) {
		c.state.Load().cancel()
	}
}
