package deadline

import (
	"context"
	"math"
	"time"

	"github.com/weir-go/weir/internal/clock"
)

// An Early is a Context on its way from the timeout to the callback, as long as it passes only strategies that are
// [Instant]. No time goes by there, unless a strategy waits for Done, which arms the context. So its Err does not read the
// clock: pipeline and several strategies call Err on the way, and reading the clock each time took half of the time of
// such an execution.
//
// Only instant strategies and package pipeline get an Early. All other code gets its [Full] context.
type Early Context

// Early returns c in the form for instant strategies.
func (c *Context) Early() *Early { return (*Early)(c) }

// Full returns the Context of an [Early], and any other context as it is.
func Full(ctx context.Context) context.Context {
	if e, ok := ctx.(*Early); ok {
		return (*Context)(e)
	}
	return ctx
}

// early returns the Err of the parent of a Context, without the clock: the parent's deadline is later.
func early(ctx context.Context) error {
	if c, ok := ctx.(*Context); ok {
		return c.Early().Err()
	}
	return ctx.Err()
}

// Err is the Err of the Context, but does not read the clock.
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

// NowIn returns clock.Now in an instant strategy that got ctx. If ctx is an Early and not armed, it does not read the
// clock, because no time has gone by since ctx was made.
func NowIn(ctx context.Context) time.Duration {
	if e, ok := ctx.(*Early); ok {
		if c := (*Context)(e); c.state.Load() == nil && c.deadline < math.MaxInt64 {
			return c.deadline - c.limit.After
		}
	}
	return clock.Now()
}

// An Instant is embedded in a strategy that takes an [Early] context, and in a listener that can be called during an
// execution with one. Such a strategy takes no time before it runs next, except by waiting for Done, and hands the context
// to other code only as its [Full] context. Such a listener takes no time, and calls no function of the program.
//
// The zero Instant is that of a strategy or a listener that is not instant.
type Instant struct{ self any }

// InstantIf returns the Instant to embed in what self points to, which is instant if is.
func InstantIf(is bool, self any) Instant {
	if !is {
		self = nil
	}
	return Instant{self}
}

func (i Instant) instantSelf() any { return i.self }

// IsInstant reports whether a strategy or a listener is instant. A type of the program that embeds an instant one has its
// methods, but is not instant.
func IsInstant(v any) bool {
	i, ok := v.(interface{ instantSelf() any })
	return ok && i.instantSelf() == v
}
