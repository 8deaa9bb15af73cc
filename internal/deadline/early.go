package deadline

import (
	"context"
	"math"
	"time"

	"github.com/weir-go/weir/internal/clock"
)

// An Early is a Context on its way from the timeout to the callback, as long as it passes only
// strategies that are [Instant]: no time goes by there unless a strategy waits for Done, which arms the
// context. So its Err does not read the clock. Several ask on the way whether the context has ended, and
// to read the clock for each took half of the time of such an execution.
//
// Only instant strategies and package pipeline see an Early. Everybody else gets its [Full] context.
type Early Context

// Early returns c as instant strategies see it.
func (c *Context) Early() *Early { return (*Early)(c) }

// Full returns the Context of an [Early], and any other context as it is.
func Full(ctx context.Context) context.Context {
	if e, ok := ctx.(*Early); ok {
		return (*Context)(e)
	}
	return ctx
}

// early is the Err of an ancestor: its deadline is later, so its clock need not be asked.
func early(ctx context.Context) error {
	if c, ok := ctx.(*Context); ok {
		return c.Early().Err()
	}
	return ctx.Err()
}

// Err looks at the parent until the context is armed, and not at the clock.
func (e *Early) Err() error {
	c := (*Context)(e)
	if c.state.Load() == nil && early(c.parent) == nil {
		return nil
	}
	return c.arm().Err()
}

// Deadline is that of the Context.
func (e *Early) Deadline() (time.Time, bool) { return (*Context)(e).Deadline() }

// Done is that of the Context.
func (e *Early) Done() <-chan struct{} { return (*Context)(e).Done() }

// Value is that of the Context.
func (e *Early) Value(key any) any { return (*Context)(e).Value(key) }

// String is that of the Context.
func (e *Early) String() string { return (*Context)(e).String() }

// NowIn is Now where ctx is handed on. It does not read the clock if ctx is an Early that nobody waits with: no
// time has gone by since it was made.
func NowIn(ctx context.Context) time.Duration {
	if e, ok := ctx.(*Early); ok {
		if c := (*Context)(e); c.state.Load() == nil && c.deadline < math.MaxInt64 {
			return c.deadline - c.limit.After
		}
	}
	return clock.Now()
}

// Instant is embedded in a strategy that takes an [Early] context, and in a listener that may be told of an
// execution with one. Such a strategy takes no time before it runs the rest of the pipeline, except by waiting for
// Done, and hands the context to nobody else without [Full]. Such a listener takes no time, and calls no function of
// the program.
type Instant struct{ self any }

// InstantIf returns the Instant of self, a pointer to what it is embedded in, if that is one; else the Instant of
// what is none.
func InstantIf(is bool, self any) Instant {
	if !is {
		self = nil
	}
	return Instant{self}
}

func (i Instant) instantSelf() any { return i.self }

// IsInstant reports whether a strategy or a listener is instant. One of the program that embeds an instant one has
// its methods, and is none.
func IsInstant(v any) bool {
	i, ok := v.(interface{ instantSelf() any })
	return ok && i.instantSelf() == v
}
