package limiter_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/limitertest"
)

// timed are the kinds that can be charged.
var timed = []limitertest.Kind{limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.TokenBucket, limitertest.Calendar}

// chargeLimits are 10 permits, of which a bucket gets 2 in each 10 ms.
var chargeLimits = limitertest.Limits{
	Permits: 10, Period: 10 * time.Millisecond, TokensPerPeriod: 2, Segments: 5, QueueLimit: 20,
}

// eachTimed runs f in a bubble for each kind that can be charged.
func eachTimed(t *testing.T, f func(t *testing.T, k limitertest.Kind, l limiter.Limiter)) {
	t.Helper()
	for _, k := range timed {
		t.Run(k.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, k, weir.Must(build(k, chargeLimits))) })
		})
	}
}

// charge charges a limiter, and returns what remains.
func charge(t *testing.T, l any, n int) int64 {
	t.Helper()
	level, err := l.(limiter.Charger).Charge(t.Context(), n)
	require.NoError(t, err)
	return level.Remaining
}

func TestCharge_Saturates(t *testing.T) {
	eachTimed(t, func(t *testing.T, _ limitertest.Kind, l limiter.Limiter) {
		least := int64(math.MinInt64)
		for range 5 {
			level, err := l.(limiter.Charger).Charge(t.Context(), math.MaxInt)
			require.NoError(t, err)
			assert.Negative(t, level.Remaining)
			assert.Positive(t, level.Full)
			least = max(least, level.Remaining)
		}
		assert.Positive(t, deny(t, l, 10))
		for range 5 {
			charge(t, l, math.MinInt)
		}
		assert.EqualValues(t, 10, charge(t, l, 0))
		take(t, l, 10)
	})
}

func TestCharge_ZeroValues(t *testing.T) {
	for _, l := range []limiter.Charger{&limiter.TokenBucket{}, &limiter.FixedWindow{}, &limiter.SlidingWindow{}} {
		for _, n := range []int{-1, 0, 1} {
			_, err := l.Charge(t.Context(), n)
			assert.ErrorContains(t, err, "zero value", "%T", l)
		}
	}
}

func TestUnlimited_Charge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := limiter.NewUnlimited().(interface {
			limiter.Charger
			custom.Idler
		})
		time.Sleep(time.Second)
		for _, n := range []int{0, -5, math.MinInt} {
			level, err := u.Charge(t.Context(), n)
			require.NoError(t, err)
			assert.Equal(t, limiter.Level{Remaining: math.MaxInt64}, level)
			idle, _ := u.IdleDuration()
			assert.Equal(t, time.Second, idle)
		}
		assert.Equal(t, int64(math.MaxInt64), charge(t, u, 5))
		idle, _ := u.IdleDuration()
		assert.Zero(t, idle)
	})
}

// A lease is worth nothing once its permits have come back by a Charge: others took the permits that are missing now.
func TestCharge_LaterRefund(t *testing.T) {
	eachTimed(t, func(t *testing.T, k limitertest.Kind, l limiter.Limiter) {
		a := take(t, l, 6)
		charge(t, l, -6)
		b := take(t, l, 6)
		a.Refund()
		assert.EqualValues(t, 4, charge(t, l, 0), "a's permits had come back")
		b.Refund()
		assert.EqualValues(t, 10, charge(t, l, 0))

		a = take(t, l, 6)
		charge(t, l, -4)
		c := take(t, l, 3)
		a.Refund()
		left := int64(7) // 2 of a's permits were missing
		if k == limitertest.SlidingWindow || k == limitertest.Calendar {
			left = 5 // the segment cannot tell them from c's
		}
		assert.Equal(t, left, charge(t, l, 0))
		c.Refund()
		assert.Equal(t, left+3, charge(t, l, 0))

		charge(t, l, -10)
		charge(t, l, 5)
		d := take(t, l, 5)
		charge(t, l, -5)
		d.Refund()
		assert.EqualValues(t, 10, charge(t, l, 0), "the 5 that came back can be the 5 that were charged before")
	})
}

// Charge begins the grid of a new key's bucket where TryAcquire would, and a question begins none.
func TestCharge_BeginsTheGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(limiter.FactoryFor[string](chargeLimits.TokenBucket())("key"))
		charge(t, l, 0)
		time.Sleep(3 * time.Millisecond)
		level, err := l.(limiter.Charger).Charge(t.Context(), 1)
		require.NoError(t, err)
		assert.Equal(t, limiter.Level{Remaining: 9, Full: 10 * time.Millisecond}, level)
	})
}
