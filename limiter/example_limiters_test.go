package limiter_test

import (
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// Tests of the two limiters in example_cpu_test.go and example_reason_test.go.
// They are not in those files so that the documentation shows them whole.

// procStat is from a machine of two processors.
const procStat = `cpu  10132153 290696 3084719 46828483 16683 7 25195 175628 9990 300
cpu0 1393280 32966 572056 13343292 6130 0 17875 87814 4990 150
cpu1 1335281 36563 518923 13345876 3211 7 7320 87814 5000 150
intr 8885411 17 9 0 0 0 0 0 0 1
ctxt 38014093
btime 1062191376
processes 2915
procs_running 1
procs_blocked 0
`

func TestParseProcStat(t *testing.T) {
	got, err := ParseProcStat(procStat)
	require.NoError(t, err)
	busy := uint64(10132153 + 290696 + 3084719 + 7 + 25195 + 175628)
	require.Equal(t, CPUTimes{Busy: busy, Total: busy + 46828483 + 16683}, got)

	for text, want := range map[string]CPUTimes{
		"cpu  1 2 3 4\n":                    {6, 10},
		"cpu 1 2 3 4 5":                     {6, 15},
		"cpu0 9 9 9 9\ncpu  1 1 1 1\n":      {3, 4},
		"cpu  1 2 3 4 5 6 7 8 9 10 11 12\n": {27, 36},
	} {
		got, err := ParseProcStat(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"":                "no cpu line",
		"cpu0 1 2 3 4\n":  "no cpu line",
		"cpu\n":           "0 fields",
		"cpu  1 2 3\n":    "3 fields",
		"cpu  1 -2 3 4\n": "invalid syntax",
		"cpu  1 2 x 4\n":  "invalid syntax",
	} {
		_, err := ParseProcStat(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestProcStatOfThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		_, err := ProcStat()
		require.Error(t, err)
		return
	}
	first, err := ProcStat()
	require.NoError(t, err)
	require.NotZero(t, first.Total)
	require.LessOrEqual(t, first.Busy, first.Total)

	l, err := NewCPULimiter(1, 0, nil)
	require.NoError(t, err)
	lease, err := l.Acquire(t.Context(), 1)
	require.NoError(t, err)
	require.True(t, lease.Acquired(), "nothing is busier than refillAll")
}

// sampled is a source that is told what to say.
type sampled struct {
	times CPUTimes
	err   error
	asked int
}

func (s *sampled) sample() (CPUTimes, error) {
	s.asked++
	return s.times, s.err
}

func (s *sampled) spend(busy, idle uint64) {
	s.times.Busy += busy
	s.times.Total += busy + idle
}

func TestCPULimiterSamplesNoMoreThanAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &sampled{}
		l, err := NewCPULimiter(0.5, 250*time.Millisecond, source.sample)
		require.NoError(t, err)
		_, known := l.Busy()
		require.False(t, known)

		source.spend(90, 10)
		time.Sleep(249 * time.Millisecond)
		lease, err := l.TryAcquire(t.Context(), 3)
		require.NoError(t, err)
		require.True(t, lease.Acquired(), "not known yet")
		require.Equal(t, 3, lease.Permits())
		require.Equal(t, 1, source.asked)

		time.Sleep(time.Millisecond)
		lease, err = l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.False(t, lease.Acquired())
		require.Equal(t, "cpu busy", lease.Reason())
		after, ok := lease.RetryAfter()
		require.True(t, ok)
		require.Equal(t, 250*time.Millisecond, after)

		source.spend(50, 50)
		time.Sleep(100 * time.Millisecond)
		lease, err = l.Acquire(t.Context(), 0)
		require.NoError(t, err)
		require.False(t, lease.Acquired())
		after, _ = lease.RetryAfter()
		require.Equal(t, 150*time.Millisecond, after)
		require.Equal(t, 2, source.asked)

		time.Sleep(after)
		lease, err = l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, lease.Acquired(), "as busy as it may be")
		busy, known := l.Busy()
		require.True(t, known)
		require.InDelta(t, 0.5, busy, 1e-9)
		require.Equal(t, 3, source.asked)
	})
}

func TestCPULimiterCountersThatStepBack(t *testing.T) {
	source := &sampled{}
	l, err := NewCPULimiter(0.5, 0, source.sample)
	require.NoError(t, err)
	acquired := func() bool {
		lease, err := l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		return lease.Acquired()
	}
	source.spend(90, 10)
	require.False(t, acquired())
	source.times = CPUTimes{Busy: 40, Total: 50}
	require.False(t, acquired(), "nothing is learned")
	require.False(t, acquired(), "nor where they stand still")
	source.spend(0, 10)
	require.True(t, acquired(), "that sample was where to start from")
	source.times = CPUTimes{Busy: 39, Total: 1000}
	require.True(t, acquired(), "busy steps back alone")

	// Waiting for disks may be counted down while other counters go up.
	source.times = CPUTimes{Busy: 139, Total: 1010}
	require.False(t, acquired())
	busy, _ := l.Busy()
	require.Equal(t, 1.0, busy)
}

