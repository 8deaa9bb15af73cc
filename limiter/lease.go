package limiter

import (
	"iter"
	"math"
	"sync/atomic"
	"time"
)

// A Lease is the answer of a [Limiter]. It is a small value: copying it costs
// nothing, and two copies compare equal. The zero Lease is a rejected one that
// holds nothing.
//
// Whoever has an acquired Lease calls Release when the work is done, usually
// with defer. Release may be called any number of times, from any copy and any
// goroutine; the permits go back once.
type Lease struct {
	// Four words, no more: that is what the compiler keeps in registers.

	owner owner // whom the permits go back to, and what was added to the lease
	n     int   // the permits held; below 0: see knownRemaining
	tag   int64 // granted: what owner needs to know them again; rejected: RetryAfter in nanoseconds
}

// An owner takes back what it granted. n and tag are the lease's own.
type owner interface {
	// release gives permits back when the work is done. It is idempotent.
	release(n int, tag int64)
	// refund undoes the grant as if it had not been, the success in the
	// statistics included. It is called at most once for a grant.
	refund(n int, tag int64)
}

// metadata stands before the owner of a lease and adds a value to it. It never
// changes, so leases that share some never see each other's additions.
type metadata struct {
	owner owner // nil: the lease is rejected
	name  string
	value any
	next  *metadata
}

func (m *metadata) release(n int, tag int64) { m.owner.release(n, tag) }
func (m *metadata) refund(n int, tag int64)  { m.owner.refund(n, tag) }

// metadata returns what was added to the lease, the newest first.
func (l Lease) metadata() *metadata {
	m, _ := l.owner.(*metadata)
	return m
}

// with returns l with a value added to it.
func (l Lease) with(name string, value any) Lease {
	m := &metadata{owner: l.owner, name: name, value: value, next: l.metadata()}
	if m.next != nil {
		m.owner = m.next.owner
	}
	if l.Acquired() {
		l.owner = m
		return l
	}
	with := rejected(time.Duration(l.tag), m)
	with.n = min(with.n, l.n)
	return with
}

// ownedBy returns an acquired l with another owner, and with what was added to it.
func (l Lease) ownedBy(o owner) Lease {
	if m := l.metadata(); m != nil {
		newest := *m
		newest.owner = o
		o = &newest
	}
	l.owner = o
	return l
}

// rejected is a rejected lease. why has no owner, and may be nil.
func rejected(retryAfter time.Duration, why *metadata) Lease {
	if why == nil {
		return Lease{tag: int64(retryAfter)}
	}
	return Lease{owner: why, n: -1, tag: int64(retryAfter)}
}

// Granted returns an acquired Lease of n permits, for limiters written
// elsewhere. release is called once, at the first Release of any copy; it may be
// nil. A negative n counts as 0.
//
// A chain that came to nothing releases the leases that it had taken; a limiter
// whose permits do not come back on Release can give more with
// [GrantedRefundable].
func Granted(n int, release func()) Lease {
	return GrantedRefundable(n, release, nil)
}

// GrantedRefundable is [Granted] for a limiter that spends permits rather than
// lends them: refund is called instead of release when a [Chain] takes the grant
// back because a later limiter rejected, so that the rejected call costs
// nothing. Of the two functions one runs, once. A nil refund stands for release.
func GrantedRefundable(n int, release, refund func()) Lease {
	n = max(n, 0)
	if release == nil && refund == nil {
		return Lease{owner: nothingOwed{}, n: n}
	}
	return Lease{owner: &callbacks{onRelease: release, onRefund: refund}, n: n}
}

// Rejected returns a Lease that is not acquired, for limiters written elsewhere.
// A retryAfter of zero or less stands for "not known", an empty reason for none.
func Rejected(retryAfter time.Duration, reason string) Lease {
	l := rejected(max(retryAfter, 0), nil)
	if reason != "" {
		l = ReasonKey.With(l, reason)
	}
	return l
}

// RejectedKnowing is [Rejected] for a limiter that knows how many permits were left, too few
// for what was asked: [Lease.Remaining] says so.
func RejectedKnowing(retryAfter time.Duration, reason string, remaining int64) Lease {
	l := Rejected(retryAfter, reason)
	l.n = knownRemaining - int(min(max(remaining, 0), math.MaxInt32-1)) // an int may have 32 bits
	return l
}

// knownRemaining is the n of a rejected lease of which it is known that nothing is left; with
// one permit left it is one less, and so on. Otherwise it is -1, or 0 without an owner.
const knownRemaining = -2

// Acquired tells whether the permits were granted.
func (l Lease) Acquired() bool { return l.owner != nil && l.n >= 0 }

// Permits is the number of permits granted; 0 if the lease was rejected.
func (l Lease) Permits() int { return max(l.n, 0) }

