package adaptive_test

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
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
)

// The error of an execution that only queued says that nothing was called. It is no rejection: the limiter works, and
// the caller gave up.
func TestStrategy_ContextEndsInTheQueue(t *testing.T) {
	slots := func() limiter.Limiter {
		return weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}))
	}
	cases := []struct {
		name     string
		limiter  limiter.Limiter
		strategy func(limiter.Limiter) pipeline.Strategy
		want     string
	}{
		{
			"a limiter", slots(), func(l limiter.Limiter) pipeline.Strategy { return ratelimit.New(l, nil) },
			"ratelimit: orders/RateLimiter: no permit before the context ended: ",
		},
		{
			"a chain", weir.Must(weir.Must(limiter.Chain(slots())).Named("slots")), func(l limiter.Limiter) pipeline.Strategy { return ratelimit.New(l, nil) },
			"ratelimit: orders/RateLimiter: no permit before the context ended: limiter slots of the chain: ",
		},
		{
			"an adaptive limiter", weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 1, QueueLimit: 1})),
			func(l limiter.Limiter) pipeline.Strategy { return adaptive.New(l, nil) },
			"ratelimit: orders/AdaptiveLimiter: no permit before the context ended: ",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease, err := c.limiter.TryAcquire(t.Context(), 1)
				require.NoError(t, err)
				defer lease.Release()
				p := weir.Must(pipeline.New("orders", c.strategy(c.limiter)))
				timed := weir.Must(pipeline.New("orders", timeout.New(time.Second, nil), c.strategy(c.limiter)))
				called := func(context.Context) error { t.Error("it ran"); return nil }

				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err = p.Execute(ctx, called)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.True(t, pipeline.NotCalled(err))
				assert.NotErrorIs(t, err, pipeline.ErrRejected)
				assert.EqualError(t, err, c.want+"context deadline exceeded")

				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				err = p.Execute(ctx, called)
				require.ErrorIs(t, err, context.Canceled)
				assert.True(t, pipeline.NotCalled(err))
				assert.EqualError(t, err, c.want+"context canceled")

				err = timed.Execute(t.Context(), called)
				require.ErrorIs(t, err, pipeline.ErrRejected, "a strategy ended the wait")
				assert.True(t, pipeline.NotCalled(err))
			})
		})
	}
}
