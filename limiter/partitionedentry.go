package limiter

import (
	"context"
	"math"
	"sync/atomic"
	"time"
	"unsafe"
)

// An entry is one partition. Its key and limiter never change.
//
// There may be millions of them, so it has six words, and the limiter is in one of them
// instead of an interface's two: kind says of what type it is.
type entry[K comparable] struct {
	key  K
	of   unsafe.Pointer
	next atomic.Pointer[entry[K]]
	hash uint32        // of the key: the part by which it is found in its shard
	used atomic.Uint32 // the turn of its last use, where that matters; 0: see entryBeside
	pins atomic.Int32  // callers who are using it; it is not forgotten meanwhile
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

// newEntry returns an entry with a limiter. One that is not ours is tracked.
func newEntry[K comparable](key K, hash uint64, l Limiter) *entry[K] {
	var e *entry[K]
	var of unsafe.Pointer
	var is kind
	switch l := l.(type) {
	case *TokenBucket:
		e, is, of = entryBeside[TokenBucket, K](l, l.container()), tokenBucketKind, unsafe.Pointer(l)
	case *FixedWindow:
		e, is, of = entryBeside[FixedWindow, K](l, l.container()), fixedWindowKind, unsafe.Pointer(l)
	case *SlidingWindow:
		is, of = slidingWindowKind, unsafe.Pointer(l)
	case *Concurrency:
		is, of = concurrencyKind, unsafe.Pointer(l)
	case *Unlimited:
		is, of = unlimitedKind, unsafe.Pointer(l)
	default:
		of = unsafe.Pointer(track(l))
	}
	if e == nil {
		e = new(entry[K])
	}
	e.key, e.hash, e.kind, e.of = key, uint32(hash), is, of
	return e
}

// A bucketWithEntry is what a factory of buckets makes for a key of type K: the bucket, and beside it room for
// its entry, so that the two are in one place in memory.
type bucketWithEntry[B any, K comparable] struct {
	bucket B
	entry  entry[K]
}

// entryBeside returns the room for an entry beside a bucket if container, which is what the bucket says that it was
// made in, has it, and no other entry does. Only a bucket's factory knows the type of container.
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

// limiter returns the limiter.
func (e *entry[K]) limiter() Limiter {
	switch e.kind {
	case tokenBucketKind:
		return (*TokenBucket)(e.of)
	case fixedWindowKind:
		return (*FixedWindow)(e.of)
	case slidingWindowKind:
		return (*SlidingWindow)(e.of)
	case concurrencyKind:
		return (*Concurrency)(e.of)
	case unlimitedKind:
		return (*Unlimited)(e.of)
	default:
		return (*tracked)(e.of)
	}
}

// tracked returns the limiter if it is not one of ours, or nil.
func (e *entry[K]) tracked() *tracked {
	if e.kind == customKind {
		return (*tracked)(e.of)
	}
	return nil
}

// ours reports whether the limiter runs this package's code only. A type of the user's around one of ours
// is none, although it has the methods: what it makes of them has to be asked.
func (e *entry[K]) builtin() bool { return e.kind != customKind }

// mustAsk reports whether only the program's code knows for how long the limiter has been idle.
func (e *entry[K]) mustAsk() bool { return e.kind == customKind && e.tracked().idler != nil }

// driven returns the limiter as one that has to be replenished, or nil.
func (e *entry[K]) replenisher() Replenisher {
	switch e.kind {
	case customKind:
		return e.tracked().manual
	case tokenBucketKind, fixedWindowKind, slidingWindowKind:
		if r := e.limiter().(Replenisher); !r.AutoReplenishing() {
			return r
		}
	}
	return nil
}

// idleAsOf returns for how long the limiter has been idle at a moment, if it need not be asked without a lock.
func (e *entry[K]) idleAsOf(now int64) (idle time.Duration, ok bool) {
	switch e.kind {
	case tokenBucketKind:
		return (*TokenBucket)(e.of).idleAsOf(now)
	case fixedWindowKind:
		return (*FixedWindow)(e.of).idleAsOf(now)
	case slidingWindowKind:
		return (*SlidingWindow)(e.of).idleAsOf(now)
	default:
		return e.limiter().(Idler).IdleDuration()
	}
}

// closeIfIdle reports whether the limiter may be forgotten, because it has been idle for longer than
// that. A clocked one is closed in the same moment.
func (e *entry[K]) closeIfIdle(longer, now int64) bool {
	switch e.kind {
	case tokenBucketKind:
		return (*TokenBucket)(e.of).closeIfIdle(longer, now)
	case fixedWindowKind:
		return (*FixedWindow)(e.of).closeIfIdle(longer, now)
	case slidingWindowKind:
		return (*SlidingWindow)(e.of).closeIfIdle(longer, now)
	default:
		d, idle := e.idleAsOf(now)
		return idle && int64(d) > longer
	}
}

// clocked reports whether the limiter is one of ours that goes by the clock. It is used without
// a pin: if its partition was forgotten in this moment, it was closed with that and says so.
func (e *entry[K]) clocked() bool {
	return e.kind == tokenBucketKind || e.kind == fixedWindowKind || e.kind == slidingWindowKind
}

// askClocked asks a clocked limiter; ours is false if it is none.
func (e *entry[K]) askClocked(ctx context.Context, now int64, n int, wait bool) (lease Lease, err error, ours bool) {
	switch e.kind {
	case tokenBucketKind:
		lease, err = (*TokenBucket)(e.of).acquire(ctx, now, n, wait)
	case fixedWindowKind:
		lease, err = (*FixedWindow)(e.of).acquire(ctx, now, n, wait)
	case slidingWindowKind:
		lease, err = (*SlidingWindow)(e.of).acquire(ctx, now, n, wait)
	default:
		return Lease{}, nil, false
	}
	return lease, err, true
}

// forgotten is added to the pins of an entry that is being forgotten.
const forgotten = math.MinInt32 / 2

// pin keeps the entry from being forgotten until unpin. It returns false if it is
// too late for that.
func (e *entry[K]) pin() bool {
	if e.pins.Add(1) > 0 {
		return true
	}
	e.unpin()
	return false
}

func (e *entry[K]) unpin() { e.pins.Add(-1) }
