package adaptive_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/strategies/adaptive"
)

// A server has so many places; who finds none waits for one. Every execution
// takes 10 ms in its place.
type server chan struct{}

func (s server) serve(n int) {
	for range n {
		s <- struct{}{}
	}
	time.Sleep(10 * time.Millisecond)
	for range n {
		<-s
	}
}

// load runs clients against the server through l for a while, each as fast as it
// is let, and returns the highest limit that was seen meanwhile.
func load(l *adaptive.Limiter, s server, clients int, d time.Duration, end func(limiter.Lease)) (highest int) {
	began := time.Now()
	var most atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for time.Since(began) < d {
				lease, err := l.TryAcquire(context.Background(), 1)
				if err != nil || !lease.Acquired() {
					time.Sleep(time.Millisecond)
					continue
				}
				s.serve(1)
				end(lease)
				for now := int64(l.Limit()); now > most.Load(); {
					most.Store(now)
				}
			}
		})
	}
	wg.Wait()
	return int(most.Load())
}

func release(l limiter.Lease) { l.Release() }

func TestLimiter_LimitRises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []int
		l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{
			InitialLimit: 5, MaxLimit: 40,
			OnLimitChanged: func(_ context.Context, c adaptive.LimitChange) {
				if len(changes) > 0 {
					assert.Equal(t, changes[len(changes)-1], c.Old)
				}
				changes = append(changes, c.Current)
			},
		}))
		load(l, make(server, 100), 50, time.Minute, release)
		assert.Equal(t, 40, l.Limit(), "there is room for 100")
		assert.EqualValues(t, 40, l.Statistics().AvailablePermits, "what is granted follows the limit")
		require.NotEmpty(t, changes)
		assert.Equal(t, 40, changes[len(changes)-1])
	})
}

func TestLimiter_LimitFalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 40, MaxLimit: 100}))
		load(l, make(server, 60), 40, 20*time.Second, release)
		require.GreaterOrEqual(t, l.Limit(), 40)
		before := l.Limit()
		load(l, make(server, 4), 40, 10*time.Second, release) // the server has lost most of its places
		assert.Less(t, l.Limit(), before)
	})
}

func TestLimiter_DoesNotLearnFromFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(limiter.Lease){"fail": adaptive.Fail, "ignore": adaptive.Ignore} {
			l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 5}))
			highest := load(l, make(server, 100), 10, 20*time.Second, end)
			assert.Equal(t, 5, highest, name)
			s := l.Statistics()
			assert.EqualValues(t, 5, s.AvailablePermits, "but the permits are back")
			assert.Positive(t, s.SuccessfulLeases)
		}
	})
}

func TestLimiter_PermitsAboveTheLimit(t *testing.T) {
	l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 5, MaxLimit: 40, QueueLimit: 100}))
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for name, acquire := range map[string]func(context.Context, int) (limiter.Lease, error){
		"TryAcquire": l.TryAcquire, "Acquire": l.Acquire,
	} {
		lease, err := acquire(ctx, 6)
		require.NoError(t, err, name)
		assert.False(t, lease.Acquired())
		assert.Equal(t, limiter.ReasonLimitLowered, lease.Reason())
		_, err = acquire(ctx, 41)
		require.ErrorIs(t, err, limiter.ErrPermitCount)
		_, err = acquire(ended, 6)
		require.ErrorIs(t, err, context.Canceled)
	}
	assert.EqualValues(t, 2, l.Statistics().FailedLeases)
	require.NoError(t, l.Close())
	_, err := l.TryAcquire(ctx, 6)
	assert.ErrorIs(t, err, limiter.ErrClosed)
	_, err = l.TryAcquire(ctx, 41)
	assert.ErrorIs(t, err, limiter.ErrPermitCount)
}

// A heavy execution fills the limiter as several would, and its time counts once.
func TestLimiter_SeveralPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 10, MinSamples: 4}))
		ctx := t.Context()
		for range 20 {
			first, err := l.TryAcquire(ctx, 6)
			require.NoError(t, err)
			second, err := l.Acquire(ctx, 4)
			require.NoError(t, err)
			require.True(t, first.Acquired() && second.Acquired())
			time.Sleep(time.Second)
			second.Release()
			first.Release()
			first.Release()
		}
		assert.Greater(t, l.Limit(), 10, "all of it was in use, and it was quick enough")
		assert.EqualValues(t, l.Limit(), l.Statistics().AvailablePermits)
	})
}

