package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/validate"
)

// A Chained limiter grants what all its limiters grant. It asks them in order. The first rejection is the answer, and
// the leases that were granted before it are given back by [Lease.Refund], so that a rejected call costs nothing.
//
// Put first the limiter that rejects most and costs least. Acquire waits at one limiter at a time, and meanwhile holds
// the permits of the earlier limiters. So two chains that share limiters should have them in the same order, and no
// limiter should be in a chain twice. Make one with [Chain]; the zero Chained has no limiters and grants everything.
//
// A call takes the same number of permits of every limiter, unless a limiter is named and its cost differs: see [Chained.PerCall] and
// [WithCosts].
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

// PerCall makes calls take one permit of the limiters of those names, whatever they take of the others, and returns c. So a call that
// costs n tokens costs one request:
//
//	limits := weir.Must(weir.Must(limiter.Chain(requests, tokens)).Named("requests", "tokens"))
//	limits, err := limits.PerCall("requests")
//	lease, err := limits.Acquire(ctx, estimate)
//	lease, _ = lease.Adjust(used) // only tokens
//
// A call for 0 permits takes none of them, either. Call PerCall before the chain is used. The error is a [weir.OptionsError] if no
// limiter has that name.
func (c *Chained) PerCall(names ...string) (*Chained, error) {
	for _, name := range names {
		found := false
		for i := range c.members {
			if c.members[i].name == name {
				found, c.members[i].perCall = true, true
			}
		}
		if !found {
			return nil, optionsError("names", name, "must be the name of a limiter of the chain")
		}
	}
	return c, nil
}

// Costs are what a call costs at limiters of a chain, by their names.
type Costs map[string]int

// A costsContext is the key of Costs in a context.
type costsContext struct{}

// WithCosts returns a context for calls that cost something else than the number of permits that they ask for, at limiters of a
// [Chain] that have those names; see [Chained.Named]. In a chain of chains, the names are those of any of them.
//
//	ctx = limiter.WithCosts(ctx, limiter.Costs{"input": len(prompt) / 4, "output": 500})
//	lease, err := limits.Acquire(ctx, 1)
//	lease, _ = lease.AdjustCosts(limiter.Costs{"input": usage.Input, "output": usage.Output})
//
// In a queue with the order [Fair], n counts, and not these costs: ask for as many permits as the scarcest of them.
func WithCosts(ctx context.Context, costs Costs) context.Context {
	return context.WithValue(ctx, costsContext{}, maps.Clone(costs))
}

