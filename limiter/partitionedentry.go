package limiter

import (
	"context"
	"sync/atomic"

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
	return partition[K]{&entry[K]{key: key}, &tracked{Limiter: l}}
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

// closeIfFull closes the bucket if it has been full for more than minIdle nanoseconds, and reports whether it has. A bucket whose
// first call is under way has not been.
func (b *bucket) closeIfFull(minIdle, now int64) bool {
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
	b.close()
	return true
}

// A tracked limiter is one that is not a bucket of an entry. Its methods are called with no lock held, so tracked itself
// knows how often it was used, and whether it is in use.
type tracked struct {
	Limiter
	uses atomic.Uint64 // see onePin and oneUse
}

// The uses of a tracked limiter are one number, so that it can be seen at once whether the limiter is pinned, and whether
// it has been used since it said that it is idle.
const (
	onePin = 1       // callers that use it
	oneUse = 1 << 32 // how often permits were asked for; wraps around
)

func (t *tracked) pinned() bool { return t.uses.Load()%oneUse > 0 }

// ask asks the limiter, which is pinned. It reads the clock for a bucket, because the factory may have taken long.
func (p partition[K]) ask(ctx context.Context, n int, wait bool) (Lease, error) {
	if p.tracked == nil {
		return p.acquire(ctx, moment(), n, wait)
	}
	l := p.toTake()
	if wait {
		return l.Acquire(ctx, n)
	}
	return l.TryAcquire(ctx, n)
}

// toTake returns the limiter, which is pinned, for a call that takes permits.
func (p partition[K]) toTake() Limiter {
	if p.tracked != nil {
		p.tracked.uses.Add(oneUse)
	}
	return p.limiter()
}

// isIdle reports whether the limiter says that it has been idle for more than minIdle nanoseconds. One that is no idler never is:
// its permits can be held.
func (t *tracked) isIdle(minIdle int64) bool {
	if l, ok := t.Limiter.(idler); ok {
		idle, ok := l.IdleDuration()
		return ok && int64(idle) > minIdle
	}
	return false
}
