package limiter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

func left(l limiter.StatisticsProvider) int64 { return l.Statistics().AvailablePermits }

func TestChain_PerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, tokens := bucketOf(10, time.Second), bucketOf(100, time.Second)
		limits := weir.Must(weir.Must(limiter.Chain(requests, tokens)).Named("requests", "tokens"))
		_, err := limits.PerCall("request")
		require.EqualError(t, err, `limiter: names must be the name of a limiter of the chain, got "request"`)
		limits = weir.Must(limits.PerCall("requests"))

		l := weir.Must(limits.TryAcquire(t.Context(), 40))
		assert.EqualValues(t, 9, left(requests))
		assert.EqualValues(t, 60, left(tokens))
		l, ok := l.Adjust(70)
		assert.True(t, ok)
		assert.EqualValues(t, 9, left(requests))
		assert.EqualValues(t, 30, left(tokens))
		assert.False(t, weir.Must(limits.TryAcquire(t.Context(), 31)).Acquired())
		assert.False(t, weir.Must(limits.Peek(t.Context(), 31)).Acquired())
		assert.True(t, weir.Must(limits.Peek(t.Context(), 30)).Acquired())
		assert.EqualValues(t, 9, left(requests), "a rejected call costs no request")
		l.Refund()
		assert.EqualValues(t, 10, left(requests))
		assert.EqualValues(t, 100, left(tokens))
		assert.True(t, weir.Must(limits.TryAcquire(t.Context(), 0)).Acquired())
		assert.EqualValues(t, 10, left(requests))
	})
}

func TestChain_Costs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, input, output := bucketOf(10, time.Second), bucketOf(100, time.Second), bucketOf(50, time.Second)
		tokens := weir.Must(weir.Must(limiter.Chain(input, output)).Named("input", "output"))
		limits := weir.Must(weir.Must(limiter.Chain(requests, tokens)).Named("requests", "tokens"))
		ctx := limiter.WithCosts(t.Context(), limiter.Costs{"input": 30, "output": 20})
		l := weir.Must(limits.Acquire(ctx, 1))
		assert.Equal(t, []int64{9, 70, 30}, []int64{left(requests), left(input), left(output)})
		assert.False(t, weir.Must(limits.TryAcquire(limiter.WithCosts(ctx, limiter.Costs{"output": 31}), 1)).Acquired())
		assert.Equal(t, []int64{9, 70, 30}, []int64{left(requests), left(input), left(output)})

		l, ok := l.AdjustCosts(limiter.Costs{"input": 10, "output": 60, "other": 5})
		assert.True(t, ok)
		assert.Equal(t, []int64{9, 90, 0}, []int64{left(requests), left(input), left(output)})
		assert.False(t, weir.Must(limits.Peek(ctx, 1)).Acquired(), "the output owes 10")
		_, ok = l.AdjustCosts(limiter.Costs{"none": 1})
		assert.False(t, ok)
		_, ok = weir.Must(requests.TryAcquire(ctx, 1)).AdjustCosts(limiter.Costs{"requests": 1})
		assert.False(t, ok, "it is of no chain")
		_, err := limits.TryAcquire(limiter.WithCosts(ctx, limiter.Costs{"input": -1}), 1)
		require.ErrorIs(t, err, limiter.ErrPermitCount)
		assert.ErrorContains(t, err, "input")

		// Behind a pool, too.
		pool := weir.Must(limiter.AnyOf(nil, limits))
		time.Sleep(time.Hour)
		l = weir.Must(pool.Acquire(ctx, 1))
		_, ok = l.AdjustCosts(limiter.Costs{"input": 100})
		assert.True(t, ok)
		assert.Equal(t, []int64{9, 0, 30}, []int64{left(requests), left(input), left(output)})
	})
}
