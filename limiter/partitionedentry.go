package limiter

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/rate"
)

// An entry is one partition: its key, and its limiter in the same object, if that is a bucket that a factory of this
// package made. Any other limiter is a [tracked] one, which the shard has beside its table, and the bucket is a zero one.
// There can be millions of entries, so there is nothing else in them: with a string, they are one cache line.
//
// An entry goes into its shard's table once, and out of it once, under the shard's lock, and is never used for another
// key. Using a limiter and forgetting its partition exclude each other in two ways:
//
//   - A bucket is used without a lock but its own. It is forgotten under the locks of the shard and of the bucket, in that
//     order, if it is full, and is then closed: a caller that comes too late gets [ErrClosed], and looks the key up again.
//   - A tracked limiter is pinned, under the shard's lock, while it is used.
type entry[K comparable] struct {
	key K
	TokenBucket
}

// hasBucket reports whether the limiter is the bucket.
func (e *entry[K]) hasBucket() bool { return e.state() != nil }

// A partition is an entry with its limiter.
type partition[K comparable] struct {
	*entry[K]
	tracked *tracked // nil: the limiter is the entry's bucket
}

// newPartition returns a partition with a limiter that a factory has made.
func newPartition[K comparable](key K, l Limiter) partition[K] {
	var b *bucket
	switch l := l.(type) {
	case *TokenBucket:
		b = &l.bucket
	case *FixedWindow:
		b = &l.bucket
	}
	if b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if s := b.state(); s != nil {
			if e, ok := s.madeIn.(*entry[K]); ok && &e.bucket == b { // and not a copy of that bucket
				e.key = key
				b.settle()
				return partition[K]{entry: e}
			}
		}
	}
	return partition[K]{&entry[K]{key: key}, track(l)}
}

// limiter returns the limiter that the factory made.
func (p partition[K]) limiter() Limiter {
	switch {
	case p.tracked != nil:
		return p.tracked.Limiter
	case p.state().kind == rate.FixedWindow:
		return (*FixedWindow)(&p.TokenBucket)
	}
	return &p.TokenBucket
}

// pin keeps the partition from being forgotten until unpin. The shard is locked.
func (p partition[K]) pin() {
	if p.tracked != nil {
		p.tracked.uses.Add(onePin)
	}
}

// unpin ends the use of the limiter.
func (p partition[K]) unpin() {
	if p.tracked != nil {
		p.tracked.uses.Add(^uint64(onePin - 1))
	}
}

// isFull reports whether the bucket has been full for more than minIdle nanoseconds. A bucket whose first call is under
// way has not been. If closing is true, a bucket that is full is closed in the same step.
func (b *bucket) isFull(minIdle, now int64, closing bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.line == notBegun {
		b.line = now
		return false
	}
	if !b.state().closed {
		b.catchUp(now)
	}
	if b.missing > 0 || max(now-b.idleSince(), 0) <= minIdle {
		return false
	}
	if closing {
		b.close()
	}
	return true
}

// A tracked limiter is one that is not a bucket of an entry. Its methods are called with no lock held, so tracked itself
// knows how often it was used, and whether it is in use.
type tracked struct {
	Limiter
	idler bool          // it knows for how long it has been idle; otherwise it is idle while unused and without leases
	uses  atomic.Uint64 // see onePin and oneUse

	lastUse atomic.Int64 // moment of the last use; only without an idler
	held    atomic.Int64 // leases not yet given back; only without an idler
}

// The uses of a tracked limiter are one number, so that it can be seen at once whether the limiter is pinned, and whether
// it has been used since it said that it is idle.
const (
	onePin = 1       // callers that use it
	oneUse = 1 << 32 // how often permits were asked for; wraps around
)

// track returns l as a tracked limiter.
func track(l Limiter) *tracked {
	t := &tracked{Limiter: l, idler: knowsIdle(l)}
	t.lastUse.Store(moment())
	return t
}

// knowsIdle reports whether l can ever say that it is idle. A chain cannot if one of its members cannot.
func knowsIdle(l Limiter) bool {
	if c, ok := l.(*Chained); ok {
		return !slices.ContainsFunc(c.limiters, func(l Limiter) bool { return !knowsIdle(l) })
	}
	_, ok := l.(idler)
	return ok
}

func (t *tracked) pinned() bool { return t.uses.Load()%oneUse > 0 }

// ask asks the limiter, which is pinned.
func (p partition[K]) ask(ctx context.Context, now int64, n int, wait bool) (Lease, error) {
	t := p.tracked
	if t == nil {
		return p.acquire(ctx, now, n, wait)
	}
	t.uses.Add(oneUse)
	if wait {
		return t.lease(t.Acquire(ctx, n))
	}
	return t.lease(t.TryAcquire(ctx, n))
}

// charge charges the limiter, which is pinned, if it can be charged. Only permits that are taken are a use of it.
func (p partition[K]) askCharge(ctx context.Context, n int) (Level, error) {
	t := p.tracked
	if t == nil {
		return p.Charge(ctx, n)
	}
	if n > 0 {
		t.uses.Add(oneUse)
		if !t.idler {
			defer func() { t.lastUse.Store(moment()) }()
		}
	}
	return chargeLimiter(ctx, t.Limiter, n)
}

// lease returns the limiter's answer. If the limiter is no Idler, it counts the lease.
func (t *tracked) lease(l Lease, err error) (Lease, error) {
	if t.idler {
		return l, err
	}
	t.lastUse.Store(moment())
	if l.Acquired() {
		t.held.Add(1)
		held := &jointLease{by: t}
		held.leases = append(held.few[:0], l)
		l = ownedBy(held, l)
	}
	return l, err
}

// givenBack is called when a lease has been given back.
func (t *tracked) givenBack() {
	t.lastUse.Store(moment())
	t.held.Add(-1)
}

// idle returns the limiter's own IdleDuration, or the time since the last call ended or lease was released.
func (t *tracked) idle() (idle time.Duration, ok bool) {
	switch {
	case t.idler:
		return t.Limiter.(idler).IdleDuration()
	case t.held.Load() > 0:
		return 0, false
	}
	return time.Duration(max(moment()-t.lastUse.Load(), 0)), true
}
