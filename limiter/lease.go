package limiter

import (
	"iter"
	"math"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter/internal/leases"
	"github.com/weir-go/weir/rate"
)

// A Lease is the answer of a [Limiter]: permits that were granted, or a rejection. It is a small value: copying it
// costs nothing, and two copies compare equal. The zero Lease is a rejection without a reason.
//
// The caller of an acquired Lease calls Release when the work is done, usually with defer. Release can be called any
// number of times, from any copy and any goroutine; the permits go back once.
type Lease struct {
	// Four words at most: the compiler keeps no larger struct in registers.

	owner owner // granted: takes the permits back, perhaps through a *metadata; rejected: a *metadata or nil
	n     int   // granted: the permits; rejected: see remainingUnknown
	tag   int64 // granted: tells owner which grant it is; rejected: RetryAfter in nanoseconds
}

// An owner takes back what it granted; see custom.Owner. n and tag are those of the lease.
type owner = leases.Owner

func init() {
	leases.Granted = func(by owner, n int, tag int64) Lease {
		if by == nil {
			by = noOwner{}
		}
		return Lease{owner: by, n: max(n, 0), tag: tag}
	}
	leases.Rejected = func(retryAfter time.Duration, remaining int64) Lease {
		l := rejected(max(retryAfter, 0), nil)
		if remaining >= 0 {
			l.n = encodeRemaining(remaining)
		}
		return l
	}
}

// noOwner is the owner of leases that have nothing to give back.
type noOwner struct{}

func (noOwner) Lends() bool        { return false }
func (noOwner) Release(int, int64) {}
func (noOwner) Refund(int, int64)  {}

// A returnOnce tells an owner which call gives a lease back: the first Release or Refund of any copy, including the
// copies that were adjusted.
type returnOnce struct {
	done     atomic.Bool
	original *returnOnce // of the lease that was adjusted, or nil
}

// claim reports whether it is called for the first time.
func (o *returnOnce) claim() bool { return o.first().done.CompareAndSwap(false, true) }

// returned reports whether claim has been called.
func (o *returnOnce) returned() bool { return o.first().done.Load() }

func (o *returnOnce) first() *returnOnce {
	for o.original != nil {
		o = o.original
	}
	return o
}

// metadata wraps the owner of a lease and adds a value to the lease. It never changes, so adding a value to a copy of a
// lease leaves the other copies as they are.
type metadata struct {
	owner owner // nil: the lease is rejected
	name  string
	value any
	next  *metadata
}

func (m *metadata) Release(n int, tag int64) { m.owner.Release(n, tag) }
func (m *metadata) Refund(n int, tag int64)  { m.owner.Refund(n, tag) }

// The n of a rejected lease says how many permits the limiter had left, because a field for that would be a fifth word:
//
//	known:    what encodeRemaining returns, which is below remainingUnknown
//	unknown:  remainingUnknown with metadata, 0 without (metadata is an owner, and with an owner, n = 0 means granted)
const remainingUnknown = -1

// encodeRemaining returns the n of a rejected lease whose limiter had left permits. It has room for 31 bits, because an
// int may have 32.
func encodeRemaining(left int64) (n int) {
	return remainingUnknown - 1 - int(min(max(left, 0), math.MaxInt32-1))
}

// decodeRemaining returns what was encoded in the n of a rejected lease, if it is known.
func decodeRemaining(n int) (left int64, known bool) {
	if n >= remainingUnknown {
		return 0, false
	}
	return int64(remainingUnknown - 1 - n), true
}

// source returns the owner of l without metadata, or nil.
func (l Lease) source() owner {
	if m := l.metadata(); m != nil {
		return m.owner
	}
	return l.owner
}

// metadata returns the values that were added to the lease, the newest first, or nil.
func (l Lease) metadata() *metadata {
	m, _ := l.owner.(*metadata)
	return m
}

// with returns l with a value added to it.
func (l Lease) with(name string, value any) Lease {
	m := &metadata{owner: l.source(), name: name, value: value, next: l.metadata()}
	if l.Acquired() {
		l.owner = m
		return l
	}
	return l.rejectedWith(m)
}

// rejectedWith returns a rejected l with the metadata m.
func (l Lease) rejectedWith(m *metadata) Lease {
	with := rejected(time.Duration(l.tag), m)
	with.n = min(with.n, l.n) // keeps what l has encoded, which is below remainingUnknown
	return with
}

// ownedBy returns an acquired l with another owner and the same metadata.
func ownedBy(o owner, l Lease) Lease {
	if m := l.metadata(); m != nil {
		newest := *m
		newest.owner = o
		o = &newest
	}
	l.owner = o
	return l
}

// rejected returns a rejected lease. why is metadata without an owner, or nil.
func rejected(retryAfter time.Duration, why *metadata) Lease {
	if why == nil {
		return Lease{tag: int64(retryAfter)}
	}
	return Lease{owner: why, n: remainingUnknown, tag: int64(retryAfter)}
}

// Acquired reports whether the permits were granted.
func (l Lease) Acquired() bool { return l.owner != nil && l.n >= 0 }

