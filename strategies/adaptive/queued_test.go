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
	one := limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}
	for _, c := range []struct {
		limiter  limiter.Limiter
		strategy func(limiter.Limiter) pipeline.Strategy
		want     string
	}{
		{
			weir.Must(weir.Must(limiter.Chain(weir.Must(limiter.NewConcurrency(one)))).Named("slots")),
			func(l limiter.Limiter) pipeline.Strategy { return ratelimit.New(l, nil) },
			"ratelimit: orders/RateLimiter: no permit before the context ended: limiter slots of the chain: context deadline exceeded",
		},
		{
			weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 1, QueueLimit: 1})),
			func(l limiter.Limiter) pipeline.Strategy { return adaptive.New(l, nil) },
			"ratelimit: orders/AdaptiveLimiter: no permit before the context ended: context deadline exceeded",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			lease, err := c.limiter.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
			defer lease.Release()
			called := func(context.Context) error { t.Error("it ran"); return nil }
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err = weir.Must(pipeline.New("orders", c.strategy(c.limiter))).Execute(ctx, called)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.True(t, pipeline.NotCalled(err))
			assert.NotErrorIs(t, err, pipeline.ErrRejected)
			assert.EqualError(t, err, c.want)

			err = weir.Must(pipeline.New("orders", timeout.New(time.Second, nil), c.strategy(c.limiter))).Execute(t.Context(), called)
			require.ErrorIs(t, err, pipeline.ErrRejected, "a strategy ended the wait")
			assert.True(t, pipeline.NotCalled(err))
		})
	}
}
