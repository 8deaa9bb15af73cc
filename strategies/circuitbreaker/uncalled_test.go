package circuitbreaker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
)

// full returns a limiter that is so until the test is over.
func full(t *testing.T) limiter.Limiter {
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 10}))
	lease, err := l.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(lease.Release)
	return l
}

// An execution that did not come as far as the call says nothing about what is called, however it ended.
func TestStrategy_NothingWasCalled(t *testing.T) {
	in := func(l limiter.Limiter) pipeline.Strategy { return ratelimit.New(l, nil) }
	retries := retry.New(&retry.Options{MaxDuration: time.Second, Delay: time.Minute})
	slow := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		time.Sleep(time.Second)
		return next.Run(ctx)
	})
	slowed := func(s pipeline.Strategy) func(t *testing.T) []pipeline.Strategy {
		return func(*testing.T) []pipeline.Strategy { return []pipeline.Strategy{slow, s} }
	}
	for name, inner := range map[string]func(t *testing.T) []pipeline.Strategy{
		"the deadline passes before a circuit":  slowed(circuitbreaker.New(nil)),
		"the deadline passes before a pipeline": slowed(pipeline.Embed(weir.Must(pipeline.New("", slow)))),
		"the deadline passes before chaos":      slowed(chaos.NewFault(nil)),
		"the caller's deadline ends the wait in a queue": func(t *testing.T) []pipeline.Strategy {
			return []pipeline.Strategy{in(full(t))}
		},
		"a limiter that waits for longer than there is time": func(t *testing.T) []pipeline.Strategy {
			return []pipeline.Strategy{in(waiting{full(t)})}
		},
		"a retry gives up on a rejection": func(t *testing.T) []pipeline.Strategy {
			return []pipeline.Strategy{retries, in(weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))), in(full(t))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := atOnce(1)
				s := circuitbreaker.New(&o)
				p := weir.Must(pipeline.New("orders", append([]pipeline.Strategy{s}, inner(t)...)...))
				for range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					require.Error(t, p.Execute(ctx, func(context.Context) error { assert.Fail(t, "called"); return nil }))
					cancel()
				}
				assert.Equal(t, circuitbreaker.Closed, s.State())
			})
		})
	}
}

// waiting is a limiter of the program that does not reject.
type waiting struct{ limiter.Limiter }

func (w waiting) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return limiter.Wait(ctx, w.Limiter, n)
}

// The permit comes at the moment at which the deadline passes: the callback does not run, and the circuit counts nothing.
func TestStrategy_PermitAtTheDeadline(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			b := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
				TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second, QueueLimit: 1,
			}))
			_ = weir.Must(b.TryAcquire(t.Context(), 1))
			cb := circuitbreaker.New(&circuitbreaker.Options{ConsecutiveFailures: 1})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			called := false
			p := weir.Must(pipeline.New("p", cb, ratelimit.New(b, nil)))
			err := p.Execute(ctx, func(context.Context) error { called = true; return nil })
			if !called {
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.True(t, pipeline.NotCalled(err))
			}
			assert.Equal(t, circuitbreaker.Closed, cb.State())
		})
	}
}