// Permits returns the number of permits granted, or 0 if the lease was rejected.
func (l Lease) Permits() int { return max(l.n, 0) }

// RetryAfter returns the time after which a rejected caller could be granted what it asked for if there were no other
// callers. ok is false if that is not known. An acquired lease has a RetryAfter only if one was added with
// [RetryAfterKey].
func (l Lease) RetryAfter() (d time.Duration, ok bool) {
	if l.metadata() == nil {
		return ownRetryAfter(l)
	}
	return RetryAfterKey.From(l)
}

// Reason returns a phrase that says why the lease was rejected, or "" if there were just too few permits.
func (l Lease) Reason() string {
	reason, _ := ReasonKey.From(l)
	return reason
}

// Remaining returns how many permits were left right after the decision. ok is false if the limiter does not know it
// without being asked again; then call its Statistics. The limiters of package store know it, and custom limiters can.
func (l Lease) Remaining() (n int64, ok bool) {
	if !l.Acquired() {
		return decodeRemaining(l.n)
	}
	if o, is := l.source().(interface {
		Remaining(n int, tag int64) (int64, bool)
	}); is {
		return o.Remaining(l.n, l.tag)
	}
	return 0, false
}

// Quota returns the limits in force of the bucket or window that granted the lease, and how many of its permits were free
// after its last decision. It is for servers that tell a client what is left: they need not look for the limiter of the
// client's key again. ok is false for a rejected lease, and for the leases of other limiters.
func (l Lease) Quota() (limits rate.Limits, available int64, ok bool) {
	var c clocked
	switch o := l.source().(type) {
	case *bucketOwner:
		c = (*bucket)(o)
	case *windowOwner:
		c = (*window)(o)
	default:
		return limits, 0, false
	}
	c.lock()
	defer c.unlock()
	return c.limits(), max(c.free(), 0), true
}

// Level returns the level of the limiter right after the grant. ok is false if the lease was rejected, or if the limiter
// does not return the level with a grant; then call [Charger.Charge] with 0. The limiters of package store return it,
// those of this package do not; a custom limiter can.
func (l Lease) Level() (level Level, ok bool) {
	if o, is := l.source().(interface {
		Level(n int, tag int64) (Level, bool)
	}); is && l.Acquired() {
		return o.Level(l.n, l.tag)
	}
	return Level{}, false
}

// Release ends the work that the permits were for. A concurrency limiter lends its permits and gets them back; windows
// and buckets spend theirs, and Release does nothing. It also does nothing on a rejected lease, after the first call,
// and after the limiter was closed.
func (l Lease) Release() {
	if l.Acquired() {
		l.owner.Release(l.n, l.tag)
	}
}

// Lends reports whether the permits are lent, so that Release gives them back, as those of a [Concurrency], of a chain with
// such a member, and of a custom limiter with a function for Release. It returns false if the lease was rejected, and for
// permits that are spent, as those of windows, buckets and unlimited limiters are. A strategy that can hold a lease until
// later asks it.
func (l Lease) Lends() bool {
	if !l.Acquired() {
		return false
	}
	switch o := l.source().(type) {
	case interface{ Lends() bool }:
		return o.Lends()
	case adjuster:
		return false
	}
	return true
}

// Succeeded says that the work has succeeded although its permits stay in use until Release: a request to a server is
// answered when the header of the response is there, and its permit is held until the body has been read. A limiter that
// learns from the work, as those of package adaptive do, learns now, and nothing from Release. For other limiters it does
// nothing. Only a strategy that holds a lease longer than the execution calls it, once, before Release.
func (l Lease) Succeeded() {
	if o, ok := l.source().(interface{ Succeeded(n int, tag int64) }); ok && l.Acquired() {
		o.Succeeded(l.n, l.tag)
	}
}

// Refund undoes the grant: the permits go back as if they had never been taken, and the lease no longer counts as a
// success in the statistics. Call it for work that was never begun; a [Chain] does so with the leases that it was
// granted before a later limiter rejects. [Lease.Release] is for work that is done: the permits of a window or a bucket
// stay spent. [Lease.Adjust] is for work that has cost another number of permits than was taken, and the lease stays a
// success.
//
// Permits that have come back by themselves in the meantime are not given back again: a refund is exact as long as none
// have come back since the grant, and later it gives back that much or less. Refund does nothing on a rejected
// lease and after the limiter was closed. Release can be called after it, and does nothing then, so a deferred Release
// can stay.
//
// Unlike Release, Refund does not notice a second call: call it once for a grant. After Adjust, call it on the lease
// that Adjust returned.
func (l Lease) Refund() {
	if l.Acquired() {
		if j, is := l.source().(*jointLease); is && j.returned() {
			return
		}
		l.owner.Refund(l.n, l.tag)
		tellCost(l, 0)
	}
}

// tellCost tells a queue with the order [Fair] that what l was granted has cost n permits.
func tellCost(l Lease, n int) {
	if t, waited := TenantKey.From(l); waited && n != l.n {
		if q, has := l.source().(interface{ Correct(t Tenant, more int64) }); has {
			q.Correct(t, int64(n-l.n))
		}
	}
}

