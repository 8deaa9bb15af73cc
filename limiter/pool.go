package limiter

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/waitlist"
	"github.com/weir-go/weir/rate"
)

// A Pool grants what any of its limiters grants, as a [Chained] limiter grants what all of them do: several keys of a paid API,
// several deployments of a model. It asks the limiter with the most permits left first, then the others. [PickedKey] says on the
// lease which of them granted it, by its index:
//
//	pool, err := limiter.AnyOf(&limiter.PoolOptions{QueueLimit: 1000}, first, second)
//	lease, err := pool.Acquire(ctx, 1)
//	i, _ := limiter.PickedKey.From(lease)
//	call(ctx, keys[i])
//
// All callers wait in the pool's queue, none in those of its limiters: who is first takes what comes first, wherever that is. So a
// Pool of one limiter is a queue before any limiter. Before a [Chain], it waits without holding the permits of the earlier limiters.
//
// Who is first holds up those behind it until its permits are there. Limits are not added: no more permits can be asked for at once than one of the limiters can grant. Make a Pool with [AnyOf]; the
// zero Pool has no limiters, and returns errors.
type Pool struct {
	limiters []Limiter
	members  []member
	granted  atomic.Int64

	mu     sync.Mutex
	queue  waitlist.List[poolWaiter]
	due    time.Duration // by clock.Now: when who is first can be served, as far as it knows
	failed int64
	closed bool
}

// A poolWaiter is what a Pool keeps of a waiter.
type poolWaiter struct {
	turn  chan struct{} // one signal: it may be first now, or permits may have come back
	lease Lease         // the answer, if Ready is closed
}

// PickedKey is the index of the limiter of a [Pool] that granted a lease.
var PickedKey = NewMetadataKey[int]("PICKED")

// PoolOptions are the options of a [Pool]. The zero value has no queue.
type PoolOptions struct {
	// QueueLimit is how many permits can be waited for. If 0, the pool has no queue.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first. The default is OldestFirst.
	QueueOrder QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
	// QueueLimitPerTenant is how many permits a tenant can wait for if QueueOrder is Fair. If 0, QueueLimit alone bounds it.
	QueueLimitPerTenant int `json:"queue_limit_per_tenant,omitempty" yaml:"queue_limit_per_tenant,omitempty"`
}

// limits returns the limits of the queue, as those of a concurrency limiter.
func (o PoolOptions) limits() rate.Limits {
	return ConcurrencyOptions{
		PermitLimit: 1, QueueLimit: o.QueueLimit, QueueOrder: o.QueueOrder, QueueLimitPerTenant: o.QueueLimitPerTenant,
	}.Limits()
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o stands for the defaults.
func (o *PoolOptions) Validate() error { return cmp.Or(o, new(PoolOptions)).limits().Validate() }

// AnyOf returns a pool of limiters. If o is nil, the defaults apply. The error is a [weir.OptionsError], also if there are no
// limiters, or if one is nil.
func AnyOf(o *PoolOptions, limiters ...Limiter) (*Pool, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := checkMembers(limiters); err != nil {
		return nil, err
	}
	p := &Pool{limiters: slices.Clone(limiters), members: membersOf(limiters)}
	p.queue.Configure(cmp.Or(o, new(PoolOptions)).limits())
	return p, nil
}

// TryAcquire takes n permits of one limiter, if one has them and no earlier caller waits.
func (p *Pool) TryAcquire(ctx context.Context, n int) (Lease, error) { return p.acquire(ctx, n, false) }

// Acquire takes n permits of the limiter that has them first, and waits for its turn if the pool's queue has room.
func (p *Pool) Acquire(ctx context.Context, n int) (Lease, error) { return p.acquire(ctx, n, true) }

func (p *Pool) acquire(ctx context.Context, n int, wait bool) (Lease, error) {
	if err := argumentError(ctx, n, wait); err != nil {
		return Lease{}, err
	}
	p.mu.Lock()
	closed, passes := p.closed, p.queue.Empty() || n == 0 || p.queue.Order() == NewestFirst
	var rejection Lease
	if !passes { // it would wait behind who is first, and that one waits as long
		rejection = rejected(max(p.due-clock.Now(), 0), nil)
	}
	p.mu.Unlock()
	if closed {
		return Lease{}, ErrClosed
	}
	if passes {
		l, err := p.take(ctx, n)
		if err != nil || l.Acquired() {
			return l, err
		}
		rejection = l
	}
	if !wait {
		return p.reject(rejection, ""), nil
	}
	return p.enqueue(ctx, n, rejection)
}

// reject counts a rejection, and returns it with a reason: the limiter's, if it has given one.
func (p *Pool) reject(l Lease, reason string) Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rejectLocked(l, reason)
}

func (p *Pool) rejectLocked(l Lease, reason string) Lease {
	p.failed++
	if reason != "" && l.Reason() == "" {
		l = ReasonKey.With(l, reason)
	}
	return l
}

// take asks all limiters, those with the most permits left first. If none grants, the lease is a rejection with the least RetryAfter.
// The error is that of the first limiter, if none has decided.
func (p *Pool) take(ctx context.Context, n int) (Lease, error) {
	var least Lease
	var failed error
	decided := false
	for _, i := range p.byAvailable() {
		l, err := p.limiters[i].TryAcquire(ctx, n)
		switch {
		case err != nil:
			l.Refund() // in case a limiter grants with an error
			failed = cmp.Or(failed, p.members[i].wrap(err))
			continue
		case l.Acquired():
			return p.granting(l, i), nil
		}
		after, known := l.RetryAfter()
		if before, ok := least.RetryAfter(); !decided || known && (!ok || after < before) {
			least = l
		}
		decided = true
	}
	if !decided {
		return Lease{}, failed
	}
	return least, nil
}

