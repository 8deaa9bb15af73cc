package limiter

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// Whatever gives a permit back ends what is known of there being none, and changes what a rejection says. What is not here is a
// step of the scripts of TestModel.
func TestBucket_RejectsWithoutLock(t *testing.T) {
	o := TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
	queued := o
	queued.QueueLimit = 1
	for name, test := range map[string]struct {
		does    func(*testing.T, *TokenBucket, Lease)
		granted bool
		after   time.Duration
	}{
		"adjusted down": {func(t *testing.T, _ *TokenBucket, l Lease) {
			_, ok := l.Adjust(0)
			assert.True(t, ok)
		}, true, 0},
		"adjusted up": {func(t *testing.T, _ *TokenBucket, l Lease) {
			_, ok := l.Adjust(3)
			assert.True(t, ok)
		}, false, 59*time.Minute + 2*time.Hour},
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

func bucketOf(t *testing.T, o TokenBucketOptions) func() *TokenBucket {
	t.Helper()
	factory := FactoryFor[int](o)
	return func() *TokenBucket {
		l, err := factory(0)
		require.NoError(t, err)
		return newPartition(0, l).limiter().(*TokenBucket)
	}
}

// A bucket of a factory that was rejected, waited for, refunded and reconfigured keeps nothing for itself once it is
// full again, and says the same as before.
func TestBucket_SharesStateWhenFull(t *testing.T) {
	o := TokenBucketOptions{TokenLimit: 2, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second, QueueLimit: 5}
	lowered := o
	lowered.TokenLimit = 1
	for name, use := range map[string]func(*testing.T, *TokenBucket){
		"rejected": func(t *testing.T, b *TokenBucket) { rejects(t, b, 2) },
		"waited for": func(t *testing.T, b *TokenBucket) {
			_, err := b.Acquire(t.Context(), 1)
			require.NoError(t, err)
		},
		"refunded": func(t *testing.T, b *TokenBucket) {
			time.Sleep(time.Second)
			l, err := b.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
			require.True(t, l.Acquired())
			l.Refund()
		},
		"adjusted": func(t *testing.T, b *TokenBucket) {
			time.Sleep(time.Second)
			l, err := b.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
			_, ok := l.Adjust(4)
			require.True(t, ok)
		},
		"reconfigured": func(t *testing.T, b *TokenBucket) { require.NoError(t, b.Reconfigure(lowered)) },
		"lowered while waited for": func(t *testing.T, b *TokenBucket) {
			go func() { _, _ = b.Acquire(t.Context(), 2) }()
			synctest.Wait()
			require.NoError(t, b.Reconfigure(lowered))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made := bucketOf(t, o)
				b := made()
				l, err := b.TryAcquire(t.Context(), 2)
				require.NoError(t, err)
				require.True(t, l.Acquired())
				use(t, b)
				before := b.Statistics()
				time.Sleep(time.Minute)
				idle, ok := b.IdleDuration()
				assert.True(t, ok)
				assert.Positive(t, idle)
				assert.True(t, b.state().shared)
				after := b.Statistics()
				assert.Equal(t, before.SuccessfulLeases, after.SuccessfulLeases)
				assert.Equal(t, before.FailedLeases, after.FailedLeases)
				assert.EqualValues(t, b.Limits().Permits, after.AvailablePermits)
				other := made()
				require.NoError(t, other.Reconfigure(b.Limits()))
				assert.Same(t, b.state(), other.state())
			})
		})
	}
}

func rejects(t *testing.T, l Limiter, n int) {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), n)
	require.NoError(t, err)
	require.False(t, lease.Acquired())
}

func TestBucket_CountsWrapAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bucketOf(t, TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second})()
		b.granted, b.failed = math.MaxUint32, math.MaxUint32
		l, err := b.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, l.Acquired())
		rejects(t, b, 1)
		want := Statistics{SuccessfulLeases: 1 << 32, FailedLeases: 1 << 32}
		assert.Equal(t, want, b.Statistics())
		time.Sleep(time.Minute)
		want.AvailablePermits = 1
		assert.Equal(t, want, b.Statistics())
		l.Refund()
		want.SuccessfulLeases--
		assert.Equal(t, want, b.Statistics())
	})
}

// The grid of a factory's bucket begins with the first call, whichever that is.
func TestBucketFamily_GridBeginsWithFirstCall(t *testing.T) {
	options := TokenBucketOptions{TokenLimit: 2, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second}
	for name, call := range map[string]func(t *testing.T, b *TokenBucket){
		"TryAcquire": func(t *testing.T, b *TokenBucket) {
			_, err := b.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
		},
		"Acquire": func(t *testing.T, b *TokenBucket) {
			_, err := b.Acquire(t.Context(), 1)
			require.NoError(t, err)
		},
		"Statistics":  func(t *testing.T, b *TokenBucket) { assert.Equal(t, int64(2), b.Statistics().AvailablePermits) },
		"Reconfigure": func(t *testing.T, b *TokenBucket) { require.NoError(t, b.Reconfigure(options)) },
		"IdleDuration": func(t *testing.T, b *TokenBucket) {
			idle, ok := b.IdleDuration()
			assert.True(t, ok)
			assert.Zero(t, idle)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bucketOf(t, options)()
				time.Sleep(700 * time.Millisecond)
				call(t, b)
				_, err := b.TryAcquire(t.Context(), int(b.Statistics().AvailablePermits))
				require.NoError(t, err)
				time.Sleep(time.Second - 1)
				assert.Zero(t, b.Statistics().AvailablePermits)
				time.Sleep(time.Nanosecond)
				assert.Equal(t, int64(1), b.Statistics().AvailablePermits)
			})
		})
	}
	l, err := FactoryFor[string](FixedWindowOptions{PermitLimit: 1, Window: time.Second})("")
	require.NoError(t, err)
	require.NoError(t, l.(*FixedWindow).Close())
	_, err = l.TryAcquire(t.Context(), 1)
	require.ErrorIs(t, err, ErrClosed)
}

// A bucket of a key that has a state of its own gets new limits also if the new period is so short that a line fills it
// at once, so that it shares a state again.
func TestTokenBucket_ReconfigureThatFillsTheBucketOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := TokenBucketOptions{TokenLimit: 10, TokensPerPeriod: 5, ReplenishmentPeriod: time.Second}
		b := weir.Must(FactoryFor[string](o)("key")).(*TokenBucket)
		lease := take(t, b, 2)
		take(t, b, 1)
		lease.Refund() // now it has a state of its own
		time.Sleep(500 * time.Millisecond)
		o.TokenLimit, o.ReplenishmentPeriod = 7, 100*time.Millisecond
		require.NoError(t, b.Reconfigure(o))
		assert.Equal(t, o.Limits(), b.Limits())
		assert.EqualValues(t, 7, b.Statistics().AvailablePermits)
	})
}
