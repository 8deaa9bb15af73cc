package adaptive

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// A Limiter is a concurrency limiter that computes its limit from how long executions take, see the package comment. Make
// one with [NewLimiter]. Use it with the strategy that [New] makes, or call [Fail] and [Ignore] for executions that it
// should not learn from. It is safe for concurrent use.
//
// A lease of n permits is that of one execution that weighs as much as n others: its time counts once. An n above the
// present limit, but not above MaxLimit, is rejected rather than an error, because the limit can rise. The Limiter does
// not learn from a lease of 0 permits.
//
// Permits and the queue are those of a [limiter.Concurrency], so the limiter behaves like one whose limit changes. The
// limit is that of failsafe-go's limiter.
type Limiter struct {
	options LimiterOptions
	permits *limiter.Concurrency
	engine  adaptivelimiter.AdaptiveLimiter[any] // computes the limit, see measure

	current       atomic.Int64 // the limit that permits has; written with mu held
	undone        atomic.Int64 // grants that were refunded
	rejectedAbove atomic.Int64 // rejections of an n above the limit
	closed        atomic.Bool
	mu            sync.Mutex // held to change the limit
}

// NewLimiter makes a limiter with InitialLimit permits. If o is nil, it has the defaults. The error is a
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
	return l.answer(ctx, n, lease, err)
}

// Acquire takes n permits. If they are not free and the queue has room, it waits.
func (l *Limiter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	lease, err := l.permits.Acquire(ctx, n)
	return l.answer(ctx, n, lease, err)
}

// answer makes the lease of the engine's and the permits' of what the limiter of the permits returned.
func (l *Limiter) answer(ctx context.Context, n int, lease limiter.Lease, err error) (limiter.Lease, error) {
	switch {
	case err != nil:
		return l.refuse(ctx, n, err)
	case !lease.Acquired() || n == 0:
		return lease, nil
	}
	t := &tracked{to: l, permits: lease, samples: l.measure(n)}
	return t.lease(n, limiterKey), nil
}

// refuse makes a rejection of an error about n if n can be granted when the limit is higher.
func (l *Limiter) refuse(ctx context.Context, n int, err error) (limiter.Lease, error) {
	switch {
	case !errors.Is(err, limiter.ErrPermitCount) || n < 0 || n > l.options.MaxLimit:
		return limiter.Lease{}, err
	case ctx.Err() != nil:
		return limiter.Lease{}, pipeline.ContextError(ctx)
	case l.closed.Load():
		return limiter.Lease{}, limiter.ErrClosed
	}
	l.rejectedAbove.Add(1)
	return limiter.Rejected(0, limiter.ReasonLimitLowered), nil
}

// samples are the permits of the engine that a lease has: as many as the lease has permits, so that the engine knows how
// many are in use. The engine measures an execution by the first.
type samples struct {
	first  adaptivelimiter.Permit
	others []adaptivelimiter.Permit
}

// measure makes the engine measure an execution, from now on. The engine usually has n permits left, because they are
// taken from it after those of l.permits, and given back to it before. If its limit has just fallen it has fewer, and then
// the execution is measured with fewer, or not at all.
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

// settle ends a tracked lease: the engine learns from it, and its permits are released.
func (l *Limiter) settle(t *tracked, o outcome) {
	if first := t.samples.first; first != nil {
		if o == success {
			first.Record()
		} else {
			first.Drop()
		}
	}
	for _, permit := range t.samples.others {
		permit.Drop()
	}
	if o == undone && !l.closed.Load() {
		l.undone.Add(1)
	}
	was, is := l.follow()
	t.permits.Release() // after follow, so that waiters get permits by the new limit
	if was != is && l.options.OnLimitChanged != nil {
		l.options.OnLimitChanged(was, is)
	}
}

// follow puts the engine's limit in force. It returns the old and the new limit, which are the same if nothing changed.
func (l *Limiter) follow() (was, is int) {
	if current := l.current.Load(); int64(l.engine.Limit()) == current {
		return int(current), int(current)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	was, is = int(l.current.Load()), l.engine.Limit()
	if was != is && l.permits.Reconfigure(l.options.permits(is)) == nil { // an error: it is closed
		l.current.Store(int64(is))
	} else {
		is = was
	}
	return was, is
}

// Limit returns the present limit.
func (l *Limiter) Limit() int { return int(l.current.Load()) }

// Options returns the options with the defaults filled in.
func (l *Limiter) Options() LimiterOptions { return l.options }

// Statistics returns the current figures; those of a closed limiter are its last.
func (l *Limiter) Statistics() limiter.Statistics {
	s := l.permits.Statistics()
	s.SuccessfulLeases -= l.undone.Load()
	s.FailedLeases += l.rejectedAbove.Load()
	return s
}

// IdleDuration returns how long all permits have been free; ok is false while some are held. What the limiter has learned
// is kept.
func (l *Limiter) IdleDuration() (idle time.Duration, ok bool) { return l.permits.IdleDuration() }

// Close ends the waits in the queue. From then on TryAcquire and Acquire return [limiter.ErrClosed]. It always returns nil.
func (l *Limiter) Close() error {
	l.closed.Store(true)
	return l.permits.Close()
}