func TestCPULimiterGrantsWhereItCannotSee(t *testing.T) {
	source := &sampled{}
	l, err := NewCPULimiter(0.5, 0, source.sample)
	require.NoError(t, err)
	source.spend(90, 10)
	lease, err := l.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	require.False(t, lease.Acquired())

	source.err = errors.New("no such file")
	lease, err = l.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	require.True(t, lease.Acquired())
	_, known := l.Busy()
	require.False(t, known)

	source.err = nil
	source.spend(90, 10)
	for _, want := range []bool{true, false} { // the first is what the second is compared with
		lease, err = l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, want, lease.Acquired())
		source.spend(90, 10)
	}
}

func TestCPULimiterErrors(t *testing.T) {
	for _, threshold := range []float64{0, -1, 1.01, math.NaN(), math.Inf(1)} {
		_, err := NewCPULimiter(threshold, time.Second, nil)
		require.ErrorIs(t, err, limiter.ErrInvalidOptions)
		require.ErrorContains(t, err, "threshold")
	}
	_, err := NewCPULimiter(0.5, -1, nil)
	require.ErrorIs(t, err, limiter.ErrInvalidOptions)
	require.ErrorContains(t, err, "every")

	l, err := NewCPULimiter(0.5, time.Hour, new(sampled).sample)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = l.TryAcquire(ctx, -1)
	require.ErrorIs(t, err, limiter.ErrPermitCount)
	cancel()
	_, err = l.Acquire(ctx, -1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.TryAcquire(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
}

// The source need not be safe for concurrent use: it is asked by one at a time.
func TestCPULimiterConcurrentSafe(t *testing.T) {
	var inside, ticks atomic.Int64
	l, err := NewCPULimiter(0.5, time.Microsecond, func() (CPUTimes, error) {
		if inside.Add(1) != 1 {
			t.Error("two at once")
		}
		defer inside.Add(-1)
		n := uint64(ticks.Add(1))
		return CPUTimes{Busy: n, Total: 4 * n}, nil
	})
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				if lease, err := l.TryAcquire(t.Context(), 1); err != nil || !lease.Acquired() {
					t.Error("rejected at 25%", err)
				}
			}
		})
	}
	all.Wait()
}

func TestWithReasonExplainsRejectionsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
			TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Minute,
		}))
		l := WithReason(inner, "too many")
		lease, err := l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, lease.Acquired())
		require.Empty(t, lease.Reason())

		for _, acquire := range []func(context.Context, int) (limiter.Lease, error){l.TryAcquire, l.Acquire} {
			lease, err = acquire(t.Context(), 1)
			require.NoError(t, err)
			require.False(t, lease.Acquired())
			require.Equal(t, "too many", lease.Reason())
			after, _ := lease.RetryAfter()
			require.Equal(t, time.Minute, after)

			lease, err = acquire(t.Context(), 2)
			require.ErrorIs(t, err, limiter.ErrPermitCount)
			require.Empty(t, lease.Reason())
		}
	})
}

func TestWithReasonPassesTheRestOn(t *testing.T) {
	inner := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: 2, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
	}))
	l := WithReason(inner, "too many")
	_, idle := l.(custom.Idler).IdleDuration()
	require.True(t, idle)
	_, err := l.Acquire(t.Context(), 1)
	require.NoError(t, err)
	_, idle = l.(custom.Idler).IdleDuration()
	require.False(t, idle)
	require.Equal(t, inner.Statistics(), l.(limiter.StatisticsProvider).Statistics())

	require.NoError(t, l.(io.Closer).Close())
	_, err = inner.TryAcquire(t.Context(), 1)
	require.ErrorIs(t, err, limiter.ErrClosed)
}

func TestWithReasonOfALimiterWithNothingMore(t *testing.T) {
	l := WithReason(scripted(func(context.Context, int) (limiter.Lease, error) {
		return custom.Rejected(0, "its own"), nil
	}), "too many")
	lease, err := l.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "too many", lease.Reason())

	_, isIdler := l.(custom.Idler)
	require.False(t, isIdler)
	require.Zero(t, l.(limiter.StatisticsProvider).Statistics())
	require.NoError(t, l.(io.Closer).Close())
}

// scripted is a limiter that answers what its function returns.
type scripted func(ctx context.Context, n int) (limiter.Lease, error)

func (s scripted) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) { return s(ctx, n) }
func (s scripted) Acquire(ctx context.Context, n int) (limiter.Lease, error)    { return s(ctx, n) }