// CostsOf returns the costs of a context that [WithCosts] has returned, or one made from it; otherwise nil.
func CostsOf(ctx context.Context) Costs {
	costs, _ := ctx.Value(costsContext{}).(Costs)
	return costs
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
	costs := CostsOf(ctx)
	return takeAll(c.members, costs, n, &c.granted, func(i, n int) (Lease, error) {
		if wait {
			l, err := c.limiters[i].Acquire(ctx, n)
			deterministic.Take(ctx)
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
// no Idler of package custom.
func (c *Chained) IdleDuration() (idle time.Duration, ok bool) {
	for i, l := range c.limiters {
		member, can := l.(idler)
		if !can {
			return 0, false
		}
		d, ok := member.IdleDuration()
		if !ok {
			return 0, false
		}
		if i == 0 || d < idle {
			idle = d
		}
	}
	return idle, len(c.limiters) > 0
}

// Close closes the chain and none of its limiters: later calls return [ErrClosed]. It returns nil, and can be called
// again.
func (c *Chained) Close() error {
	c.closed.Store(true)
	return nil
}

// A jointLease is the owner of the lease of a chain, which is made of those of its limiters.
type jointLease struct {
	leases  []Lease
	few     [3]Lease      // room for the leases of a short chain, which then takes one allocation
	granted *atomic.Int64 // by the chain
	members []member
	costs   Costs       // in the context of the call
	pool    interface { // that has granted it, or nil
		Wake()
		correct(t Tenant, more int64)
	}
	returnOnce
}

// takeAll calls take for each member and combines the leases. If one rejects, fails or panics, the leases before it are
// refunded.
func takeAll(members []member, costs Costs, n int, granted *atomic.Int64, take func(i, n int) (Lease, error)) (Lease, error) {
	held := &jointLease{granted: granted, members: members, costs: costs}
	held.leases = held.few[:0]
	complete := false
	defer func() {
		if !complete {
			inReverse(held.leases, Lease.Refund)
		}
	}()
	for i := range members {
		each, _ := members[i].cost(costs, n)
		l, err := take(i, each)
		if err != nil {
			l.Refund() // in case a limiter grants with an error
			return Lease{}, members[i].wrap(err)
		}
		if !l.Acquired() {
			return members[i].rejected(l), nil
		}
		held.leases = append(held.leases, l)
	}
	complete = true
	granted.Add(1)
	return withMetadataOf(held.leases, Lease{owner: held, n: n}), nil
}

// A member is what a limiter of a chain is called.
type member struct {
	name    string
	perCall bool                     // a call costs one permit
	latest  atomic.Pointer[metadata] // of a rejection, so that rejecting for the same reason again allocates nothing
}

// cost returns what a call for n permits costs at the limiter, and whether that is its own cost.
func (m *member) cost(costs Costs, n int) (cost int, own bool) {
	if cost, own = costs[m.name]; own {
		return cost, true
	}
	if m.perCall {
		return min(n, 1), true
	}
	return n, false
}

func membersOf[L any](limiters []L) []member {
	members := make([]member, len(limiters))
	for i, l := range limiters {
		kind, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", l), "*"), "[")
		members[i].name = fmt.Sprintf("%d (%s)", i, kind)
	}
	return members
}

// wrap returns the error of a chain whose member returned err.
func (m *member) wrap(err error) error { return fmt.Errorf("%s: %w", memberText(m.name), err) }

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

func (j *jointLease) Release(int, int64) {
	if j.claim() {
		j.giveBack(Lease.Release)
	}
}

// giveBack calls f for all leases.
func (j *jointLease) giveBack(f func(Lease)) {
	if j.pool != nil {
		defer j.pool.Wake()
	}
	inReverse(j.leases, f)
}

func (j *jointLease) Refund(int, int64) {
	if j.claim() {
		j.granted.Add(-1)
		j.giveBack(Lease.Refund)
	}
}

// Correct notes in the pool's queue what a lease has cost more.
func (j *jointLease) Correct(t Tenant, more int64) {
	if j.pool != nil {
		j.pool.correct(t, more)
	}
}

func (j *jointLease) Lends() bool { return slices.ContainsFunc(j.leases, Lease.Lends) }

func (j *jointLease) Succeeded(int, int64) {
	for _, each := range j.leases {
		each.Succeeded()
	}
}

// adjusted adjusts the leases that can be adjusted, by adjust. The other leases stay as they are, because their permits are only
// lent.
func (j *jointLease) adjusted(adjust func(i int, l Lease) (Lease, bool)) (o owner, ok bool) {
	changed := &jointLease{
		leases: make([]Lease, len(j.leases)), granted: j.granted, members: j.members, costs: j.costs, pool: j.pool,
		returnOnce: returnOnce{original: &j.returnOnce},
	}
	for i, l := range j.leases {
		adjusted, did := adjust(i, l)
		changed.leases[i] = adjusted
		ok = ok || did
	}
	if j.pool != nil {
		j.pool.Wake()
	}
	return changed, ok
}

// adjustEach adjusts the lease of the i-th limiter to a cost of n, unless it has a cost of its own.
func (j *jointLease) adjustEach(n int) func(i int, l Lease) (Lease, bool) {
	return func(i int, l Lease) (Lease, bool) {
		if j.members != nil {
			if _, own := j.members[i].cost(j.costs, n); own {
				return l, true
			}
		}
		return l.Adjust(n)
	}
}

// adjustNamed adjusts the lease of the i-th limiter to its cost in costs, or those of a chain in it.
func (j *jointLease) adjustNamed(costs Costs) func(i int, l Lease) (Lease, bool) {
	return func(i int, l Lease) (Lease, bool) {
		if j.members != nil {
			if n, named := costs[j.members[i].name]; named {
				return l.Adjust(n)
			}
		}
		return l.AdjustCosts(costs)
	}
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

// Charge charges every limiter, but for those at which a call has a cost of its own; see [Charger]. It returns the fewest permits that remain at one of them, and the longest
// time until one of them is full.
//
// Charge first asks all limiters for their levels. If one of them returns an error, because it is closed or not a
// [Charger], Charge returns that error and nothing has changed. If a limiter fails after that, the others are charged.
func (c *Chained) Charge(ctx context.Context, n int) (Level, error) {
	if ctx.Err() != nil {
		return Level{}, ctxerr.Of(ctx)
	}
	if c.closed.Load() {
		return Level{}, ErrClosed
	}
	return chargeAll(c.members, CostsOf(ctx), n, func(i, n int) (Level, error) { return chargeLimiter(ctx, c.limiters[i], n) })
}

// chargeAll asks all members for their levels, charges all of them if none returns an error, and combines the levels and errors.
func chargeAll(members []member, costs Costs, n int, charge func(i, n int) (Level, error)) (Level, error) {
	if n != 0 {
		if level, err := chargeAll(members, costs, 0, charge); err != nil {
			return level, err
		}
	}
	least := unlimitedLevel
	var failed error
	for i := range members {
		each := n
		if _, own := members[i].cost(costs, n); own {
			each = 0
		}
		level, err := charge(i, each)
		if err != nil {
			failed = cmp.Or(failed, members[i].wrap(err))
		}
		least.Remaining = min(least.Remaining, level.Remaining)
		least.Full = max(least.Full, level.Full)
	}
	if failed != nil {
		return Level{}, failed
	}
	return least, nil
}

// chargeLimiter calls the Charge of any limiter.
func chargeLimiter(ctx context.Context, l Limiter, n int) (Level, error) {
	if c, ok := l.(Charger); ok {
		return c.Charge(ctx, n)
	}
	return Level{}, unsupported(l, "cannot be charged")
}

func unsupported(l any, what string) error {
	return fmt.Errorf("limiter: a %T %s: %w", l, what, errors.ErrUnsupported)
}

// Peek returns what TryAcquire(ctx, n) would return now; see [Peeker]. It asks the limiters in order, up to the first
// that would reject. The error is [errors.ErrUnsupported] if one of those is no [Peeker].
func (c *Chained) Peek(ctx context.Context, n int) (Lease, error) {
	if err := argumentError(ctx, n, false); err != nil {
		return Lease{}, err
	}
	if c.closed.Load() {
		return Lease{}, ErrClosed
	}
	costs := CostsOf(ctx)
	return peekAll(c.members, n, func(i int) (Lease, error) {
		each, _ := c.members[i].cost(costs, n)
		return peekLimiter(ctx, c.limiters[i], each)
	})
}

// peekLimiter calls the Peek of any limiter.
func peekLimiter(ctx context.Context, l Limiter, n int) (Lease, error) {
	if p, ok := l.(Peeker); ok {
		return p.Peek(ctx, n)
	}
	return Lease{}, unsupported(l, "has no Peek")
}

// peekAll is takeAll for Peek.
func peekAll(members []member, n int, peek func(i int) (Lease, error)) (Lease, error) {
	granted := make([]Lease, len(members))
	for i := range members {
		l, err := peek(i)
		if err != nil {
			return Lease{}, members[i].wrap(err)
		}
		if !l.Acquired() {
			return members[i].rejected(l), nil
		}
		granted[i] = l
	}
	return withMetadataOf(granted, peeked(n)), nil
}

// withMetadataOf returns l with the metadata of all leases. If several have a value of the same name, that of the first
// counts.
func withMetadataOf(leases []Lease, l Lease) Lease {
	for _, member := range slices.Backward(leases) {
		for name, value := range member.Metadata() {
			l = l.with(name, value)
		}
	}
	return l
}
