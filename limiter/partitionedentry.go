package limiter

import (
	"context"
	"math"
	"sync/atomic"
	"time"
	"unsafe"
)

// An entry is one partition. Its key and limiter never change. There can be millions of entries, so an entry has six
// words: the limiter takes one of them instead of an interface's two, and kind says of what type it is.
//
// Using a limiter and forgetting its partition exclude each other by these rules:
//
//  1. An entry is put into its shard's table, and taken out, under the shard's lock. Once it is out, it never comes
//     back.
//  2. A caller uses a limiter only while it has pinned the entry. With the shard's lock, it adds 1 to the pins of an
//     entry that is in the table. Without the lock it calls pin, which fails if the entry is being forgotten; then the
//     caller continues with findOrMake, which takes the lock.
//  3. To forget an entry, a goroutine with the shard's lock changes its pins from 0 to forgotten. Then it checks that
//     the limiter is idle, takes the entry out and closes the limiter; or it undoes the change.
//  4. A clocked limiter (a bucket or a window) can be used without a pin, because closeIfIdle checks and closes it in
//     one step under the limiter's lock. A caller that comes too late gets [ErrClosed], and asks again with a pin.
//  5. find takes no lock. It can miss an entry that is in the table, and can find one that was just taken out. So a
//     caller that finds none, or one that is closed, asks findOrMake.
type entry[K comparable] struct {
	key  K
	ptr  unsafe.Pointer
	next atomic.Pointer[entry[K]]
	hash uint32        // of the key: the lower bits, by which it is found in its shard
	used atomic.Uint32 // recency of its last use, if MaxPartitions is set; see usesPerEpoch and entryBeside
	pins atomic.Int32  // see the rules
	kind kind
}

// A kind is a type of limiter in an entry.
type kind uint8

const (
	customKind kind = iota
	tokenBucketKind
	fixedWindowKind
	slidingWindowKind
	concurrencyKind
	unlimitedKind
)

// newEntry returns an entry with a limiter. A custom limiter is tracked.
func newEntry[K comparable](key K, hash uint64, l Limiter) *entry[K] {
	var e *entry[K]
	var ptr unsafe.Pointer
	var k kind
	switch l := l.(type) {
	case *TokenBucket:
		e, k, ptr = entryBeside[TokenBucket, K](l, l.container()), tokenBucketKind, unsafe.Pointer(l)
	case *FixedWindow:
		e, k, ptr = entryBeside[FixedWindow, K](l, l.container()), fixedWindowKind, unsafe.Pointer(l)
	case *SlidingWindow:
		k, ptr = slidingWindowKind, unsafe.Pointer(l)
	case *Concurrency:
		k, ptr = concurrencyKind, unsafe.Pointer(l)
	case *Unlimited:
		k, ptr = unlimitedKind, unsafe.Pointer(l)
	default:
		ptr = unsafe.Pointer(track(l))
	}
	if e == nil {
		e = new(entry[K])
	}
	e.key, e.hash, e.kind, e.ptr = key, uint32(hash), k, ptr
	return e
}

// A bucketWithEntry is what a factory of buckets makes for a key of type K: the bucket, and beside it an entry for it,
// so that the two are in one place in memory.
type bucketWithEntry[B any, K comparable] struct {
	bucket B
	entry  entry[K]
}

// entryBeside returns the entry beside a bucket, or nil if it has none or the entry is taken. container is what the
// bucket's container method returns: for a bucket of a factory, a nil *bucketWithEntry[B, K].
func entryBeside[B any, K comparable](bucket *B, container any) *entry[K] {
	if _, ok := container.(*bucketWithEntry[B, K]); !ok {
		return nil
	}
	e := &(*bucketWithEntry[B, K])(unsafe.Pointer(bucket)).entry // bucket is its first field
	if !e.used.CompareAndSwap(0, 1) {
		return nil // the factory has returned the same bucket before
	}
	return e
}

