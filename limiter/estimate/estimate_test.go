package estimate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/estimate"
)

// Of calls with heavy tails, the share that costs at most the estimate is the quantile, but for an eighth by which the estimate may be
// too high, and what 2000 calls can tell.
func TestEstimator_Quantile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	call := func() int { return int(500 * math.Exp(random.NormFloat64()*math.Log(20)/2.326)) } // p99 is 20 times p50
	for _, q := range []float64{0.5, 0.9, 0.99} {
		e := weir.Must(estimate.New(&estimate.Options{Quantile: q}))
		for range 2000 {
			e.Observe("", call())
		}
		n, below := e.Estimate(""), 0
		for range 10_000 {
			if call() <= n {
				below++
			}
		}
		assert.InDelta(t, q, float64(below)/10_000, 0.06, "%v: %d", q, n)
	}
}

func TestEstimator_SmallCostsAreExact(t *testing.T) {
	e := weir.Must(estimate.New(nil))
	for cost := range 16 {
		for range 200 {
			e.Observe(fmt.Sprint(cost), cost)
		}
		assert.Equal(t, max(cost, 1), e.Estimate(fmt.Sprint(cost)))
	}
	e.Observe("wild", math.MaxInt)
	e.Observe("wild", -1)
	assert.Positive(t, e.Estimate("wild"))
}

func TestEstimator_ForgetsAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := weir.Must(estimate.New(&estimate.Options{Initial: 1000, HalfLife: time.Minute, MaxKeys: 2}))
		assert.InDelta(t, 1000, e.Estimate("new"), 125)
		for range 1000 {
			e.Observe("a", 4000)
		}
		assert.InDelta(t, 4000, e.Estimate("a"), 500)
		assert.InDelta(t, 4000, e.Estimate("new"), 500, "an unknown key is as all are")
		time.Sleep(10 * time.Minute)
		assert.InDelta(t, 4000, e.Estimate("a"), 500, "no call says otherwise")
		for range 10 {
			e.Observe("a", 50)
		}
		assert.InDelta(t, 50, e.Estimate("a"), 6, "1000 calls of 10 half-lives ago count as much as one")
		time.Sleep(time.Hour)
		e.Observe("a", 9)
		assert.Equal(t, 9, e.Estimate("a"))
		for i := range 100 {
			e.Observe(fmt.Sprint(i), 9)
		}
		assert.LessOrEqual(t, e.Estimate("99"), 10)
	})
}

func TestReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := weir.Must(limiter.NewTokenBucket(limiter.PerMinute(1000, 1000)))
		e := weir.Must(estimate.New(&estimate.Options{Initial: 300}))
		left := func() int64 { return tokens.Statistics().AvailablePermits }
		call, err := e.Reserve(t.Context(), tokens, "k")
		require.NoError(t, err)
		reserved := call.Lease.Permits()
		assert.InDelta(t, 300, reserved, 30)
		assert.EqualValues(t, 1000-reserved, left())
		assert.True(t, call.Commit(10))
		assert.EqualValues(t, 990, left())
		assert.Equal(t, 10, call.Lease.Permits())
		for range 200 {
			e.Observe("k", 5000)
		}
		call, err = e.Reserve(t.Context(), tokens, "k")
		require.NoError(t, err)
		assert.False(t, call.Lease.Acquired(), "it asks for all, and 10 are missing")
		time.Sleep(time.Minute)
		call, err = e.Reserve(t.Context(), tokens, "k")
		require.NoError(t, err)
		assert.Equal(t, 1000, call.Lease.Permits())
		time.Sleep(time.Minute)
		call, err = e.Reserve(t.Context(), weir.Must(limiter.Chain(tokens)), "k")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, call.Lease.Permits(), 500, "a chain does not say what it can grant")
		require.NoError(t, tokens.Close())
		_, err = e.Reserve(t.Context(), tokens, "k")
		require.ErrorIs(t, err, limiter.ErrClosed)
	})
}

func TestOptions_Validate(t *testing.T) {
	_, err := estimate.New(&estimate.Options{Quantile: math.NaN(), Initial: -1, HalfLife: -1, MaxKeys: -1})
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	for _, field := range []string{"Quantile", "Initial", "HalfLife", "MaxKeys"} {
		assert.ErrorContains(t, err, field)
	}
}

func BenchmarkEstimator(b *testing.B) {
	e := weir.Must(estimate.New(nil))
	for i := range 1000 {
		e.Observe("key", i)
	}
	b.Run("Estimate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.Estimate("key")
		}
	})
	b.Run("Observe", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.Observe("key", 700)
		}
	})
}
