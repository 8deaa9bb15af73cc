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

// A Limiter is a concurrency limiter that finds out its limit by itself, see the
// package comment. Make one with [NewLimiter], and use it with [New] or tell it
// with [Fail] what it should not learn from. It is safe for concurrent use.
//
// A lease of n permits stands for one execution that weighs as much as n others:
// its time is counted once. An n above today's limit, but not above MaxLimit, is
// rejected rather than an error; it would have to wait for the limit, not for
// others. A lease of no permits is not learned from.
//
// Permits and the queue are those of a [limiter.Concurrency], so the limiter
// behaves like one at each moment; what is failsafe-go's is the limit.
type Limiter struct {
	options LimiterOptions
	permits *limiter.Concurrency
	// What computes the limit. It counts along what runs, but nobody waits for it
	// to agree: see measure.
	engine adaptivelimiter.AdaptiveLimiter[any]

	current    atomic.Int64 // the limit that permits has
	undone     atomic.Int64 // grants that came to nothing
	outOfReach atomic.Int64 // rejections above today's limit
	closed     atomic.Bool
	changing   sync.Mutex // held to change current
}

// NewLimiter makes a limiter with InitialLimit permits there. The error is a
// [limiter.ErrInvalidOptions].
func NewLimiter(o LimiterOptions) (*Limiter, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	permits, err := limiter.NewConcurrency(o.permits(o.InitialLimit))
	if err != nil {
		return nil, err
	}
	l := &Limiter{options: o, permits: permits, engine: o.engine()}
	l.current.Store(int64(o.InitialLimit))
	return l, nil
}

// TryAcquire takes n permits if they are there now.
func (l *Limiter) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	lease, err := l.permits.TryAcquire(ctx, n)
	return l.answer(ctx, n, lease, err)
}

// Acquire takes n permits, and waits for them in the queue where there is room.
func (l *Limiter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	lease, err := l.permits.Acquire(ctx, n)
	return l.answer(ctx, n, lease, err)
}

func (l *Limiter) answer(ctx context.Context, n int, lease limiter.Lease, err error) (limiter.Lease, error) {
	switch {
	case err != nil:
		return l.refuse(ctx, n, err)
	case !lease.Acquired() || n == 0:
		return lease, nil
	}
	t := &tracked{to: l, took: took{permits: lease, samples: l.measure(n)}}
	return t.lease(n, limiterKey), nil
}

// refuse tells an n that can be granted some other day from one that never can.
func (l *Limiter) refuse(ctx context.Context, n int, err error) (limiter.Lease, error) {
	switch {
	case !errors.Is(err, limiter.ErrPermitCount) || n < 0 || n > l.options.MaxLimit:
		return limiter.Lease{}, err
	case ctx.Err() != nil:
		return limiter.Lease{}, pipeline.ContextError(ctx)
	case l.closed.Load():
		return limiter.Lease{}, limiter.ErrClosed
	}
	l.outOfReach.Add(1)
	return limiter.Rejected(0, limiter.ReasonLimitLowered), nil
}

// took is what a lease has taken.
type took struct {
	permits limiter.Lease
	samples samples
}

// samples are what the engine counts for a lease: one for each permit, so that it
// knows how full the limiter is.
type samples struct {
	first adaptivelimiter.Permit
	rest  []adaptivelimiter.Permit
}

// measure starts the clock of an execution. The engine has room for it, since it
// is told first of what is over, and last asked for what begins; but where its
// limit fell in this very moment it has not, and then this one is not measured.
func (l *Limiter) measure(n int) samples {
	var s samples
	s.first, _ = l.engine.TryAcquirePermit()
	for range n - 1 {
		permit, ok := l.engine.TryAcquirePermit()
		if !ok {
			break
		}
		s.rest = append(s.rest, permit)
	}
	return s
}

// settle implements what a tracked lease tells.
func (l *Limiter) settle(t *tracked, o outcome) {
	if first := t.took.samples.first; first != nil {
		if o == success {
			first.Record()
		} else {
			first.Drop()
		}
	}
	for _, permit := range t.took.samples.rest {
		permit.Drop()
	}
	if o == undone && !l.closed.Load() {
		l.undone.Add(1)
	}
	was, is := l.follow()
	t.took.permits.Release() // to those who wait, by the new limit
	if was != is && l.options.OnLimitChanged != nil {
		l.options.OnLimitChanged(was, is)
	}
}

// follow makes the limit in force the one that the engine has come to. It returns what it was and what it
// is, the same if nothing changed.
func (l *Limiter) follow() (was, is int) {
	if current := l.current.Load(); int64(l.engine.Limit()) == current {
		return int(current), int(current)
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	was, is = int(l.current.Load()), l.engine.Limit()
	if was != is && l.permits.Reconfigure(l.options.permits(is)) == nil { // an error: it is closed
		l.current.Store(int64(is))
	} else {
		is = was
	}
	return was, is
}

// Limit returns today's limit.
func (l *Limiter) Limit() int { return int(l.current.Load()) }

// Options returns the options, with the defaults filled in.
func (l *Limiter) Options() LimiterOptions { return l.options }

// Statistics returns the current figures; those of a closed limiter are its last.
func (l *Limiter) Statistics() limiter.Statistics {
	s := l.permits.Statistics()
	s.SuccessfulLeases -= l.undone.Load()
	s.FailedLeases += l.outOfReach.Load()
	return s
}

// IdleDuration returns for how long all permits have been there; ok is false
// while some are held. What was learned may be old by then, but is not forgotten.
func (l *Limiter) IdleDuration() (idle time.Duration, ok bool) { return l.permits.IdleDuration() }

// Close sends the waiters away. From then on TryAcquire and Acquire return
// [limiter.ErrClosed]. It never fails.
func (l *Limiter) Close() error {
	l.closed.Store(true)
	return l.permits.Close()
}