// Adjust charges what the work has really cost, if that is known only when it is done: bytes sent, rows read, tokens of
// a language model. It returns the lease as one of n permits; a negative n counts as 0. If too many permits were taken,
// the rest goes back to where it was taken from, unless it has come back by itself. If too few were taken, Adjust takes
// the missing permits now, even if fewer are free: then the limiter grants nothing until enough permits have come back.
//
// Adjust works for windows, buckets and unlimited limiters, whose permits are spent, also in chains and in partitions
// that have not been forgotten since the grant. ok is false, and nothing changes, if the lease is not acquired, if its
// permits are only lent, as those of a [Concurrency] are, or if a custom limiter cannot adjust. In a chain, a limiter that lends
// goes on lending as many as it granted. Call it once, and use the lease that it returns: an older copy still has the old number of
// permits.
func (l Lease) Adjust(n int) (adjusted Lease, ok bool) {
	if !l.Acquired() {
		return l, false
	}
	n = max(n, 0)
	o, tag := l.source(), l.tag
	switch a := o.(type) {
	case *jointLease:
		o, ok = a.adjusted(a.adjustEach(n))
	case adjuster:
		tag, ok = a.Adjust(l.n, tag, n)
	}
	if !ok {
		return l, false
	}
	tellCost(l, n)
	l.n, l.tag = n, tag
	return ownedBy(o, l), true
}

// AdjustCosts is Adjust for the lease of a [Chain], with a cost for each limiter that costs names; the others stay as they are. The lease
// keeps its number of permits. ok is false, and nothing changes, if none of them can be adjusted.
func (l Lease) AdjustCosts(costs Costs) (adjusted Lease, ok bool) {
	j, is := l.source().(*jointLease)
	if !is || !l.Acquired() {
		return l, false
	}
	o, ok := j.adjusted(j.adjustNamed(costs))
	if !ok {
		return l, false
	}
	return ownedBy(o, l), true
}

// An adjuster is an owner that can adjust its grants; see custom.Adjuster.
type adjuster interface {
	Adjust(n int, tag int64, cost int) (newTag int64, ok bool)
}

// Metadata yields what is known about the lease, by name: [RetryAfterKey] and [ReasonKey] if they are present, and what
// was added with [MetadataKey.With]. Each name is yielded once.
func (l Lease) Metadata() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for m := l.metadata(); m != nil; m = m.next {
			if m != l.metadata().find(m.name) {
				continue // another value was added under that name
			}
			if !yield(m.name, m.value) {
				return
			}
		}
		if l.metadata().find(RetryAfterKey.name) != nil {
			return
		}
		if d, ok := ownRetryAfter(l); ok {
			yield(RetryAfterKey.name, d)
		}
	}
}

// ownRetryAfter returns the RetryAfter that is not in the metadata.
func ownRetryAfter(l Lease) (time.Duration, bool) {
	if l.Acquired() || l.tag <= 0 {
		return 0, false
	}
	return time.Duration(l.tag), true
}

// find returns the newest entry of that name, or nil.
func (m *metadata) find(name string) *metadata {
	for m != nil && m.name != name {
		m = m.next
	}
	return m
}

// A MetadataKey names a value of type T on a [Lease]. Two keys with the same name are the same key; make them once, as
// package variables. The zero MetadataKey has an empty name, and is usable.
type MetadataKey[T any] struct{ name string }

// The keys that this package sets itself.
var (
	// RetryAfterKey is what [Lease.RetryAfter] returns.
	RetryAfterKey = NewMetadataKey[time.Duration]("RETRY_AFTER")
	// ReasonKey is what [Lease.Reason] returns.
	ReasonKey = NewMetadataKey[string]("REASON_PHRASE")
	// ChainMemberKey is the name of the limiter of a [Chain] that rejected, see [Chained.Named]. In a chain of chains it
	// has the names of both, such as "0 (limiter.Chained)/slots".
	ChainMemberKey = NewMetadataKey[string]("CHAIN_MEMBER")
	// TenantKey is whom a lease is for that was waited for in a queue with the order [Fair].
	TenantKey = NewMetadataKey[Tenant]("TENANT")
)

// NewMetadataKey returns the key of that name.
func NewMetadataKey[T any](name string) MetadataKey[T] { return MetadataKey[T]{name: name} }

// Name returns the name under which [Lease.Metadata] yields the value.
func (k MetadataKey[T]) Name() string { return k.name }

// With returns l with v under k. Both leases hold the same permits, and either can release them. l is unchanged.
func (k MetadataKey[T]) With(l Lease, v T) Lease {
	return l.with(k.name, v)
}

// From returns the value under k. ok is false if there is none, or if it has another type.
func (k MetadataKey[T]) From(l Lease) (v T, ok bool) {
	if m := l.metadata().find(k.name); m != nil {
		v, ok = m.value.(T)
		return v, ok || m.value == nil && any(v) == nil // the nil of an interface type
	}
	if k.name != "RETRY_AFTER" {
		return v, false
	}
	d, known := ownRetryAfter(l)
	if !known {
		return v, false
	}
	v, ok = any(d).(T)
	return v, ok
}
