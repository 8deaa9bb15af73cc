package timeout

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// limited is the context of an execution with a timeout. As long as nobody asks
// for Done it answers from the clock. The first who does arms it: from then on
// it speaks for a context of the standard library's. That, rather than a channel
// and a timer of its own, is why contexts made from it, also from a value
// context around it, hang on it without a goroutine, end with the same error and
// have the same cause: the context package finds one of its own.
//
// Once Err is not nil it stays the same, and Done is closed: an Err that the
// clock or the parent decides arms it, too.
type limited struct {
	parent   context.Context
	deadline time.Duration // on sinceStart's clock
	cause    *Error

	state  atomic.Uint32
	arming sync.Mutex
	at     time.Time // what Deadline returns, from the first call on; under arming
	// Written once, under arming; read by others once state is armed.
	armed  context.Context
	cancel context.CancelFunc
}

// The states of a limited context. It goes from fresh to armed, or to finished,
// and from there to armed.
const (
	fresh    uint32 = iota
	finished        // the strategy has returned, and nobody had asked for Done
	armed
)

// Deadline returns ours: it is earlier than the parent's. It is told from the
// wall clock as that is at the first call, because others may be told of it, and
// stays the same.
func (c *limited) Deadline() (time.Time, bool) {
	c.arming.Lock()
	defer c.arming.Unlock()
	return c.atLocked(), true
}

// String does not look at what changes: fmt would, and race with arm.
func (c *limited) String() string {
	return fmt.Sprintf("%v.timeout(%v)", c.parent, c.cause.After)
}

func (c *limited) atLocked() time.Time {
	if c.at.IsZero() {
		now := time.Now()
		c.at = now.Add(c.deadline - now.Sub(processStart))
	}
	return c.at
}

// Done arms the context.
func (c *limited) Done() <-chan struct{} { return c.arm().Done() }

// Err looks at the parent and the clock until the context is armed.
func (c *limited) Err() error {
	switch c.state.Load() {
	case armed:
		return c.armed.Err()
	case fresh:
		if c.parent.Err() == nil && sinceStart() < c.deadline {
			return nil
		}
	}
	return c.arm().Err()
}

// Value is the parent's. Once armed it is asked through the armed context, which
// makes itself known to the context package that way.
func (c *limited) Value(key any) any {
	if c.state.Load() == armed {
		return c.armed.Value(key)
	}
	return c.parent.Value(key)
}

// AfterFunc is [context.AfterFunc] of the armed context. It is for those who
// look for the method; the context package needs it no longer.
func (c *limited) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(c.arm(), f)
}

// arm returns the context that this one speaks for, and makes it if nobody has.
func (c *limited) arm() context.Context {
	if c.state.Load() == armed {
		return c.armed
	}
	c.arming.Lock()
	defer c.arming.Unlock()
	if c.armed != nil {
		return c.armed
	}
	if c.state.Load() == finished {
		c.armed, c.cancel = context.WithCancel(c.parent)
	} else {
		c.armed, c.cancel = context.WithDeadlineCause(c.parent, c.atLocked(), c.cause)
	}
	if !c.state.CompareAndSwap(fresh, armed) {
		// The strategy has returned, if only just now: finish saw nothing to cancel.
		c.cancel()
		c.state.Store(armed)
	}
	return c.armed
}

// finish ends the context, with [context.Canceled] unless somebody has seen it end,
// and tells whether somebody had asked for Done.
func (c *limited) finish() (asked bool) {
	if c.state.CompareAndSwap(fresh, finished) {
		return false
	}
	c.cancel()
	return true
}
