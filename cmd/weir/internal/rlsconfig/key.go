package rlsconfig

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
)

// contextKey is the key of the key of the counter in the context of a call of a limiter of the file.
type contextKey struct{}

func keyed(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, contextKey{}, key)
}

// keyOf is the key function [KeyName]. A limiter that is asked elsewhere, such as in a pipeline, has the key "".
func keyOf(ctx context.Context) string {
	key, _ := ctx.Value(contextKey{}).(string)
	return key
}

// byCounter adapts a limiter of the file that is partitioned by [KeyName], or a chain with such a limiter, to one that is
// partitioned by the key of the counter.
type byCounter struct {
	limiter     limiter.Limiter
	partitioned limiter.Partitioned[context.Context] // nil: it is a chain
}

// TryAcquire implements [limiter.Partitioned].
func (b byCounter) TryAcquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return b.limiter.TryAcquire(keyed(ctx, key), n)
}

// Acquire implements [limiter.Partitioned].
func (b byCounter) Acquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return b.limiter.Acquire(keyed(ctx, key), n)
}

// Peek implements [limiter.PartitionedPeeker]. The error is [errors.ErrUnsupported] if the limiter cannot peek.
func (b byCounter) Peek(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if p, ok := b.limiter.(limiter.Peeker); ok {
		return p.Peek(keyed(ctx, key), n)
	}
	return limiter.Lease{}, fmt.Errorf("a limiter of %T has no Peek: %w", b.limiter, errors.ErrUnsupported)
}

// Charge implements [limiter.PartitionedCharger]. The error is [errors.ErrUnsupported] if the limiter cannot be charged.
func (b byCounter) Charge(ctx context.Context, key string, n int) (limiter.Level, error) {
	if c, ok := b.limiter.(limiter.Charger); ok {
		return c.Charge(keyed(ctx, key), n)
	}
	return limiter.Level{}, fmt.Errorf("a limiter of %T has no Charge: %w", b.limiter, errors.ErrUnsupported)
}

// Limits is that of [limiter.PartitionedLimiter]. Those of a chain are not known.
func (b byCounter) Limits(key string) (l rate.Limits, err error) {
	if of, ok := b.partitioned.(interface {
		Limits(resource context.Context) (rate.Limits, error)
	}); ok {
		return of.Limits(keyed(context.Background(), key))
	}
	return l, nil
}
