package rlsconfig

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
)

// A keyed is the context of a call of a limiter of the file. It has the key of the counter.
type keyed struct {
	context.Context
	key string
}

type contextKey struct{}

// Value returns c for the function [keyOf].
func (c *keyed) Value(key any) any {
	if key == (contextKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// keyOf is the key function [KeyName]. A limiter that is asked elsewhere, such as in a pipeline, has the key "".
func keyOf(ctx context.Context) string {
	if c, ok := ctx.Value(contextKey{}).(*keyed); ok {
		return c.key
	}
	return ""
}

// byCounter adapts a limiter of the file that is partitioned by [KeyName], or a chain with such a limiter, to one that is
// partitioned by the key of the counter.
type byCounter struct{ limiter limiter.Limiter }

// Overridden returns the limits that an override has given the limiter of that name; zero if the limits of the file are in force.
type Overridden func(name string) rate.Limits

// inForce returns the limits in force of the limiter of that name, for which the file says configured.
func (o Overridden) inForce(name string, configured rate.Limits) rate.Limits {
	if limits := o(name); limits.Kind == configured.Kind {
		return limits
	}
	return configured
}

// sized is a byCounter whose limits are known, so that the service can tell them.
type sized struct {
	byCounter
	overridden Overridden
	name       string
	limits     rate.Limits // as the file has them
}

// Limits returns the limits of each key.
func (s sized) Limits(string) (rate.Limits, error) {
	return s.overridden.inForce(s.name, s.limits), nil
}

// newByCounter returns l, which has that name, by the key of the counter. limits are those of the limiter of each key; zero
// if l is a chain.
func newByCounter(l limiter.Limiter, overridden Overridden, name string, limits rate.Limits) limiter.Partitioned[string] {
	if limits.Kind == 0 || limits.Kind == rate.Concurrency {
		return byCounter{l}
	}
	return sized{byCounter{l}, overridden, name, limits}
}

// TryAcquire implements [limiter.Partitioned].
func (b byCounter) TryAcquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return b.limiter.TryAcquire(&keyed{ctx, key}, n)
}

// Acquire implements [limiter.Partitioned].
func (b byCounter) Acquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return b.limiter.Acquire(&keyed{ctx, key}, n)
}

// Peek implements [limiter.PartitionedPeeker]. The error is [errors.ErrUnsupported] if the limiter cannot peek.
func (b byCounter) Peek(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if p, ok := b.limiter.(limiter.Peeker); ok {
		return p.Peek(&keyed{ctx, key}, n)
	}
	return limiter.Lease{}, fmt.Errorf("a limiter of %T has no Peek: %w", b.limiter, errors.ErrUnsupported)
}

// Charge implements [limiter.PartitionedCharger]. The error is [errors.ErrUnsupported] if the limiter cannot be charged.
func (b byCounter) Charge(ctx context.Context, key string, n int) (limiter.Level, error) {
	if c, ok := b.limiter.(limiter.Charger); ok {
		return c.Charge(&keyed{ctx, key}, n)
	}
	return limiter.Level{}, fmt.Errorf("a limiter of %T has no Charge: %w", b.limiter, errors.ErrUnsupported)
}
