// Package deadline has the context that a timeout gives to what it limits.
package deadline

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
)

// A Limit is what the contexts of many executions have in common.
type Limit struct {
	After time.Duration
	Cause error // the cause of a context that ends in time
}

// A Context is the context of an execution with a timeout. As long as nobody asks
// for Done it answers from the clock. The first who does arms it: from then on
// it speaks for a context of the standard library's. That, rather than a channel
// and a timer of its own, is why contexts made from it, also from a value
// context around it, hang on it without a goroutine, end with the same error and
// have the same cause: the context package finds one of its own.
//
// Once Err is not nil it stays the same, and Done is closed: an Err that the
// clock or the parent decides arms it, too.
//
// Its size counts, as each execution allocates one that nobody asks for Done.
type Context struct {
	parent   context.Context
	limit    *Limit
	deadline time.Duration             // on Now's clock, and before the parent's
	wall     atomic.Pointer[time.Time] // what Deadline counts from, from its first call on
	// nil, or ended, or what a standard context was made. It goes from nil to ended, and from either to
	// a standard context, which stays.
	state atomic.Pointer[armed]
}

// An armed is the standard context that a Context speaks for.
type armed struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// ended is the state of a Context that is finished and that nobody had asked for Done.
var ended = new(armed)

// New returns a context that ends at the moment deadline, which is before parent's own. It is to be
// finished.
func New(parent context.Context, l *Limit, deadline time.Duration) *Context {
	return &Context{parent: parent, limit: l, deadline: deadline}
}

// EndsBy reports whether ctx has a deadline that is not after moment.
func EndsBy(ctx context.Context, moment time.Duration) bool {
	if c, ok := ctx.(*Context); ok {
		return c.deadline <= moment
	}
	at, ok := ctx.Deadline()
	if !ok {
		return false
	}
	if hasNoMonotonic(at) { // the wall clock decides
		return time.Until(at) <= moment-clock.Now()
	}
	return clock.Of(at) <= moment
}

// Deadline returns ours: it is earlier than the parent's. It is told from the
// wall clock as that is at the first call, because others may be told of it, and
// stays the same.
func (c *Context) Deadline() (time.Time, bool) {
	from := c.wall.Load()
	if from == nil {
		c.wall.CompareAndSwap(nil, wallClock())
		from = c.wall.Load()
	}
	return from.Add(c.deadline - clock.Of(*from)), true
}

// String does not look at what changes: fmt would, and race with arm.
func (c *Context) String() string {
	return fmt.Sprintf("%v.timeout(%v)", c.parent, c.limit.After)
}

// Done arms the context.
func (c *Context) Done() <-chan struct{} { return c.arm().Done() }

// Err looks at the parent and the clock until the context is armed.
func (c *Context) Err() error {
	if c.state.Load() == nil && early(c.parent) == nil && clock.Now() < c.deadline {
		return nil
	}
	return c.arm().Err()
}

// Value is the parent's. Once armed it is asked through the armed context, which
// makes itself known to the context package that way.
func (c *Context) Value(key any) any {
	if a := c.state.Load(); a != nil && a != ended {
		return a.ctx.Value(key)
	}
	return c.parent.Value(key)
}

// AfterFunc is [context.AfterFunc] of the armed context. It is for those who
// look for the method; the context package needs it no longer.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(c.arm(), f)
}

// arm returns the context that this one speaks for, and makes it if nobody has.
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
			made.ctx, made.cancel = context.WithDeadlineCause(c.parent, at, c.limit.Cause)
		}
		if c.state.CompareAndSwap(a, made) {
			return made.ctx
		}
		made.cancel() // somebody else was first
	}
}

// Finish ends the context, with [context.Canceled] unless somebody has seen it end,
// and tells whether somebody had asked for Done.
func (c *Context) Finish() (asked bool) {
	if c.state.CompareAndSwap(nil, ended) {
		return false
	}
	c.state.Load().cancel()
	return true
}
