package limiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// adjustables are limiters of 20 permits, of which some come back each second.
func adjustables() map[string]func() Limiter {
	bucket := TokenBucketOptions{TokenLimit: 20, TokensPerPeriod: 3, ReplenishmentPeriod: time.Second, QueueLimit: 20}
	fixed := FixedWindowOptions{PermitLimit: 20, Window: time.Second, QueueLimit: 20}
	return map[string]func() Limiter{
		"token bucket":        func() Limiter { return weir.Must(NewTokenBucket(bucket)) },
		"fixed window":        func() Limiter { return weir.Must(NewFixedWindow(fixed)) },
		"bucket of a factory": func() Limiter { return weir.Must(FactoryFor[int](bucket)(1)) },
		"window of a factory": func() Limiter { return weir.Must(FactoryFor[int](fixed)(1)) },
		"chain":               func() Limiter { return weir.Must(Chain(NewUnlimited(), weir.Must(NewTokenBucket(bucket)))) },
		"sliding window": func() Limiter {
			return weir.Must(NewSlidingWindow(SlidingWindowOptions{PermitLimit: 20, Window: 4 * time.Second, SegmentsPerWindow: 4, QueueLimit: 20}))
		},
	}
}

func permitsLeft(l Limiter) int64 {
	return l.(StatisticsProvider).Statistics().AvailablePermits
}

// An estimate that is adjusted at the same moment leaves the limiter as if the cost had been known.
func TestLease_AdjustAtOnce(t *testing.T) {
	for name, open := range adjustables() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(3, 4))
				for range 60 {
					guessed, known := open(), open()
					for range 12 {
						estimate, cost := r.IntN(8), r.IntN(8)
						g, err := guessed.TryAcquire(t.Context(), estimate)
						require.NoError(t, err)
						if int64(cost) > permitsLeft(guessed)+int64(estimate) || !g.Acquired() {
							break // with the cost known, it would have been rejected
						}
						adjusted, ok := g.Adjust(cost)
						require.True(t, ok)
						require.Equal(t, cost, adjusted.Permits())
						if cost == 0 {
							adjusted.Release()
						}
						k, err := known.TryAcquire(t.Context(), cost)
						require.NoError(t, err)
						require.True(t, k.Acquired() || cost == 0)
						require.Equal(t, permitsLeft(known), permitsLeft(guessed), "estimate %d, cost %d", estimate, cost)
						time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
						require.Equal(t, permitsLeft(known), permitsLeft(guessed))
					}
				}
			})
		})
	}
}

func TestLease_AdjustOwesMissingPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: 10, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second}))
		l, err := b.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		l, ok := l.Adjust(15)
		require.True(t, ok)
		assert.Equal(t, 15, l.Permits())
		assert.Zero(t, b.Statistics().AvailablePermits)
		assert.EqualValues(t, 1, b.Statistics().SuccessfulLeases)
		no, err := b.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		wait, ok := no.RetryAfter()
		require.True(t, ok)
		assert.Equal(t, 6*time.Second, wait)
		time.Sleep(wait - time.Nanosecond)
		no, _ = b.TryAcquire(t.Context(), 1)
		assert.False(t, no.Acquired())
		time.Sleep(time.Nanosecond)
		yes, _ := b.TryAcquire(t.Context(), 1)
		assert.True(t, yes.Acquired())

		_, ok = yes.Adjust(math.MaxInt)
		require.True(t, ok)
		_, ok = yes.Adjust(math.MaxInt)
		require.True(t, ok, "and nothing overflows")
		no, _ = b.TryAcquire(t.Context(), 10)
		wait, _ = no.RetryAfter()
		assert.Positive(t, wait)
	})
}

func TestLease_AdjustAndWaiters(t *testing.T) {
	for name, open := range adjustables() {
		if name == "chain" {
			continue // their members were seen
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open()
				held, err := l.Acquire(t.Context(), 20)
				require.NoError(t, err)
				waited := make(chan time.Duration, 1)
				began := time.Now()
				go func() {
					lease, err := l.Acquire(t.Context(), 2)
					assert.True(t, err == nil && lease.Acquired())
					waited <- time.Since(began)
				}()
				synctest.Wait()
				held, ok := held.Adjust(18)
				require.True(t, ok)
				assert.Zero(t, <-waited, "there are two now")

				_, ok = held.Adjust(40) // 42 are missing: 22 more than there are
				require.True(t, ok)
				go func() {
					_, _ = l.Acquire(t.Context(), 1)
					waited <- time.Since(began)
				}()
				want := map[string]time.Duration{"token bucket": 8, "bucket of a factory": 8, "fixed window": 1, "window of a factory": 1, "sliding window": 4}
				assert.Equal(t, want[name]*time.Second, <-waited)
			})
		})
	}
}

func TestLease_AdjustNotPossible(t *testing.T) {
	c := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 3}))
	lent, err := c.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	for name, l := range map[string]Lease{
		"the zero lease":    {},
		"a rejected one":    rejected(time.Second, noPermit),
		"a lent one":        lent,
		"written elsewhere": peeked(2),
	} {
		same, ok := l.Adjust(3)
		assert.False(t, ok, name)
		assert.Equal(t, l, same, name)
	}
	assert.EqualValues(t, 2, c.Statistics().AvailablePermits)

	bucket := weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: 5, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}))
	both := weir.Must(Chain(c, bucket))
	l, err := both.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	l, ok := NewMetadataKey[int]("more").With(l, 1).Adjust(3)
	require.True(t, ok, "the members of the chain that can")
	assert.EqualValues(t, 2, bucket.Statistics().AvailablePermits)
	assert.EqualValues(t, 1, c.Statistics().AvailablePermits)
	l.Release()
	assert.EqualValues(t, 2, c.Statistics().AvailablePermits)

	require.NoError(t, bucket.Close())
	_, ok = l.Adjust(-7)
	assert.True(t, ok)
	free, err := NewUnlimited().TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	_, ok = free.Adjust(9)
	assert.True(t, ok)
}

// What was charged late can be given back, and not what has come back by itself or
// belongs to others.
func TestLease_AdjustTwice(t *testing.T) {
	for name, open := range adjustables() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open()
				ours, err := l.TryAcquire(t.Context(), 10)
				require.NoError(t, err)
				time.Sleep(time.Minute) // it has come back
				_, err = l.TryAcquire(t.Context(), 5)
				require.NoError(t, err)

				ours, ok := ours.Adjust(30)
				require.True(t, ok)
				assert.Zero(t, permitsLeft(l), "25 of 20 are missing")
				if name == "sliding window" {
					return // its lease belongs to a segment that is over, and gives nothing back
				}
				ours, ok = ours.Adjust(22)
				require.True(t, ok)
				assert.EqualValues(t, 3, permitsLeft(l))
				ours, ok = ours.Adjust(40)
				require.True(t, ok)
				_, ok = ours.Adjust(0)
				require.True(t, ok)
				assert.EqualValues(t, 15, permitsLeft(l), "the five of others are still taken")
			})
		})
	}
}

func TestLease_RefundOfAdjustedLease(t *testing.T) {
	slots := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 3}))
	bucket := weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: 9, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}))
	both := weir.Must(Chain(slots, bucket))
	first, err := both.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	_, err = slots.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	second, ok := first.Adjust(2)
	require.True(t, ok)
	third, ok := second.Adjust(4)
	require.True(t, ok)
	for _, l := range []Lease{second, first, third, second} {
		l.Release()
	}
	assert.EqualValues(t, 2, slots.Statistics().AvailablePermits)
	assert.EqualValues(t, 5, bucket.Statistics().AvailablePermits)
}
