package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Peek returns what TryAcquire(ctx, n) would return now; see [Peeker].
func (b *bucket) Peek(ctx context.Context, n int) (Lease, error) {
	now, ctxErr := moment(), ctx.Err()
	b.mu.Lock() // and not lock, which would begin the grid of a bucket that was not used yet
	if b.state() == nil {
		b.current.Store(notMade)
	}
	return peek(ctx, ctxErr, b, now, n)
}

// Peek returns what TryAcquire(ctx, n) would return now; see [Peeker].
func (w *window) Peek(ctx context.Context, n int) (Lease, error) {
	now, ctxErr := moment(), ctx.Err()
	w.mu.Lock()
	return peek(ctx, ctxErr, w, now, n)
}

// Peek returns what TryAcquire(ctx, n) would return now; see [Peeker].
func (c *Concurrency) Peek(ctx context.Context, n int) (Lease, error) {
	ctxErr := ctx.Err()
	c.mu.Lock()
	return peek(ctx, ctxErr, c, 0, n)
}

// peek is Peek. e is locked; peek unlocks it. ctxErr is ctx's error from before the lock was taken.
func peek(ctx context.Context, ctxErr error, e engine, now int64, n int) (Lease, error) {
	c := e.view()
	limit, inRange, closed := c.limit, c.inRange(n), c.closed
	if ctxErr != nil || !inRange || closed {
		e.unlock()
		return Lease{}, callError(ctx, ctxErr, n, limit, inRange, false)
	}
	defer e.unlock()
	e.catchUp(now)
	if mayPass(&e.view().queue, e.free(), n) {
		return peeked(n), nil
	}
	return rejected(e.retryAfter(now, n), noReason), nil
}

// peeked returns the lease of a Peek at permits that would be granted.
func peeked(n int) Lease { return Lease{owner: noOwner{}, n: n} }

// Peek returns what TryAcquire(ctx, n) would return now; see [Peeker].
func (u *Unlimited) Peek(ctx context.Context, n int) (Lease, error) {
	if err := argumentError(ctx, n, false); err != nil {
		return Lease{}, err
	}
	if u.closed.Load() {
		return Lease{}, ErrClosed
	}
	return peeked(n), nil
}

// Peek returns what TryAcquire(ctx, n) would return now; see [Peeker]. It asks the limiters in order, up to the first
// that would reject. The error is [errors.ErrUnsupported] if one of those is no [Peeker].
func (c *Chained) Peek(ctx context.Context, n int) (Lease, error) {
	if err := argumentError(ctx, n, false); err != nil {
		return Lease{}, err
	}
	if c.closed.Load() {
		return Lease{}, ErrClosed
	}
	return peekAll(c.members, n, func(i int) (Lease, error) { return peekLimiter(ctx, c.limiters[i], n) })
}

// peekLimiter calls the Peek of any limiter.
func peekLimiter(ctx context.Context, l Limiter, n int) (Lease, error) {
	if p, ok := l.(Peeker); ok {
		return p.Peek(ctx, n)
	}
	return Lease{}, noPeekError(l)
}

func noPeekError(l any) error {
	return fmt.Errorf("limiter: a %T has no Peek: %w", l, errors.ErrUnsupported)
}

// peekAll is takeAll for Peek.
func peekAll(members []member, n int, peek func(i int) (Lease, error)) (Lease, error) {
	granted := make([]Lease, len(members))
	for i := range members {
		l, err := peek(i)
		if err != nil {
			return Lease{}, members[i].failed(err)
		}
		if !l.Acquired() {
			return members[i].rejected(l), nil
		}
		granted[i] = l
	}
	return withMetadataOf(granted, peeked(n)), nil
}

// withMetadataOf returns l with the metadata of all leases. If several have a value of the same name, that of the first
// counts.
func withMetadataOf(leases []Lease, l Lease) Lease {
	for _, member := range slices.Backward(leases) {
		for name, value := range member.Metadata() {
			l = l.with(name, value)
		}
	}
	return l
}
