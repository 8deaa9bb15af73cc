package limiter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/turn"
	"github.com/weir-go/weir/internal/validate"
)

// A Chained limiter grants what all its limiters grant. It asks them in order. The first rejection is the answer, and
// the leases that were granted before it are given back by [Lease.Refund], so that a rejected call costs nothing.
//
// Put first the limiter that rejects most and costs least. Acquire waits at one limiter at a time, and meanwhile holds
// the permits of the earlier limiters. So two chains that share limiters should have them in the same order, and no
// limiter should be in a chain twice. Make one with [Chain]; the zero Chained has no limiters and grants everything.
//
// A rejection has the [ChainMemberKey] of the limiter that rejected, and an error names the limiter that returned it.
type Chained struct {
	limiters []Limiter
	members  []member // one for each limiter
	granted  atomic.Int64
	closed   atomic.Bool
}

// Chain returns a limiter that asks all of limiters, in that order. The error is a [weir.OptionsError] if there are
// none, or if one is nil or holds a nil pointer.
func Chain(limiters ...Limiter) (*Chained, error) {
	if err := checkMembers(limiters); err != nil {
		return nil, err
	}
	return &Chained{limiters: slices.Clone(limiters), members: membersOf(limiters)}, nil
}

// Named gives the limiters names for errors and rejections, in their order, and returns c. A limiter without a name, or
// with "", is called by its index and type: "0 (limiter.TokenBucket)". Call Named before the chain is used. The error is a
// [weir.OptionsError] if there are more names than limiters.
func (c *Chained) Named(names ...string) (*Chained, error) {
	if most := len(c.members); len(names) > most {
		var p validate.Problems
		p.Add("names", len(names), "must be at most %d, one for each limiter", most)
		return nil, p.Err("limiter")
	}
	for i, name := range names {
		c.members[i].name = cmp.Or(name, c.members[i].name)
	}
	return c, nil
}

// checkMembers returns the error of a chain of those limiters, or nil.
func checkMembers[L any](limiters []L) error {
	var p validate.Problems
	if len(limiters) == 0 {
		p.Add("limiters", nil, "must have at least one")
	}
	for i, l := range limiters {
		if isnil.Value(l) {
			p.Add(fmt.Sprintf("limiters[%d]", i), nil, "must not be nil")
		}
	}
	return p.Err("limiter")
}

// TryAcquire takes n permits of every limiter if they are free.
func (c *Chained) TryAcquire(ctx context.Context, n int) (Lease, error) {
	return c.acquire(ctx, n, false)
}

// Acquire takes n permits of every limiter, and waits at each in its turn.
func (c *Chained) Acquire(ctx context.Context, n int) (Lease, error) { return c.acquire(ctx, n, true) }

func (c *Chained) acquire(ctx context.Context, n int, wait bool) (Lease, error) {
	if err := argumentError(ctx, n, wait); err != nil {
		return Lease{}, err
	}
	if c.closed.Load() {
		return Lease{}, ErrClosed
	}
	return takeAll(c.members, n, &c.granted, func(i int) (Lease, error) {
		if wait {
			l, err := c.limiters[i].Acquire(ctx, n)
			turn.Take(ctx)
			return l, err
		}
		return c.limiters[i].TryAcquire(ctx, n)
	})
}

// Statistics returns the least of the available permits, the sums of the queued permits and of the rejected leases, and
// the leases that the chain itself has granted. Limiters that are no [StatisticsProvider] are left out.
func (c *Chained) Statistics() Statistics {
	var sum Statistics
	first := true
	for _, l := range c.limiters {
		p, ok := l.(StatisticsProvider)
		if !ok {
			continue
		}
		s := p.Statistics()
		if first || s.AvailablePermits < sum.AvailablePermits {
			sum.AvailablePermits = s.AvailablePermits
		}
		first = false
		sum.LastKnown = sum.LastKnown || s.LastKnown
		sum.QueuedPermits = saturate.Add(sum.QueuedPermits, s.QueuedPermits)
		sum.FailedLeases = saturate.Add(sum.FailedLeases, s.FailedLeases)
	}
	sum.SuccessfulLeases = c.granted.Load()
	return sum
}

// IdleDuration returns the least of the limiters' idle durations. ok is false while one of them is in use, or if one is
// no [Idler].
func (c *Chained) IdleDuration() (idle time.Duration, ok bool) {
	for i, l := range c.limiters {
		idler, can := l.(Idler)
		if !can {
			return 0, false
		}
		d, ok := idler.IdleDuration()
		if !ok {
			return 0, false
		}
		if i == 0 || d < idle {
			idle = d
		}
	}
	return idle, len(c.limiters) > 0
}

