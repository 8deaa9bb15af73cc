package limiter_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// Whatever a limiter answers, Wait neither spins, nor sleeps for hours, nor outlives its context.
func TestWait_HostileLimiters(t *testing.T) {
	for name, lease := range map[string]limiter.Lease{
		"1ns":        custom.Rejected(1, ""),
		"negative":   limiter.RetryAfterKey.With(custom.Rejected(0, ""), -time.Hour),
		"longest":    custom.Rejected(math.MaxInt64, ""),
		"unknown":    custom.Rejected(0, limiter.ReasonQueueLimit),
		"zero lease": {},
		"outage":     custom.Rejected(math.MaxInt64, limiter.ReasonUnavailable),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				l := scripted(func(context.Context, int) (limiter.Lease, error) { // it ignores its context
					asked++
					return lease, nil
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(errors.New("enough")) })
				begin := time.Now()
				_, err := limiter.Wait(ctx, l, 1)
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorContains(t, err, "enough")
				assert.Equal(t, time.Minute, time.Since(begin))
				assert.GreaterOrEqual(t, asked, 6, "limits may be raised meanwhile")
				assert.LessOrEqual(t, asked, 60_001)

				begin = time.Now()
				_, err = limiter.Wait(ctx, l, 1)
				require.ErrorIs(t, err, context.Canceled, "it is done already")
				past, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
				defer stop()
				_, err = limiter.Wait(past, l, 1)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Zero(t, time.Since(begin))
			})
		})
	}
}

func TestWait_OddLimiters(t *testing.T) {
	var bucket *limiter.TokenBucket
	_, err := limiter.Wait(t.Context(), bucket, 1)
	require.ErrorIs(t, err, limiter.ErrInvalidOptions, "a typed nil")
	_, err = limiter.Wait(t.Context(), new(limiter.TokenBucket), 1)
	require.Error(t, err, "a zero value")

	refunded := 0
	odd := scripted(func(context.Context, int) (limiter.Lease, error) {
		return custom.GrantedRefundable(1, nil, func() { refunded++ }), errors.New("granted all the same")
	})
	lease, err := limiter.Wait(t.Context(), odd, 1)
	require.ErrorContains(t, err, "granted all the same")
	assert.False(t, lease.Acquired())
	assert.Equal(t, 1, refunded)
}

// Many callers of Wait, of which some leave, get what a limiter without room for them has to give, and no more.
func TestWait_ConcurrentSafe(t *testing.T) {
	for _, procs := range []int{1, runtime.GOMAXPROCS(0)} {
		was := runtime.GOMAXPROCS(procs)
		synctest.Test(t, func(t *testing.T) {
			const workers, each = 16, 20
			l := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
				TokenLimit: 2, TokensPerPeriod: 1, ReplenishmentPeriod: 10 * time.Millisecond, QueueLimit: 3,
			}))
			begin := time.Now()
			var wg sync.WaitGroup
			for i := range workers {
				wg.Go(func() {
					for range each {
						ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
						if _, err := limiter.Wait(ctx, l, 1+i%2); err != nil {
							_, err = limiter.Wait(t.Context(), l, 1+i%2)
							assert.NoError(t, err)
						}
						cancel()
					}
				})
			}
			wg.Wait()
			s := l.Statistics()
			assert.Equal(t, int64(workers*each), s.SuccessfulLeases)
			spent := int64(workers * each * 3 / 2)
			assert.GreaterOrEqual(t, int64(time.Since(begin)/(10*time.Millisecond)), spent-2, "no more than the rate")
			assert.Zero(t, s.QueuedPermits)
		})
		runtime.GOMAXPROCS(was)
	}
}
