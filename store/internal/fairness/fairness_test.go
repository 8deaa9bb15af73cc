package fairness

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
)

// The tests of package store let fleets of instances share limits. These are the bounds of single turns.

var bucket = &rate.Schedule{Kind: rate.TokenBucket, Permits: 24, Refill: 24, Period: 100_000}

const ms = time.Millisecond

func TestTurns_Delays(t *testing.T) {
	now := time.Now()
	for range 100 {
		var f Turns
		require.Zero(t, f.Granted(bucket, ms, now), "no caller was rejected")
		f = Turns{}
		require.InDelta(t, 40*ms, f.Rejected(bucket, ms, 40*ms, false, now), float64(3200*time.Microsecond), "first half")
		again := now.Add(45 * ms)
		require.True(t, f.Short(again))
		d := f.Granted(bucket, ms, again)
		require.True(t, d >= 3*ms && d < 7*ms)
		require.Equal(t, d, f.Left(again))
		d = f.Rejected(bucket, ms, 40*ms, false, again) - 40*ms
		require.True(t, d >= 3*ms && d < 7*ms, "second half: it got some")
		d = f.Rejected(bucket, ms, 40*ms, false, again) - 40*ms
		require.True(t, d >= 0 && d <= 4*ms, "first half: it got none")
		require.False(t, f.Short(again.Add(2*time.Second)))
		require.Zero(t, f.Rejected(bucket, 0, 40*ms, true, again)-40*ms, "no distance, no delay")
		require.Equal(t, time.Duration(math.MaxInt64), f.Rejected(bucket, ms, math.MaxInt64, true, now))
	}
}

func TestTurns_AtMost(t *testing.T) {
	now := time.Now()
	var f Turns
	require.Equal(t, int64(math.MaxInt64), f.AtMost(bucket, ms, now), "not short")
	f.Rejected(bucket, ms, 0, false, now)
	for _, want := range []int64{6, 12, 24} {
		require.Equal(t, want, f.AtMost(bucket, ms, now))
		f.Granted(bucket, ms, now)
	}
	f.Rejected(bucket, ms, 0, true, now)
	require.EqualValues(t, 6, f.AtMost(bucket, ms, now))
	require.Equal(t, int64(math.MaxInt64), f.AtMost(bucket, 40*ms, now), "far away")
}

func TestTurns_Lead(t *testing.T) {
	require.Zero(t, lead(bucket, 20*ms))
	require.Equal(t, 60*ms-60*ms/16-ms, lead(bucket, 60*ms))
}

func TestTurns_Leases(t *testing.T) {
	now := time.Now()
	var f Turns
	f.Lease(true, 0, 0, ms, now)
	require.Zero(t, f.BeforeLease(true, now), "no others are known")
	f.Lease(false, 0, 0, ms, now)
	require.True(t, f.LookDue(now.Add(250*ms)))
	d := f.BeforeLease(true, now.Add(250*ms))
	require.True(t, d >= 3*ms && d <= 7*ms, "a look")
	require.False(t, f.LookDue(now.Add(251*ms)))

	f.Lease(false, 1, 0, ms, now)
	require.True(t, f.Short(now))
	d = f.BeforeLease(true, now)
	require.LessOrEqual(t, d, 4*ms, "others hold it")
	require.Zero(t, f.BeforeLease(false, now), "polling is random by itself")
	f.Lease(true, 0, 0, ms, now)
	require.GreaterOrEqual(t, f.BeforeLease(true, now), 3*ms, "it got the last one")
	require.Zero(t, f.BeforeLease(false, now))
	require.GreaterOrEqual(t, f.BeforeLease(false, now.Add(40*ms)), 37*ms)
	f.Lease(true, 1, 1, ms, now)
	require.Zero(t, f.BeforeLease(true, now), "some are left")

	f = Turns{}
	f.Released(now)
	require.True(t, f.Short(now), "a caller of another instance waits")
}
