package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// scripted is a limiter whose every answer is that of a function.
type scripted func(ctx context.Context, n int) (limiter.Lease, error)

func (f scripted) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) { return f(ctx, n) }
func (f scripted) Acquire(ctx context.Context, n int) (limiter.Lease, error)    { return f(ctx, n) }

func TestWait_OverRejections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		noQueue := weir.Must(limiter.NewTokenBucket(limiter.PerSecond(2, 1)))
		for range 3 {
			lease, err := limiter.Wait(t.Context(), noQueue, 1)
			require.NoError(t, err)
			require.True(t, lease.Acquired())
		}
		assert.Equal(t, time.Second, time.Since(begin), "exactly when the permits come")

		held := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
		lease := take(t, held, 1)
		time.AfterFunc(time.Minute, lease.Release)
		begin = time.Now()
		_, err := limiter.Wait(t.Context(), held, 1)
		require.NoError(t, err)
		assert.InDelta(t, time.Minute.Seconds(), time.Since(begin).Seconds(), 1)

		outage := time.Now().Add(time.Minute)
		store := scripted(func(_ context.Context, n int) (limiter.Lease, error) {
			if time.Now().Before(outage) {
				return custom.Rejected(time.Second, limiter.ReasonUnavailable), nil
			}
			return custom.Granted(n, nil), nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err = limiter.Wait(ctx, store, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Error(t, ctx.Err(), "how long an outage lasts is a guess, so all the time is used")
		lease, err = limiter.Wait(t.Context(), store, 3)
		require.NoError(t, err)
		assert.Equal(t, 3, lease.Permits())
	})
}

func TestWait_Errors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
			TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
		}))
		take(t, bucket, 1)
		_, err := limiter.Wait(t.Context(), bucket, 2)
		require.ErrorIs(t, err, limiter.ErrPermitCount)
		_, err = limiter.Wait(t.Context(), nil, 1)
		require.ErrorIs(t, err, limiter.ErrInvalidOptions)

		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = limiter.Wait(ctx, bucket, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "limiter: permits come in 1h0m0s, after the context's deadline")
		assert.Zero(t, time.Since(begin))

		canceled, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(errors.New("shutting down")) })
		_, err = limiter.Wait(canceled, bucket, 1)
		require.ErrorIs(t, err, context.Canceled)
		assert.ErrorContains(t, err, "shutting down")

		time.AfterFunc(time.Second, func() { assert.NoError(t, bucket.Close()) })
		_, err = limiter.Wait(t.Context(), bucket, 1)
		require.ErrorIs(t, err, limiter.ErrClosed)

		closing := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}))
		take(t, closing, 1)
		time.AfterFunc(time.Second, func() { assert.NoError(t, closing.Close()) })
		_, err = limiter.Wait(t.Context(), closing, 1)
		require.ErrorIs(t, err, limiter.ErrClosed)
	})
}

func TestPerSecond(t *testing.T) {
	type bucket = limiter.TokenBucketOptions
	assert.Equal(t, bucket{TokenLimit: 20, TokensPerPeriod: 1, ReplenishmentPeriod: 100 * time.Millisecond}, limiter.PerSecond(10, 20))
	assert.Equal(t, bucket{TokenLimit: 5, TokensPerPeriod: 1, ReplenishmentPeriod: 12 * time.Second}, limiter.PerMinute(5, 5))
	assert.Equal(t, bucket{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}, limiter.PerHour(1, 1))
	assert.Equal(t, bucket{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: 333333334}, limiter.PerSecond(3, 1))
	assert.Equal(t, bucket{TokenLimit: 9, TokensPerPeriod: 3, ReplenishmentPeriod: 200 * time.Microsecond}, limiter.PerSecond(15000, 9))
	for n, least := range map[int]float64{1: 1, 7: 0.999999, 999: 0.999999, 1001: 0.99999, 999_999: 0.999, 1 << 30: 0.9} {
		for _, burst := range []int{1, 10, 1 << 30} {
			for d, o := range map[time.Duration]limiter.TokenBucketOptions{
				time.Second: limiter.PerSecond(n, burst), time.Minute: limiter.PerMinute(n, burst), time.Hour: limiter.PerHour(n, burst),
			} {
				require.NoError(t, o.Validate())
				share := float64(o.TokensPerPeriod) * float64(d) / float64(o.ReplenishmentPeriod) / float64(n)
				assert.LessOrEqual(t, share, 1+1e-12, "%d in %v: %+v", n, d, o)
				if burst > 1 || n < 1_000_000 {
					assert.GreaterOrEqual(t, share, least-1e-3, "%d in %v: %+v", n, d, o)
				}
				assert.LessOrEqual(t, o.TokensPerPeriod, burst, "what is above the limit would be lost")
			}
		}
	}
	for _, wrong := range []limiter.TokenBucketOptions{limiter.PerSecond(0, 1), limiter.PerMinute(-1, 1), limiter.PerHour(1, 0)} {
		_, err := limiter.NewTokenBucket(wrong)
		require.ErrorIs(t, err, limiter.ErrInvalidOptions)
	}
}

func TestLease_String(t *testing.T) {
	reason := custom.Rejected(941*time.Millisecond, limiter.ReasonQueueLimit)
	for want, l := range map[string]any{
		"granted 3 permits":        custom.Granted(3, nil),
		"granted 1 permit":         limiter.ReasonKey.With(custom.Granted(1, nil), "ignored"),
		"granted 0 permits":        custom.Granted(0, func() {}),
		"rejected":                 limiter.Lease{},
		"rejected: full":           custom.Rejected(0, "full"),
		"rejected, retry after 1s": custom.Rejected(time.Second, ""),
		"rejected: queue limit reached, retry after 941ms": reason,
		"5 available, 4 queued, 3 granted, 2 rejected":     limiter.Statistics{AvailablePermits: 5, QueuedPermits: 4, SuccessfulLeases: 3, FailedLeases: 2},
	} {
		assert.Equal(t, want, fmt.Sprint(l))
	}
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	log.Info("m", "lease", reason, "s", limiter.Statistics{AvailablePermits: 5})
	assert.Equal(t, `level=INFO msg=m lease="rejected: queue limit reached, retry after 941ms" `+
		"s=\"5 available, 0 queued, 0 granted, 0 rejected\"\n", out.String())
}
