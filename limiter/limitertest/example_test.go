package limitertest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/limitertest"
)

// semaphore is a custom limiter: a channel, without a queue.
type semaphore chan struct{}

func (s semaphore) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	if n < 0 || n > cap(s) {
		return limiter.Lease{}, fmt.Errorf("semaphore: %w: %d of %d", limiter.ErrPermitCount, n, cap(s))
	}
	if ctx.Err() != nil {
		return limiter.Lease{}, fmt.Errorf("semaphore: %w: %w", ctx.Err(), context.Cause(ctx))
	}
	for taken := range n {
		select {
		case s <- struct{}{}:
		default:
			s.giveBack(taken)
			return custom.Rejected(0, ""), nil
		}
	}
	return custom.Granted(n, func() { s.giveBack(n) }), nil
}

func (s semaphore) giveBack(n int) {
	for range n {
		<-s
	}
}

func (s semaphore) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	if ctx.Err() != nil {
		return limiter.Lease{}, fmt.Errorf("semaphore: %w: %w", ctx.Err(), context.Cause(ctx))
	}
	lease, err := s.TryAcquire(ctx, n)
	if err == nil && !lease.Acquired() {
		return custom.Rejected(0, limiter.ReasonNoPermit), nil
	}
	return lease, err
}

// A limiter of one's own, held to all that it says it can do.
func TestRun_CustomLimiter(t *testing.T) {
	limitertest.Run(t, limitertest.Subject{
		Kind: limitertest.Concurrency,
		New: func(_ testing.TB, l limitertest.Limits) limiter.Limiter {
			return make(semaphore, l.Permits)
		},
		Lacks: limitertest.Queue | limitertest.ZeroPermits | limitertest.Statistics | limitertest.Idle | limitertest.Close |
			limitertest.Peek,
	})
}
