package limiter

import (
	"context"
	"sync/atomic"
	"time"
)

// tracked is a limiter that does not know how long it has been idle, with what
// can be seen from outside: when it was last used, and whether it has leases out.
type tracked struct {
	Limiter
	used atomic.Int64 // moment
	held atomic.Int64 // leases out
}

func track(l Limiter) *tracked {
	t := &tracked{Limiter: l}
	t.used.Store(clock())
	return t
}

// untracked returns the limiter that the user made.
func untracked(l Limiter) Limiter {
	if t, ok := l.(*tracked); ok {
		return t.Limiter
	}
	return l
}

func (t *tracked) TryAcquire(ctx context.Context, n int) (Lease, error) {
	return t.lease(t.Limiter.TryAcquire(ctx, n))
}

func (t *tracked) Acquire(ctx context.Context, n int) (Lease, error) {
	return t.lease(t.Limiter.Acquire(ctx, n))
}

func (t *tracked) lease(l Lease, err error) (Lease, error) {
	t.used.Store(clock())
	if l.Acquired() {
		t.held.Add(1)
		l = l.ownedBy(&trackedLease{lease: l, by: t})
	}
	return l, err
}

// IdleDuration returns the time since the last call ended or lease was released.
func (t *tracked) IdleDuration() (idle time.Duration, ok bool) {
	if t.held.Load() > 0 {
		return 0, false
	}
	return time.Duration(max(clock()-t.used.Load(), 0)), true
}

// trackedLease owns a lease of a tracked limiter.
type trackedLease struct {
	lease  Lease
	by     *tracked
	done   atomic.Bool
	before *trackedLease // the same lease before it was adjusted; whose done counts
}

func (t *trackedLease) release(int, int64) { t.settle(Lease.Release) }
func (t *trackedLease) refund(int, int64)  { t.settle(Lease.undo) }

func (t *trackedLease) settle(f func(Lease)) {
	first := t
	for first.before != nil {
		first = first.before
	}
	if !first.done.CompareAndSwap(false, true) {
		return
	}
	defer func() {
		t.by.used.Store(clock())
		t.by.held.Add(-1)
	}()
	f(t.lease)
}
