package limiter

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// A tracked limiter wraps a custom limiter of a partition, or a chain, because a chain can have custom members.
// Housekeeping calls none of its methods with a lock held, so tracked itself counts what has to be read under a lock:
// how often the limiter was called and, if it is no [Idler], when it was last used and how many of its leases are held.
type tracked struct {
	Limiter
	idler  Idler       // nil: idle while unused and without leases
	manual Replenisher // nil: it replenishes by itself, or there is nothing to replenish
	busy   atomic.Bool // housekeeping or an eviction is calling one of its methods

	calls   atomic.Int64 // calls begun
	lastUse atomic.Int64 // moment of the last use; only without an idler
	held    atomic.Int64 // leases not yet given back; only without an idler
}

// track returns l as a tracked limiter.
func track(l Limiter) *tracked {
	t := &tracked{Limiter: l}
	if knowsIdle(l) {
		t.idler, _ = l.(Idler)
	}
	if r, ok := l.(Replenisher); ok && !r.AutoReplenishing() {
		t.manual = r
	}
	t.lastUse.Store(moment())
	return t
}

// knowsIdle reports whether l can ever say that it is idle. A chain cannot if one of its members cannot.
func knowsIdle(l Limiter) bool {
	if c, ok := l.(*Chained); ok {
		return !slices.ContainsFunc(c.limiters, func(l Limiter) bool { return !knowsIdle(l) })
	}
	_, ok := l.(Idler)
	return ok
}

// untracked returns the limiter that the factory made.
func untracked(l Limiter) Limiter {
	if t, ok := l.(*tracked); ok {
		return t.Limiter
	}
	return l
}

func (t *tracked) TryAcquire(ctx context.Context, n int) (Lease, error) {
	t.calls.Add(1)
	return t.lease(t.Limiter.TryAcquire(ctx, n))
}

func (t *tracked) Acquire(ctx context.Context, n int) (Lease, error) {
	t.calls.Add(1)
	return t.lease(t.Limiter.Acquire(ctx, n))
}

// Charge charges the limiter if it can be charged. Only permits that are taken are a use of it.
func (t *tracked) Charge(ctx context.Context, n int) (Level, error) {
	if n > 0 {
		t.calls.Add(1)
		if t.idler == nil {
			defer func() { t.lastUse.Store(moment()) }()
		}
	}
	return chargeLimiter(ctx, t.Limiter, n)
}

// lease returns the limiter's answer. If the limiter is no [Idler], it counts the lease.
func (t *tracked) lease(l Lease, err error) (Lease, error) {
	if t.idler != nil {
		return l, err
	}
	t.lastUse.Store(moment())
	if l.Acquired() {
		t.held.Add(1)
		l = l.ownedBy(&trackedLease{lease: l, by: t})
	}
	return l, err
}

// IdleDuration returns the limiter's own IdleDuration, or the time since the last call ended or lease was released.
func (t *tracked) IdleDuration() (idle time.Duration, ok bool) {
	switch {
	case t.idler != nil:
		return t.idler.IdleDuration()
	case t.held.Load() > 0:
		return 0, false
	}
	return time.Duration(max(moment()-t.lastUse.Load(), 0)), true
}

// trackedLease is the owner of a lease of a tracked limiter.
type trackedLease struct {
	lease Lease
	by    *tracked
	returnOnce
}

func (t *trackedLease) release(int, int64) { t.settle(Lease.Release) }
func (t *trackedLease) refund(int, int64)  { t.settle(Lease.Refund) }

// settle calls f with the lease, unless the lease was released or refunded before.
func (t *trackedLease) settle(f func(Lease)) {
	if !t.first() {
		return
	}
	defer func() {
		t.by.lastUse.Store(moment())
		t.by.held.Add(-1)
	}()
	f(t.lease)
}

func (t *trackedLease) adjust(_ int, tag int64, cost int) (owner, int64, bool) {
	lease, ok := t.lease.Adjust(cost)
	if !ok {
		return t, tag, false
	}
	return &trackedLease{lease: lease, by: t.by, returnOnce: returnOnce{original: &t.returnOnce}}, tag, true
}