// TryReplenish calls TryReplenish of every limiter that is a [Replenisher], and reports whether one of them returned
// true.
func (c *Chained) TryReplenish() bool {
	if c.closed.Load() {
		return false
	}
	did := false
	for _, l := range c.limiters {
		if r, ok := l.(Replenisher); ok && r.TryReplenish() {
			did = true
		}
	}
	return did
}

// ReplenishmentPeriod returns the shortest period of the limiters that have one, or 0.
func (c *Chained) ReplenishmentPeriod() time.Duration {
	var least time.Duration
	for _, l := range c.limiters {
		if r, ok := l.(Replenisher); ok {
			if d := r.ReplenishmentPeriod(); d > 0 && (least == 0 || d < least) {
				least = d
			}
		}
	}
	return least
}

// AutoReplenishing reports whether every limiter that is a [Replenisher] replenishes by itself.
func (c *Chained) AutoReplenishing() bool {
	for _, l := range c.limiters {
		if r, ok := l.(Replenisher); ok && !r.AutoReplenishing() {
			return false
		}
	}
	return true
}

// Close closes the chain and none of its limiters: later calls return [ErrClosed]. It returns nil, and can be called
// again.
func (c *Chained) Close() error {
	c.closed.Store(true)
	return nil
}

// chainLease is the owner of the leases of one grant.
type chainLease struct {
	leases  []Lease
	few     [3]Lease // room for the leases of a short chain, which then takes one allocation
	granted *atomic.Int64
	returnOnce
}

// takeAll calls take for each member and combines the leases. If one rejects, fails or panics, the leases before it are
// refunded.
func takeAll(members []member, n int, granted *atomic.Int64, take func(i int) (Lease, error)) (Lease, error) {
	held := &chainLease{granted: granted}
	held.leases = held.few[:0]
	complete := false
	defer func() {
		if !complete {
			inReverse(held.leases, Lease.Refund)
		}
	}()
	for i := range members {
		l, err := take(i)
		if err != nil {
			l.Refund() // in case a limiter grants with an error
			return Lease{}, members[i].failed(err)
		}
		if !l.Acquired() {
			return members[i].rejected(l), nil
		}
		held.leases = append(held.leases, l)
	}
	complete = true
	granted.Add(1)
	return held.combine(n), nil
}

// A member is what a limiter of a chain is called.
type member struct {
	name   string
	latest atomic.Pointer[metadata] // of a rejection, so that rejecting for the same reason again allocates nothing
}

func membersOf[L any](limiters []L) []member {
	members := make([]member, len(limiters))
	for i, l := range limiters {
		kind, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", l), "*"), "[")
		members[i].name = fmt.Sprintf("%d (%s)", i, kind)
	}
	return members
}

// failed returns the error of a chain whose member returned err.
func (m *member) failed(err error) error { return fmt.Errorf("%s: %w", memberText(m.name), err) }

// memberText is what texts call a member of that name.
func memberText(name string) string { return "limiter " + name + " of the chain" }

// rejected returns l, which the limiter rejected, with the name of the member.
func (m *member) rejected(l Lease) Lease {
	why := l.metadata()
	if known := m.latest.Load(); known != nil && known.next == why {
		return l.rejectedWith(known)
	}
	name := m.name
	if inner, ok := ChainMemberKey.From(l); ok {
		name += "/" + inner
	}
	l = ChainMemberKey.With(l, name)
	m.latest.Store(l.metadata())
	return l
}

// combine returns one lease for all of the leases, with their metadata.
func (c *chainLease) combine(n int) Lease { return withMetadataOf(c.leases, Lease{owner: c, n: n}) }

func (c *chainLease) release(int, int64) {
	if c.first() {
		inReverse(c.leases, Lease.Release)
	}
}

func (c *chainLease) refund(int, int64) {
	if c.first() {
		c.granted.Add(-1)
		inReverse(c.leases, Lease.Refund)
	}
}

// adjust adjusts the leases that can be adjusted. The other leases stay as they are, because their permits are only
// lent.
func (c *chainLease) adjust(_ int, tag int64, cost int) (owner, int64, bool) {
	changed := &chainLease{
		leases: make([]Lease, len(c.leases)), granted: c.granted, returnOnce: returnOnce{original: &c.returnOnce},
	}
	did := false
	for i, l := range c.leases {
		adjusted, ok := l.Adjust(cost)
		changed.leases[i] = adjusted
		did = did || ok
	}
	if !did {
		return c, tag, false
	}
	return changed, tag, true
}

// inReverse calls f for all leases, the last one first, even if f panics.
func inReverse(leases []Lease, f func(Lease)) {
	if len(leases) == 0 {
		return
	}
	last := len(leases) - 1
	defer inReverse(leases[:last], f)
	f(leases[last])
}
