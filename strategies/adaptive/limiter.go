package adaptive

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/strategies/internal/judge"
)

// A Limiter is a concurrency limiter that computes its limit from how long executions take, see the package comment. Make
// one with [NewLimiter]. Use it with the strategy that [New] makes, or call [Fail] and [Ignore] for executions that it
// should not learn from. It is safe for concurrent use.
//
// A lease of n permits belongs to one execution, which weighs as much as n others, and whose time counts once. If n is
// above the present limit, but not above MaxLimit, the lease is rejected; that is not an error, because the limit can
// rise. The Limiter does not learn from a lease of 0 permits.
//
// The Limiter behaves like a [limiter.Concurrency] whose limit changes.
type Limiter struct {
	options LimiterOptions
	permits *limiter.Concurrency
	engine  adaptivelimiter.AdaptiveLimiter[any] // failsafe-go's, which computes the limit; see measure

	current       atomic.Int64 // the limit that permits has; written with mu held
	rejectedAbove atomic.Int64 // rejections of an n above the limit
	mu            sync.Mutex   // held to change the limit
}

// NewLimiter makes a limiter with InitialLimit permits. If o is nil, the defaults apply. The error is a
// [weir.OptionsError].
func NewLimiter(o *LimiterOptions) (*Limiter, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	full := o.withDefaults()
	permits, err := limiter.NewConcurrency(full.permits(full.InitialLimit))
	if err != nil {
		return nil, err
	}
	l := &Limiter{options: full, permits: permits, engine: full.engine()}
	l.current.Store(int64(full.InitialLimit))
	return l, nil
}

// TryAcquire takes n permits if they are free.
func (l *Limiter) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	lease, err := l.permits.TryAcquire(ctx, n)
	return l.track(ctx, n, lease, err)
}

// Acquire takes n permits. If they are not free and the queue has room, it waits.
func (l *Limiter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	lease, err := l.permits.Acquire(ctx, n)
	return l.track(ctx, n, lease, err)
}

// Peek returns what TryAcquire would return now; see [limiter.Peeker].
func (l *Limiter) Peek(ctx context.Context, n int) (limiter.Lease, error) {
	lease, err := l.permits.Peek(ctx, n)
	if err != nil {
		return l.aboveLimit(ctx, n, err)
	}
	return lease, nil
}

// track returns the lease for what the limiter of the permits returned: one that the engine learns from, if it granted
// them, or what aboveLimit makes of an error.
func (l *Limiter) track(ctx context.Context, n int, lease limiter.Lease, err error) (limiter.Lease, error) {
	switch {
	case err == nil && (!lease.Acquired() || n == 0):
		return lease, nil
	case err == nil:
		return (&grant{by: l, ctx: ctx, permits: lease, samples: l.measure(n)}).lease(n, limiterKey), nil
	}
	lease, err = l.aboveLimit(ctx, n, err)
	if err == nil {
		l.rejectedAbove.Add(1)
	}
	return lease, err
}

// aboveLimit returns a rejection in place of the error about an n that a higher limit would allow, and other errors as
// they are.
func (l *Limiter) aboveLimit(ctx context.Context, n int, err error) (limiter.Lease, error) {
	if !errors.Is(err, limiter.ErrPermitCount) || n < 0 || n > l.options.MaxLimit {
		return limiter.Lease{}, err
	}
	if _, err := l.permits.Peek(ctx, 0); err != nil { // ctx is done, or the limiter is closed
		return limiter.Lease{}, err
	}
	return custom.Rejected(0, limiter.ReasonLimitLowered), nil
}

// samples are the permits that a grant has taken from the engine: as many as from l.permits, so that the engine knows how
// many are in use. The engine measures the execution by the first.
type samples struct {
	first  adaptivelimiter.Permit
	others []adaptivelimiter.Permit
}

// measure makes the engine measure an execution from now on. The engine usually has n permits left, because they are
// taken from it after those of l.permits, and go back to it before those. If its limit has just fallen, it has fewer, and
// the execution is measured with fewer or not at all.
func (l *Limiter) measure(n int) samples {
	var s samples
	s.first, _ = l.engine.TryAcquirePermit()
	for range n - 1 {
		permit, ok := l.engine.TryAcquirePermit()
		if !ok {
			break
		}
		s.others = append(s.others, permit)
	}
	return s
}

// settle makes the engine learn from a grant, and releases its permits.
func (l *Limiter) settle(g *grant, o judge.Outcome) {
	l.record(g, o)
	for _, permit := range g.samples.others {
		permit.Drop()
	}
	change := l.adoptLimit()
	if o == judge.Refunded { // after adoptLimit, so that waiters get permits by the new limit
		g.permits.Refund()
	} else {
		g.permits.Release()
	}
	l.report(g.ctx, change)
}

// learn makes the engine learn from a grant whose permits stay in use. The body of an HTTP response is read as fast as
// the client wants, so the time that the engine learns from ends with the header.
func (l *Limiter) learn(g *grant, o judge.Outcome) {
	l.record(g, o)
	g.learned = true
	g.samples.first, _ = l.engine.TryAcquirePermit() // the engine goes on counting the permits as in use
	l.report(g.ctx, l.adoptLimit())
}

