package limiter

import (
	"sync/atomic"
	"time"
)

// Granted returns an acquired Lease of n permits, for custom limiters. A negative n counts as 0. release is called once,
// at the first Release of any copy; it can be nil.
//
// [Lease.Refund] calls release, too. If permits do not come back on Release, use [GrantedRefundable].
func Granted(n int, release func()) Lease {
	return GrantedRefundable(n, release, nil)
}

// GrantedRefundable is [Granted] for a limiter that spends permits rather than lends them: [Lease.Refund], which a [Chain]
// calls when a later limiter rejects, calls refund instead of release. One of the two functions is called, once. If
// refund is nil, release is called in its place.
func GrantedRefundable(n int, release, refund func()) Lease {
	n = max(n, 0)
	if release == nil && refund == nil {
		return Lease{owner: noOwner{}, n: n}
	}
	return Lease{owner: &callbacks{onRelease: release, onRefund: refund}, n: n}
}

// Rejected returns a Lease that is not acquired, for custom limiters. A retryAfter of 0 or less means "not known", an
// empty reason means that there is none.
func Rejected(retryAfter time.Duration, reason string) Lease {
	l := rejected(max(retryAfter, 0), nil)
	if reason != "" {
		l = ReasonKey.With(l, reason)
	}
	return l
}

// RejectedKnowing is [Rejected] for a limiter that knows how many permits were left. [Lease.Remaining] returns that
// number.
func RejectedKnowing(retryAfter time.Duration, reason string, remaining int64) Lease {
	l := Rejected(retryAfter, reason)
	l.n = encodeRemaining(remaining)
	return l
}

// A LeaseOwner takes back the leases that its [Granter] made. n and tag are the arguments of the [Granter.Grant] that
// made the lease. After [LeaseAdjuster.Adjust] they are the cost and the new tag. The methods are called from any
// goroutine, and several at once.
type LeaseOwner interface {
	// Release is called for every Release of every copy of the lease. The owner must ignore all but the first, and all
	// after a Refund.
	Release(n int, tag int64)
	// Refund undoes the grant as if it had never been; see [Lease.Refund]. It is called once for a grant.
	Refund(n int, tag int64)
}

// A LeaseAdjuster is a [LeaseOwner] whose leases can be adjusted to what the work has cost, because their permits are
// spent: [Lease.Lends] returns false for them, unless the owner has a method Lends() bool that returns true.
type LeaseAdjuster interface {
	// Adjust changes a grant of n permits into a grant of cost permits, and returns the tag of the adjusted lease; see
	// [Lease.Adjust]. ok reports whether it did.
	Adjust(n int, tag int64, cost int) (newTag int64, ok bool)
}

// A LeaseLearner is a [LeaseOwner] that learns from how the work ends and how long it takes.
type LeaseLearner interface {
	// Succeeded is called at most once, before Release, for work that has succeeded while its permits stay in use; see
	// [Lease.Succeeded].
	Succeeded(n int, tag int64)
}

// A LeaseCounter is a [LeaseOwner] that knows how many permits were left right after a grant.
type LeaseCounter interface {
	// Remaining returns how many permits were left; see [Lease.Remaining]. ok reports whether that is known.
	Remaining(n int, tag int64) (left int64, ok bool)
}

// A LeaseLeveler is a [LeaseOwner] that knows the level of its limiter right after a grant, for [Lease.Level].
type LeaseLeveler interface {
	// Level returns the level right after the grant of n permits. ok reports whether it is known.
	Level(n int, tag int64) (level Level, ok bool)
}

// A Granter makes leases for a custom limiter that grants often: unlike [GrantedRefundable], it allocates nothing for a
// lease. Make one for each owner with [NewGranter]; the zero Granter is not usable. It is safe for concurrent use.
type Granter struct{ by LeaseOwner }

// NewGranter returns a Granter of leases that go back to by.
func NewGranter(by LeaseOwner) *Granter { return &Granter{by: by} }

// Grant returns an acquired lease of n permits; a negative n counts as 0. The methods of the owner get the tag.
func (g *Granter) Grant(n int, tag int64) Lease { return Lease{owner: g, n: max(n, 0), tag: tag} }

func (g *Granter) release(n int, tag int64) { g.by.Release(n, tag) }
func (g *Granter) refund(n int, tag int64)  { g.by.Refund(n, tag) }

func (g *Granter) adjust(n int, tag int64, cost int) (owner, int64, bool) {
	a, ok := g.by.(LeaseAdjuster)
	if !ok {
		return g, tag, false
	}
	tag, ok = a.Adjust(n, tag, cost)
	return g, tag, ok
}

// noOwner is the owner of leases that have nothing to give back.
type noOwner struct{}

func (noOwner) release(int, int64) {}
func (noOwner) refund(int, int64)  {}

// callbacks is the owner of a lease that [GrantedRefundable] made.
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

// settle calls f unless the lease was released or refunded before.
func (c *callbacks) settle(f func()) {
	if c.done.CompareAndSwap(false, true) && f != nil {
		f()
	}
}
