package adaptive_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/strategies/adaptive"
)

func TestThrottler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := weir.Must(adaptive.NewThrottler(nil))
		ctx := t.Context()
		// run runs so many executions, of which every fails-th fails, and counts those rejected.
		run := func(executions, fails int) (rejected int) {
			for i := range executions {
				lease, err := th.Acquire(ctx, 1)
				require.NoError(t, err)
				switch {
				case !lease.Acquired():
					assert.Equal(t, adaptive.ReasonFailureRate, lease.Reason())
					rejected++
				case fails > 0 && i%fails == 0:
					adaptive.Fail(lease)
					adaptive.Fail(lease)
				default:
					lease.Release()
				}
			}
			return rejected
		}
		assert.Zero(t, run(9, 1), "too few to say anything")
		time.Sleep(2 * time.Minute)
		assert.Zero(t, run(1000, 0), "nothing fails")
		assert.Zero(t, run(100, 20), "a failure now and then")
		time.Sleep(2 * time.Minute)
		rejected := run(1000, 1)
		assert.Greater(t, rejected, 700, "about 0.9 of them")
		assert.Less(t, rejected, 990)
		assert.InDelta(t, 0.9, th.RejectionRate(), 0.001)
		assert.EqualValues(t, rejected, th.Statistics().FailedLeases)
		time.Sleep(2 * time.Minute)
		assert.Zero(t, run(100, 0), "all is forgotten")
	})
}

// failsafe-go's window moves on only when something is counted.
func TestThrottler_Recovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := weir.Must(adaptive.NewThrottler(&adaptive.ThrottlerOptions{
			MinExecutions: -1, FailureRate: 0.001, MaxRejectionRate: 1, Period: time.Second,
		}))
		acquired := func() bool {
			lease, err := th.Acquire(t.Context(), 1)
			require.NoError(t, err)
			adaptive.Fail(lease)
			return lease.Acquired()
		}
		granted := 0
		for range 1000 {
			if acquired() {
				granted++
			}
		}
		require.Less(t, granted, 500)
		require.Greater(t, th.RejectionRate(), 0.5)
		time.Sleep(time.Second)
		assert.True(t, acquired())
	})
}

func TestThrottler_Ignore(t *testing.T) {
	th := weir.Must(adaptive.NewThrottler(&adaptive.ThrottlerOptions{MinExecutions: -1, MaxRejectionRate: 1}))
	for range 50 {
		lease, err := th.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, lease.Acquired())
		adaptive.Ignore(lease)
		zero, err := th.TryAcquire(t.Context(), 0)
		require.NoError(t, err)
		adaptive.Fail(zero)
	}
	assert.Zero(t, th.RejectionRate())
}

func TestThrottler_IdleDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := weir.Must(adaptive.NewThrottler(nil))
		idle := func() time.Duration {
			d, ok := th.IdleDuration()
			if !ok {
				return -1
			}
			return d
		}
		time.Sleep(time.Second)
		assert.Equal(t, time.Second, idle())
		lease, err := th.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.Negative(t, idle(), "it runs")
		lease.Release()
		time.Sleep(time.Minute - 1)
		assert.Negative(t, idle(), "it is remembered")
		time.Sleep(time.Second + 1)
		assert.Equal(t, time.Second, idle())
	})
}

func TestThrottlerOptions_Validate(t *testing.T) {
	_, err := adaptive.NewThrottler(&adaptive.ThrottlerOptions{FailureRate: 1, Period: 1, MinExecutions: -2, MaxRejectionRate: 2})
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	for _, field := range []string{"FailureRate must", "Period must", "MinExecutions must", "MaxRejectionRate must"} {
		assert.ErrorContains(t, err, field)
	}
	assert.Equal(t, adaptive.ThrottlerOptions{FailureRate: 0.1, Period: time.Minute, MinExecutions: 10, MaxRejectionRate: 0.9},
		weir.Must(adaptive.NewThrottler(nil)).Options())
}