func TestFail_Chain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		throttler := weir.Must(adaptive.NewThrottler(&adaptive.ThrottlerOptions{MinExecutions: -1}))
		adaptiveLimiter := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 5}))
		chain := weir.Must(limiter.Chain(throttler, adaptiveLimiter))
		began := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				for time.Since(began) < time.Minute {
					lease, err := chain.TryAcquire(t.Context(), 1)
					assert.NoError(t, err)
					time.Sleep(10 * time.Millisecond)
					adaptive.Fail(lease)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 5, adaptiveLimiter.Limit(), "it was told")
		assert.InDelta(t, 0.9, throttler.RejectionRate(), 0.01, "it was told, too")
	})
}

func TestLimiter_RefundedInAChain(t *testing.T) {
	throttler := weir.Must(adaptive.NewThrottler(nil))
	adaptiveLimiter := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 5}))
	full := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	_, err := full.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	chain := weir.Must(limiter.Chain(throttler, adaptiveLimiter, full))
	for _, n := range []int{0, 1} {
		lease, err := chain.TryAcquire(t.Context(), n)
		require.NoError(t, err)
		require.False(t, lease.Acquired())
	}
	assert.Equal(t, limiter.Statistics{AvailablePermits: 5}, adaptiveLimiter.Statistics())
	assert.Zero(t, throttler.Statistics().SuccessfulLeases)
}

func TestLimiter_Concurrent(t *testing.T) {
	l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{
		InitialLimit: 5, MaxLimit: 20, QueueLimit: 5, MinWindow: 1, MinSamples: 1,
		OnLimitChanged: func(context.Context, adaptive.LimitChange) {},
	}))
	ends := []func(limiter.Lease){release, adaptive.Fail, adaptive.Ignore}
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Go(func() {
			for i := range 500 {
				lease, err := l.Acquire(t.Context(), 1+i%3)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = l.Limit(), l.Statistics()
				ends[(client+i)%3](lease)
			}
		})
	}
	wg.Wait()
	s := l.Statistics()
	assert.EqualValues(t, l.Limit(), s.AvailablePermits, "nothing was lost")
	assert.EqualValues(t, 8*500, s.SuccessfulLeases+s.FailedLeases)
}

func TestLimiterOptions_Validate(t *testing.T) {
	_, err := adaptive.NewLimiter(&adaptive.LimiterOptions{
		MinLimit: 10, MaxLimit: 5, MaxLimitFactor: 0.5, MaxLimitWindow: -1, QueueLimit: -1, QueueOrder: 7,
		MinWindow: time.Hour, MaxWindow: time.Minute, MinSamples: -1, Quantile: 1, BaselineAge: -1, CorrelationWindow: 1,
	})
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	for _, field := range []string{
		"MaxLimit must", "InitialLimit must", "MaxLimitFactor must", "MaxLimitWindow must", "QueueLimit must", "QueueOrder must",
		"MaxWindow must", "MinSamples must", "Quantile must", "BaselineAge must", "CorrelationWindow must",
	} {
		assert.ErrorContains(t, err, field)
	}
	_, err = adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: -1, MinWindow: -1})
	assert.ErrorContains(t, err, "MinLimit must be at least 1, got -1")
	assert.ErrorContains(t, err, "MinWindow must be more than 0, got -1ns")

	for _, o := range []adaptive.LimiterOptions{{MaxLimit: 3}, {MinLimit: 30}, {MinWindow: time.Minute}} {
		l, err := adaptive.NewLimiter(&o)
		require.NoError(t, err)
		full := l.Options()
		assert.NoError(t, full.Validate())
	}
	o := weir.Must(adaptive.NewLimiter(nil)).Options()
	assert.Equal(t, adaptive.LimiterOptions{
		MinLimit: 1, MaxLimit: 200, InitialLimit: 20, MaxLimitFactor: 5, MinWindow: time.Second, MaxWindow: 30 * time.Second,
		MinSamples: 50, Quantile: 0.9, BaselineAge: 10, CorrelationWindow: 50,
	}, o)
}