// RetryAfter is the time after which a rejected caller could be granted what it
// asked for if nobody else came. ok is false where that is not known, and on an
// acquired lease that was not given one with [RetryAfterKey].
func (l Lease) RetryAfter() (d time.Duration, ok bool) {
	if l.metadata() == nil {
		return l.ownRetryAfter()
	}
	return RetryAfterKey.From(l)
}

// Reason is a phrase that says why the lease was rejected; "" where there is
// nothing to say beyond "too few permits".
func (l Lease) Reason() string {
	reason, _ := ReasonKey.From(l)
	return reason
}

// Release gives the permits back where they do come back: a concurrency limiter
// lends its permits, windows and buckets spend theirs. It does nothing the
// second time, on a rejected lease, and after the limiter was closed.
func (l Lease) Release() {
	if l.Acquired() {
		l.owner.release(l.n, l.tag)
	}
}

// Refund undoes the grant: the permits go back as if they had never been taken, and the lease no longer counts as a
// success in the statistics. Call it for work that was never begun; a [Chain] does so with the leases that it was
// granted before a later limiter rejects. [Lease.Release] is for work that is done: the permits of a window or a bucket
// stay spent. [Lease.Adjust] is for work that has cost another number of permits than was taken, and the lease stays a
// success.
//
// What time has brought back in the meantime is not given back again. Refund does nothing on a rejected lease and after
// the limiter was closed. Release can be called after it, and does nothing then, so a deferred Release can stay.
//
// Unlike Release, Refund does not notice a second call: call it once for a grant. After Adjust, call it on the lease
// that Adjust returned.
func (l Lease) Refund() {
	if l.Acquired() {
		l.owner.refund(l.n, l.tag)
	}
}

// Metadata yields what is known about the lease, by name: [RetryAfterKey] and
// [ReasonKey] where they are present, and whatever was added with
// [MetadataKey.With]. Each name comes once.
func (l Lease) Metadata() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for m := l.metadata(); m != nil; m = m.next {
			if m != l.find(m.name) {
				continue // added again since
			}
			if !yield(m.name, m.value) {
				return
			}
		}
		if l.find(RetryAfterKey.name) != nil {
			return
		}
		if d, ok := l.ownRetryAfter(); ok {
			yield(RetryAfterKey.name, d)
		}
	}
}

func (l Lease) ownRetryAfter() (time.Duration, bool) {
	if l.Acquired() || l.tag <= 0 {
		return 0, false
	}
	return time.Duration(l.tag), true
}

// find returns the newest entry of that name.
func (l Lease) find(name string) *metadata {
	for m := l.metadata(); m != nil; m = m.next {
		if m.name == name {
			return m
		}
	}
	return nil
}

// A MetadataKey names a value of type T on a [Lease]. Two keys with the same
// name are the same key; make them once, as package variables. The zero
// MetadataKey has an empty name, and works.
type MetadataKey[T any] struct{ name string }

// The keys that this package sets itself.
var (
	// RetryAfterKey is what [Lease.RetryAfter] returns.
	RetryAfterKey = NewMetadataKey[time.Duration]("RETRY_AFTER")
	// ReasonKey is what [Lease.Reason] returns.
	ReasonKey = NewMetadataKey[string]("REASON_PHRASE")
)

// NewMetadataKey returns the key of that name.
func NewMetadataKey[T any](name string) MetadataKey[T] { return MetadataKey[T]{name: name} }

// Name returns the name under which [Lease.Metadata] yields the value.
func (k MetadataKey[T]) Name() string { return k.name }

// With returns l with v under k; it holds the same permits, and either of the
// two may release them. What l itself says is unchanged.
func (k MetadataKey[T]) With(l Lease, v T) Lease {
	return l.with(k.name, v)
}

// From returns the value under k. ok is false if there is none, or if it is of
// another type.
func (k MetadataKey[T]) From(l Lease) (v T, ok bool) {
	if m := l.find(k.name); m != nil {
		v, ok = m.value.(T)
		return v, ok || m.value == nil && any(v) == nil // the nil of an interface type
	}
	if k.name != "RETRY_AFTER" {
		return v, false
	}
	d, known := l.ownRetryAfter()
	if !known {
		return v, false
	}
	v, ok = any(d).(T)
	return v, ok
}

// nothingOwed owns the leases of limiters that take nothing back.
type nothingOwed struct{}

func (nothingOwed) release(int, int64) {}
func (nothingOwed) refund(int, int64)  {}

// callbacks owns the lease of a limiter written elsewhere.
type callbacks struct {
	done      atomic.Bool
	onRelease func()
	onRefund  func()
}

func (c *callbacks) release(int, int64) { c.settle(c.onRelease) }

func (c *callbacks) refund(int, int64) {
	if c.onRefund != nil {
		c.settle(c.onRefund)
		return
	}
	c.settle(c.onRelease)
}

func (c *callbacks) settle(f func()) {
	if c.done.CompareAndSwap(false, true) && f != nil {
		f()
	}
}
