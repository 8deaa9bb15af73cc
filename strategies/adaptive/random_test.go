package adaptive_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/strategies/adaptive"
)

// failing makes a throttler that has seen so many executions, of which the given number have failed.
func failing(t *testing.T, executions, failures int) *adaptive.Throttler {
	th := weir.Must(adaptive.NewThrottler(nil))
	for i := range executions {
		lease, err := th.Acquire(deterministic.WithRandom(t.Context(), always), 1)
		require.NoError(t, err)
		require.True(t, lease.Acquired())
		if i >= executions-failures {
			adaptive.Fail(lease)
		}
		lease.Release()
	}
	return th
}

// always is a source of numbers just below 1, by which only a rate of 1 rejects.
var always = &deterministic.Source{Rand: rand.New(most{})}

type most struct{}

func (most) Uint64() uint64 { return 1<<64 - 1 }

// The engine draws by itself. The throttler's own draw must reject the same share.
func TestThrottler_RejectsByRate(t *testing.T) {
	for _, failures := range []int{10, 15, 30, 60, 100} {
		synctest.Test(t, func(t *testing.T) {
			th := failing(t, 100, failures)
			const n = 20_000
			rejected := 0
			for range n {
				lease, err := th.TryAcquire(t.Context(), 0) // the throttler learns nothing from it
				require.NoError(t, err)
				if !lease.Acquired() {
					rejected++
				}
			}
			rate := th.RejectionRate()
			if failures > 10 {
				assert.Positive(t, rate)
			}
			assert.InDelta(t, rate, float64(rejected)/n, 0.025, "seven standard deviations")
		})
	}
}

// Package simulate repeats an execution by the random numbers of its context.
func TestThrottler_RandomOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := failing(t, 100, 60)
		decisions := func(seed uint64) (all []bool) {
			ctx := deterministic.WithRandom(context.Background(), &deterministic.Source{Rand: rand.New(rand.NewPCG(seed, 0))})
			for range 100 {
				lease, err := th.TryAcquire(ctx, 0)
				require.NoError(t, err)
				all = append(all, lease.Acquired())
			}
			return all
		}
		first := decisions(1)
		assert.Subset(t, first, []bool{true, false})
		assert.Equal(t, first, decisions(1))
		assert.NotEqual(t, first, decisions(2))
	})
}