// record gives the engine the first permit of a grant back, with the time that it was held if that is a sample.
func (l *Limiter) record(g *grant, o judge.Outcome) {
	switch first := g.samples.first; {
	case first == nil:
	case o == judge.Success && !g.learned:
		first.Record()
	default:
		first.Drop()
	}
}

func (l *Limiter) report(ctx context.Context, c LimitChange) {
	if c.Old != c.Current && l.options.OnLimitChanged != nil {
		l.options.OnLimitChanged(ctx, c)
	}
}

// adoptLimit puts the engine's limit in force. If nothing changed, the limits that it returns are the same.
func (l *Limiter) adoptLimit() (c LimitChange) {
	if l.engine.Limit() == l.Limit() {
		return c
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	was, is := l.Limit(), l.engine.Limit()
	if was == is || l.permits.Reconfigure(l.options.permits(is)) != nil { // an error: it is closed
		return c
	}
	l.current.Store(int64(is))
	return LimitChange{Old: was, Current: is}
}

// Limit returns the present limit.
func (l *Limiter) Limit() int { return int(l.current.Load()) }

// Options returns the options with the defaults filled in.
func (l *Limiter) Options() LimiterOptions { return l.options }

// Statistics returns the current figures; those of a closed limiter are its last.
func (l *Limiter) Statistics() limiter.Statistics {
	s := l.permits.Statistics()
	s.FailedLeases += l.rejectedAbove.Load()
	return s
}

// IdleDuration returns how long all permits have been free; ok is false while some are held. What the limiter has learned
// is kept.
func (l *Limiter) IdleDuration() (idle time.Duration, ok bool) { return l.permits.IdleDuration() }

// Close ends the waits in the queue. From then on TryAcquire and Acquire return [limiter.ErrClosed]. It always returns nil.
func (l *Limiter) Close() error { return l.permits.Close() }

// A grant is what a limiter of this package attaches to the lease of an execution. The first outcome that it gets counts.
type grant struct {
	done atomic.Bool
	by   interface {
		settle(g *grant, o judge.Outcome)
	} // the limiter

	// Of a Limiter:
	ctx     context.Context // of the execution
	permits limiter.Lease
	samples samples
	learned bool // the engine has learned from the execution; the permits are still in use
}

// settle hands the first outcome to the limiter.
func (g *grant) settle(o judge.Outcome) {
	if g.done.CompareAndSwap(false, true) {
		g.by.settle(g, o)
	}
}

// learn hands the outcome to the limiter, and leaves permits that are lent to the Release of the lease. Nothing else may
// use the lease meanwhile.
func (g *grant) learn(o judge.Outcome) {
	if l, ok := g.by.(*Limiter); !ok {
		g.settle(o) // a throttler lends nothing
	} else if !g.learned {
		l.learn(g, o)
	}
}

// Release, Refund, Succeeded and Lends implement [custom.Owner].
func (g *grant) Release(int, int64)   { g.settle(judge.Success) }
func (g *grant) Refund(int, int64)    { g.settle(judge.Refunded) }
func (g *grant) Succeeded(int, int64) { g.learn(judge.Success) }
func (g *grant) Lends() bool          { return g.permits.Acquired() }

// The keys by which Fail and Ignore find the grant of a lease, also of a chain's. A chain keeps one value for each key.
// So each type of limiter has its key, and a throttler and a limiter in one chain both learn.
var (
	limiterKey   = limiter.NewMetadataKey[*grant]("ADAPTIVE_LIMITER")
	throttlerKey = limiter.NewMetadataKey[*grant]("ADAPTIVE_THROTTLER")
)

// lease makes the lease of g.
func (g *grant) lease(n int, key limiter.MetadataKey[*grant]) limiter.Lease {
	return key.With(custom.GrantedBy(g, n, 0), g)
}

// Fail records that the execution which held the lease failed, and releases the lease. If the lease was released before,
// it does nothing. It releases a lease of a limiter that is not of this package without recording anything.
//
// Of the limiters of a chain the first [Limiter] and the first [Throttler] record the failure; a second one of the same
// type counts a success.
func Fail(l limiter.Lease) { settle(l, judge.Failure) }

// Ignore releases the lease, and the limiter does not learn from its execution: the caller gave up, or it never began.
// Otherwise it is like [Fail].
func Ignore(l limiter.Lease) { settle(l, judge.Ignored) }

// learn hands o to the limiters of l, and leaves the permits to the Release of l. Nothing else may use l meanwhile.
func learn(l limiter.Lease, o judge.Outcome) {
	if g, ok := throttlerKey.From(l); ok {
		g.learn(o)
	}
	if g, ok := limiterKey.From(l); ok {
		g.learn(o)
	}
	l.Succeeded() // the others, which learn nothing of o
}

// settle hands o to the limiters of l, and releases l.
func settle(l limiter.Lease, o judge.Outcome) {
	defer l.Release() // the other leases of a chain, also if OnLimitChanged panics
	if g, ok := throttlerKey.From(l); ok {
		g.settle(o)
	}
	if g, ok := limiterKey.From(l); ok {
		g.settle(o)
	}
}
