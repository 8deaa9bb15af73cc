package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/rate"
)

// A Limiter is a [Model] behind a lock, with the real clock: a limiter for the conformance suite, correct or with a
// [Fault].
type Limiter struct {
	mu    sync.Mutex
	m     *Model
	start time.Time
	timer *time.Timer
}

func NewLimiter(k limitertest.Kind, l limitertest.Limits, f Fault) *Limiter {
	m := New(k, l)
	m.Fault = f
	return &Limiter{m: m, start: time.Now()}
}

// enter locks the limiter and brings the model up to date.
func (l *Limiter) enter() *Model {
	l.mu.Lock()
	l.m.Advance(time.Since(l.start))
	return l.m
}

// leave undoes enter: it sets the timer for the next grid line if there are waiters, and unlocks the limiter.
func (l *Limiter) leave() {
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.m.Queued() == 0 || !l.m.timed() || l.m.Late {
		return
	}
	line, step := l.m.Line()
	next := line + step
	if l.m.Fault == LateTimer {
		next++
	}
	l.timer = time.AfterFunc(next-time.Since(l.start), func() {
		l.enter()
		l.leave()
	})
}

// Hold stops the timer until Fire, as if it were late.
func (l *Limiter) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.m.Late = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// Fire does what the timer would do.
func (l *Limiter) Fire() {
	l.enter().Late = false
	l.leave()
}

// ended returns the error of a context that is done, or nil.
func ended(ctx context.Context, f Fault) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); f != NoCause && !errors.Is(cause, err) {
		return fmt.Errorf("model: %w: %w", err, cause)
	}
	return fmt.Errorf("model: %w", err)
}

// TryAcquire implements [limiter.Limiter].
func (l *Limiter) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	m := l.enter()
	defer l.leave()
	inRange := n >= 0 && n <= m.Limits.Permits || m.Fault == ContextBeforeRange
	if err := ended(ctx, m.Fault); err != nil && inRange && m.Fault != IgnoresDoneContext {
		return limiter.Lease{}, err
	}
	if m.Fault == RacyGrant && m.canTake(n) {
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
		r := &Request{N: n}
		m.grant(r)
		return l.answer(r)
	}
	return l.answer(m.Try(n))
}

// Peek implements [limiter.Peeker].
func (l *Limiter) Peek(ctx context.Context, n int) (limiter.Lease, error) {
	m := l.enter()
	defer l.leave()
	if err := ended(ctx, m.Fault); err != nil && n >= 0 && n <= m.Limits.Permits {
		return limiter.Lease{}, err
	}
	if r := m.Peek(n); r.Outcome != Granted || m.Fault == PeekHolds {
		return l.answer(r)
	}
	return custom.Granted(n, nil), nil
}

// Charge implements [limiter.Charger].
func (l *Limiter) Charge(ctx context.Context, n int) (limiter.Level, error) {
	m := l.enter()
	defer l.leave()
	if err := ended(ctx, m.Fault); err != nil {
		return limiter.Level{}, err
	}
	switch {
	case m.Kind == limitertest.Concurrency:
		return limiter.Level{}, errors.ErrUnsupported
	case m.Kind == limitertest.Unlimited:
		return limiter.Level{Remaining: math.MaxInt64}, nil
	case m.closed:
		return limiter.Level{}, limiter.ErrClosed
	}
	level, _ := m.Charge(n)
	return level, nil
}

// Acquire implements [limiter.Limiter].
func (l *Limiter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	m := l.enter()
	inRange := n >= 0 && n <= m.Limits.Permits || m.Fault != RangeBeforeContext
	if err := ended(ctx, m.Fault); err != nil && inRange && m.Fault != IgnoresDoneContext {
		l.leave()
		return limiter.Lease{}, err
	}
	r := m.Acquire(n)
	l.leave()
	select {
	case <-r.done:
	case <-ctx.Done():
		m := l.enter()
		m.Cancel(r)
		l.leave()
		if m.Fault == DeafToContext {
			<-r.done
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Outcome == Cancelled {
		return limiter.Lease{}, ended(ctx, l.m.Fault)
	}
	return l.answer(r)
}

// answer returns the lease or error of a request. The limiter is locked.
func (l *Limiter) answer(r *Request) (limiter.Lease, error) {
	switch r.Outcome {
	case Granted:
		return l.lease(r), nil
	case OutOfRange:
		return limiter.Lease{}, fmt.Errorf("%w: %d of %d", limiter.ErrPermitCount, r.N, l.m.Limits.Permits)
	case Closed:
		return limiter.Lease{}, limiter.ErrClosed
	}
	if l.m.Fault == ClosedIsError && r.Reason == limiter.ReasonClosed {
		return limiter.Lease{}, limiter.ErrClosed
	}
	return custom.Rejected(r.RetryMin, r.Reason), nil
}

func (l *Limiter) lease(r *Request) limiter.Lease {
	release := func() {
		m := l.enter()
		m.Release(r.N)
		if m.Fault == DoubleRelease {
			m.Release(r.N)
		}
		l.leave()
	}
	if l.m.Kind == limitertest.Concurrency {
		return custom.Granted(r.N, release)
	}
	return custom.GrantedRefundable(r.N, nil, func() {
		l.enter().Refund(r)
		l.leave()
	})
}

// Reconfigure puts new limits in force.
func (l *Limiter) Reconfigure(to limitertest.Limits) error {
	m := l.enter()
	defer l.leave()
	switch {
	case m.closed:
		return limiter.ErrClosed
	case invalid(m.Kind, to):
		return limiter.ErrInvalidOptions
	}
	m.Reconfigure(to)
	return nil
}

func invalid(k limitertest.Kind, l limitertest.Limits) bool {
	return k != limitertest.Unlimited && rate.Of(l.Of(k)).Validate() != nil
}

// Statistics implements [limiter.StatisticsProvider].
func (l *Limiter) Statistics() limiter.Statistics { return ask(l, (*Model).Statistics) }

// IdleDuration implements [custom.Idler].
func (l *Limiter) IdleDuration() (time.Duration, bool) {
	m := l.enter()
	defer l.leave()
	_, idle, ok := m.Idle()
	return idle, ok
}

// Close implements [io.Closer].
func (l *Limiter) Close() error { return ask(l, (*Model).Close) }

// ask returns what the model answers now.
func ask[T any](l *Limiter, question func(*Model) T) T {
	m := l.enter()
	defer l.leave()
	return question(m)
}
