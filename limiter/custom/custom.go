// Package custom is for authors of limiters: it makes leases, and has the interfaces that a limiter can implement beside
// the two methods of [limiter.Limiter]. A program that uses limiters does not need it.
//
// A type with these two methods can be used wherever the limiters of package limiter can: in a chain, for a key, and in the
// strategies and transports of weir. Package limitertest checks that it follows the same rules.
//
// [Granted] and [Rejected] make leases. [GrantedRefundable] is for a limiter whose permits are spent rather than lent, so
// that a chain can give them back, and [RejectedKnowing] for one that knows how many permits are left. A limiter that
// grants often makes its leases with [GrantedBy], which allocates nothing: it is their [Owner], and an [Adjuster],
// [Counter], [Leveler] or [Learner] if it can be.
//
// A limiter can also implement [limiter.StatisticsProvider], [limiter.Peeker], [limiter.Charger], [Idler] and
// [io.Closer]; one for many keys, [limiter.PartitionedPeeker], [limiter.PartitionedCharger], [KeyPeeker] and
// [RejectionCounter].
package custom

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/internal/leases"
)

var (
	grantedBy = leases.Granted.(func(by leases.Owner, n int, tag int64) limiter.Lease)
	rejected  = leases.Rejected.(func(retryAfter time.Duration, remaining int64) limiter.Lease)
)

// Granted returns an acquired lease of n permits. A negative n counts as 0. release is called once, at the first Release
// of any copy; it can be nil.
//
// [limiter.Lease.Refund] calls release, too. If permits do not come back on Release, use [GrantedRefundable].
func Granted(n int, release func()) limiter.Lease {
	return GrantedRefundable(n, release, nil)
}

// GrantedRefundable is [Granted] for a limiter that spends permits rather than lends them: [limiter.Lease.Refund], which a
// [limiter.Chain] calls when a later limiter rejects, calls refund instead of release. One of the two functions is called,
// once. If refund is nil, release is called in its place.
func GrantedRefundable(n int, release, refund func()) limiter.Lease {
	if release == nil && refund == nil {
		return grantedBy(nil, n, 0)
	}
	return grantedBy(&callbacks{onRelease: release, onRefund: refund}, n, 0)
}

// GrantedBy returns an acquired lease of n permits that go back to by, which is a pointer; a negative n counts as 0. The
// methods of by get the tag. Unlike [GrantedRefundable], it allocates nothing.
func GrantedBy(by Owner, n int, tag int64) limiter.Lease { return grantedBy(by, n, tag) }

// Rejected returns a lease that is not acquired. A retryAfter of 0 or less means "not known", an empty reason means that
// there is none.
func Rejected(retryAfter time.Duration, reason string) limiter.Lease {
	return withReason(rejected(retryAfter, -1), reason)
}

// RejectedKnowing is [Rejected] for a limiter that knows how many permits were left. [limiter.Lease.Remaining] returns
// that number; a negative one counts as 0.
func RejectedKnowing(retryAfter time.Duration, reason string, remaining int64) limiter.Lease {
	return withReason(rejected(retryAfter, max(remaining, 0)), reason)
}

func withReason(l limiter.Lease, reason string) limiter.Lease {
	if reason == "" {
		return l
	}
	return limiter.ReasonKey.With(l, reason)
}

// An Owner takes back the leases that [GrantedBy] has made for it. n and tag are the arguments of that call. After
// [Adjuster.Adjust] they are the cost and the new tag. The methods are called from any goroutine, and several at once.
type Owner interface {
	// Release is called for every Release of every copy of the lease. The owner must ignore all but the first, and all
	// after a Refund.
	Release(n int, tag int64)
	// Refund undoes the grant as if it had never been; see [limiter.Lease.Refund]. It is called once for a grant.
	Refund(n int, tag int64)
}

// An Adjuster is an [Owner] whose leases can be adjusted to what the work has cost, because their permits are spent:
// [limiter.Lease.Lends] returns false for them, unless the owner has a method Lends() bool that returns true.
type Adjuster interface {
	// Adjust changes a grant of n permits into a grant of cost permits, and returns the tag of the adjusted lease; see
	// [limiter.Lease.Adjust]. ok reports whether it did.
	Adjust(n int, tag int64, cost int) (newTag int64, ok bool)
}

// A Learner is an [Owner] that learns from how the work ends and how long it takes.
type Learner interface {
	// Succeeded is called at most once, before Release, for work that has succeeded while its permits stay in use; see
	// [limiter.Lease.Succeeded].
	Succeeded(n int, tag int64)
}

// A Counter is an [Owner] that knows how many permits were left right after a grant.
type Counter interface {
	// Remaining returns how many permits were left; see [limiter.Lease.Remaining]. ok reports whether that is known.
	Remaining(n int, tag int64) (left int64, ok bool)
}

// A Leveler is an [Owner] that knows the level of its limiter right after a grant, for [limiter.Lease.Level].
type Leveler interface {
	// Level returns the level right after the grant of n permits. ok reports whether it is known.
	Level(n int, tag int64) (level limiter.Level, ok bool)
}

// An Idler is a limiter that knows since when it has been full and unused. A program that has many limiters can drop one
// that has been idle: a new one in its place would decide the same. All limiters of package limiter are Idlers.
type Idler interface {
	// IdleDuration returns for how long the limiter has been idle; ok is false while it is in use.
	IdleDuration() (idle time.Duration, ok bool)
}

// A KeyPeeker is a limiter for many keys, which are strings, that can say what it would answer for one of them. A
// [limiter.PartitionedLimiter] whose keys are of type string is one, and so are the partitioned limiters of package store.
type KeyPeeker interface {
	// PeekKey is that of [limiter.Peeker] for the key's limiter. It makes no partition.
	PeekKey(ctx context.Context, key string, n int) (limiter.Lease, error)
}

// A RejectionCounter is a limiter for many keys that says which of them it rejects most. A [limiter.PartitionedLimiter] is one,
// and so are the partitioned limiters of package store.
type RejectionCounter interface {
	// TopRejected returns the n keys with the most rejections, the most first; fewer if fewer were rejected. Counting
	// begins with the first call, and ends by itself a minute after the last one. The counts are then forgotten.
	TopRejected(n int) []limiter.KeyRejections
}

// callbacks is the owner of a lease that [GrantedRefundable] has made.
type callbacks struct {
	done      atomic.Bool
	onRelease func()
	onRefund  func()
}

func (c *callbacks) Lends() bool { return c.onRelease != nil }

func (c *callbacks) Release(int, int64) { c.settle(c.onRelease) }

func (c *callbacks) Refund(int, int64) {
	if c.onRefund != nil {
		c.settle(c.onRefund)
		return
	}
	c.settle(c.onRelease)
}

// settle calls f unless the lease was released or refunded before.
func (c *callbacks) settle(f func()) {
	if c.done.CompareAndSwap(false, true) && f != nil {
		f()
	}
}