func (e *entry[K]) limiter() Limiter {
	switch e.kind {
	case tokenBucketKind:
		return (*TokenBucket)(e.ptr)
	case fixedWindowKind:
		return (*FixedWindow)(e.ptr)
	case slidingWindowKind:
		return (*SlidingWindow)(e.ptr)
	case concurrencyKind:
		return (*Concurrency)(e.ptr)
	case unlimitedKind:
		return (*Unlimited)(e.ptr)
	default:
		return (*tracked)(e.ptr)
	}
}

// tracked returns the limiter if it is a custom one, or nil.
func (e *entry[K]) tracked() *tracked {
	if e.kind == customKind {
		return (*tracked)(e.ptr)
	}
	return nil
}

// builtin reports whether the limiter runs only this package's code. A custom type around one of this package's
// limiters has the same methods, but can have overridden them.
func (e *entry[K]) builtin() bool { return e.kind != customKind }

// mustAsk reports whether only the program's code knows for how long the limiter has been idle.
func (e *entry[K]) mustAsk() bool { return e.kind == customKind && e.tracked().idler != nil }

// replenisher returns the limiter if TryReplenish has to be called, or nil.
func (e *entry[K]) replenisher() Replenisher {
	if t := e.tracked(); t != nil {
		return t.manual
	}
	if r, ok := e.limiter().(Replenisher); ok && !r.AutoReplenishing() {
		return r
	}
	return nil
}

// idleAsOf returns for how long the limiter has been idle at a moment. It is called for limiters that can be asked with
// a lock held.
func (e *entry[K]) idleAsOf(now int64) (idle time.Duration, ok bool) {
	if e.clocked() {
		return idleAsOf(e.clockedLimiter(), now)
	}
	return e.limiter().(Idler).IdleDuration()
}

// closeIfIdle reports whether the limiter has been idle for more than minIdle nanoseconds, so that it can be
// forgotten. If it has, and the limiter is clocked, it is closed in the same step.
func (e *entry[K]) closeIfIdle(minIdle, now int64) bool {
	if e.clocked() {
		return closeIfIdle(e.clockedLimiter(), minIdle, now)
	}
	d, idle := e.idleAsOf(now)
	return idle && int64(d) > minIdle
}

// clocked reports whether the limiter is a bucket or a window of this package, which rule 4 lets callers use without a
// pin.
func (e *entry[K]) clocked() bool {
	return e.kind == tokenBucketKind || e.kind == fixedWindowKind || e.kind == slidingWindowKind
}

// clockedLimiter returns the limiter, which is clocked. A bucket is the only field of a TokenBucket and a FixedWindow.
func (e *entry[K]) clockedLimiter() clocked {
	if e.kind == slidingWindowKind {
		return (*SlidingWindow)(e.ptr)
	}
	return (*bucket)(e.ptr)
}

// askClocked asks a clocked limiter, without an interface. ok is false if the limiter is not clocked.
func (e *entry[K]) askClocked(ctx context.Context, now int64, n int, wait bool) (lease Lease, err error, ok bool) {
	switch e.kind {
	case tokenBucketKind, fixedWindowKind:
		lease, err = (*bucket)(e.ptr).acquire(ctx, now, n, wait)
	case slidingWindowKind:
		lease, err = (*SlidingWindow)(e.ptr).acquire(ctx, now, n, wait)
	default:
		return Lease{}, nil, false
	}
	return lease, err, true
}

// ask asks a limiter of any type.
func (e *entry[K]) ask(ctx context.Context, n int, wait bool) (Lease, error) {
	if wait {
		return e.limiter().Acquire(ctx, n)
	}
	return e.limiter().TryAcquire(ctx, n)
}

// forgotten is added to the pins of an entry that is being forgotten.
const forgotten = math.MinInt32 / 2

// pin keeps the entry from being forgotten until unpin. It returns false if the entry is being forgotten.
func (e *entry[K]) pin() bool {
	if e.pins.Add(1) > 0 {
		return true
	}
	e.unpin()
	return false
}

func (e *entry[K]) unpin() { e.pins.Add(-1) }
