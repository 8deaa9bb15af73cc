package limiter

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// Whatever gives a permit back ends what is known of there being none, and changes what a rejection says.
func TestBucket_RejectsWithoutLock(t *testing.T) {
	o := TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
	raised, faster, queued := o, o, o
	raised.TokenLimit, faster.ReplenishmentPeriod, queued.QueueLimit = 2, time.Minute, 1
	for name, test := range map[string]struct {
		does    func(*testing.T, *TokenBucket, Lease)
		granted bool
		after   time.Duration
	}{
		"nothing":         {func(*testing.T, *TokenBucket, Lease) {}, false, 59 * time.Minute},
		"time":            {func(*testing.T, *TokenBucket, Lease) { time.Sleep(59 * time.Minute) }, true, 0},
		"almost the time": {func(*testing.T, *TokenBucket, Lease) { time.Sleep(59*time.Minute - 1) }, false, 1},
		"refund":          {func(_ *testing.T, _ *TokenBucket, l Lease) { l.Refund() }, true, 0},
		"adjusted down": {func(t *testing.T, _ *TokenBucket, l Lease) {
			_, ok := l.Adjust(0)
			assert.True(t, ok)
		}, true, 0},
		"adjusted up": {func(t *testing.T, _ *TokenBucket, l Lease) {
			_, ok := l.Adjust(3)
			assert.True(t, ok)
		}, false, 59*time.Minute + 2*time.Hour},
		"raised": {func(t *testing.T, b *TokenBucket, _ Lease) { require.NoError(t, b.Reconfigure(raised)) }, true, 0},
		"faster": {func(t *testing.T, b *TokenBucket, _ Lease) { require.NoError(t, b.Reconfigure(faster)) }, true, 0},
		"with a queue": {func(t *testing.T, b *TokenBucket, _ Lease) {
			require.NoError(t, b.Reconfigure(queued))
			go func() { _, _ = b.Acquire(t.Context(), 1) }()
			synctest.Wait()
		}, false, 59*time.Minute + time.Hour},
		"statistics": {func(t *testing.T, b *TokenBucket, _ Lease) {
			assert.Equal(t, Statistics{SuccessfulLeases: 1, FailedLeases: 10}, b.Statistics())
		}, false, 59 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := weir.Must(NewTokenBucket(o))
				lease, err := b.TryAcquire(t.Context(), 1)
				require.NoError(t, err)
				time.Sleep(time.Minute)
				for i := range 10 {
					ask := b.TryAcquire
					if i%2 == 0 {
						ask = b.Acquire
					}
					l, err := ask(t.Context(), 1)
					require.NoError(t, err)
					after, _ := l.RetryAfter()
					assert.Equal(t, 59*time.Minute, after)
					assert.Equal(t, i%2 == 0, l.Reason() == ReasonNoPermit)
				}
				test.does(t, b, lease)
				l, err := b.TryAcquire(t.Context(), 1)
				require.NoError(t, err)
				assert.Equal(t, test.granted, l.Acquired())
				after, _ := l.RetryAfter()
				assert.Equal(t, test.after, after)
				require.NoError(t, b.Close())
				_, err = b.TryAcquire(t.Context(), 1)
				require.ErrorIs(t, err, ErrClosed)
			})
		})
	}
}

// All rejections are counted, and none is given where a permit has come back before.
func TestBucket_RejectsWithoutLockConcurrentSafe(t *testing.T) {
	b := weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}))
	var held, rejected, granted atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5000 {
				l, err := b.TryAcquire(t.Context(), 1)
				switch {
				case err != nil:
					t.Error(err)
				case !l.Acquired():
					rejected.Add(1)
				default:
					if held.Add(1) > 1 {
						t.Error("two hold the only permit")
					}
					granted.Add(1)
					held.Add(-1)
					l.Refund()
				}
			}
		})
	}
	wg.Wait()
	assert.Equal(t, Statistics{AvailablePermits: 1, FailedLeases: rejected.Load()}, b.Statistics())
	assert.Positive(t, granted.Load())
}