// byAvailable returns the indexes of the limiters, those with the most permits left first.
func (p *Pool) byAvailable() []int {
	indexes, left := make([]int, len(p.limiters)), make([]int64, len(p.limiters))
	for i, l := range p.limiters {
		indexes[i], left[i] = i, -1
		if s, ok := l.(StatisticsProvider); ok {
			left[i] = s.Statistics().AvailablePermits
		}
	}
	slices.SortStableFunc(indexes, func(a, b int) int { return cmp.Compare(left[b], left[a]) })
	return indexes
}

// granting returns the lease of the pool for that of a limiter.
func (p *Pool) granting(l Lease, i int) Lease {
	p.granted.Add(1)
	held := &jointLease{granted: &p.granted, pool: p}
	held.leases = append(held.few[:0], l)
	return PickedKey.With(withMetadataOf(held.leases, Lease{owner: held, n: l.Permits()}), i)
}

// enqueue puts the caller into the queue, or rejects it.
func (p *Pool) enqueue(ctx context.Context, n int, rejection Lease) (Lease, error) {
	tenant := Tenant{}
	if p.order() == Fair {
		tenant = TenantOf(ctx)
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return Lease{}, ErrClosed
	}
	evicted, ok := p.queue.MakeRoom(n, tenant)
	if !ok {
		defer p.mu.Unlock()
		if p.queue.Limit() == 0 {
			return p.rejectLocked(rejection, ReasonNoPermit), nil
		}
		return p.rejectLocked(rejection, ReasonQueueLimit), nil
	}
	w := &waitlist.Waiter[poolWaiter]{
		Permits: n, Tenant: tenant, Ready: make(chan struct{}), Value: poolWaiter{turn: make(chan struct{}, 1)},
	}
	p.queue.Push(w)
	for _, out := range evicted {
		out.Value.lease = p.rejectLocked(rejection, ReasonQueueLimit)
		close(out.Ready)
	}
	p.mu.Unlock()
	return p.await(ctx, w)
}

func (p *Pool) order() QueueOrder {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.Order()
}

// await waits until w is first and a limiter grants. Who is first asks when permits are due, when a lease of the pool is given back,
// and twice a second: the limiters can be used by others, too.
func (p *Pool) await(ctx context.Context, w *waitlist.Waiter[poolWaiter]) (Lease, error) {
	defer func() { // also after a panic of ctx or a limiter
		p.mu.Lock()
		p.queue.Remove(w)
		p.mu.Unlock()
		p.Wake() // the next one
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	timer.Stop()
	for {
		if p.isFirst(w) {
			l, err := p.take(ctx, w.Permits)
			if err != nil || l.Acquired() {
				return p.served(w, l, err)
			}
			again, known := l.RetryAfter()
			if !known {
				again = askAgain
			}
			p.mu.Lock()
			p.due = saturate.Add(clock.Now(), again)
			p.mu.Unlock()
			timer.Reset(min(again, askAgain))
		}
		select {
		case <-w.Ready:
			return w.Value.lease, nil
		case <-w.Value.turn:
		case <-timer.C:
		case <-ctx.Done():
			return p.served(w, Lease{}, ctxerr.Of(ctx))
		}
	}
}

// askAgain is how long the first waiter of a Pool waits at most before it asks the limiters again.
const askAgain = 500 * time.Millisecond

func (p *Pool) isFirst(w *waitlist.Waiter[poolWaiter]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.First() == w
}

// correct notes that what a waiter of a tenant was served has cost that many permits more, or fewer.
func (p *Pool) correct(t Tenant, more int64) {
	p.mu.Lock()
	p.queue.Correct(t, more)
	p.mu.Unlock()
	p.Wake()
}

// served takes w out of the queue, and returns its answer: l and err, unless w was pushed out or the pool was closed before.
func (p *Pool) served(w *waitlist.Waiter[poolWaiter], l Lease, err error) (Lease, error) {
	p.mu.Lock()
	here := w.Listed()
	if here && l.Acquired() {
		p.queue.Serve(w)
		if p.queue.Order() == Fair {
			l = TenantKey.With(l, w.Tenant)
		}
	}
	p.queue.Remove(w)
	p.mu.Unlock()
	if here {
		return l, err
	}
	l.Refund()
	return w.Value.lease, nil
}

// Wake makes the waiter that is first ask the limiters now. A release of a lease of the pool does that by itself. Call it if permits have
// come back that the pool cannot know of, so that the waiter need not ask for half a second.
func (p *Pool) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.queue.First(); w != nil {
		select {
		case w.Value.turn <- struct{}{}:
		default:
		}
	}
}

// Statistics returns the sum of the permits that are left, the permits that callers wait for in the pool, the leases that the pool has
// granted, and the calls that it has rejected. Limiters that are no [StatisticsProvider] are left out.
func (p *Pool) Statistics() (sum Statistics) {
	for _, l := range p.limiters {
		if s, ok := l.(StatisticsProvider); ok {
			each := s.Statistics()
			sum.AvailablePermits = saturate.Add(sum.AvailablePermits, each.AvailablePermits)
			sum.LastKnown = sum.LastKnown || each.LastKnown
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sum.QueuedPermits, sum.SuccessfulLeases, sum.FailedLeases = p.queue.Permits(), p.granted.Load(), p.failed
	return sum
}

// Close rejects all waiters and closes the pool, and none of its limiters: later calls return [ErrClosed]. It returns nil, and can be
// called again.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for w := range p.queue.All() {
		p.queue.Remove(w)
		w.Value.lease = rejected(0, limiterClosed)
		close(w.Ready)
	}
	return nil
}
