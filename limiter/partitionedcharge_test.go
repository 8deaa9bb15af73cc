package limiter_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

func chargeKey[R any](t *testing.T, p limiter.Partitioned[R], key R, n int) int64 {
	t.Helper()
	level, err := p.(limiter.PartitionedCharger[R]).Charge(t.Context(), key, n)
	require.NoError(t, err)
	return level.Remaining
}

func byKey(t *testing.T, each limiter.Factory[string], o *limiter.PartitionedOptions) *limiter.PartitionedLimiter[string, string] {
	t.Helper()
	p := weir.Must(limiter.NewPartitionedByKey(func(s string) string { return s }, each, o))
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestPartitioned_Charge(t *testing.T) {
	for name, each := range map[string]limiter.Factory[string]{
		"TokenBucket":   limiter.FactoryFor[string](chargeLimits.TokenBucket()),
		"FixedWindow":   limiter.FactoryFor[string](chargeLimits.FixedWindow()),
		"SlidingWindow": limiter.FactoryFor[string](chargeLimits.SlidingWindow()),
		"Chained": func(string) (limiter.Limiter, error) {
			return limiter.Chain(weir.Must(limiter.NewTokenBucket(chargeLimits.TokenBucket())), limiter.NewUnlimited())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := byKey(t, each, &limiter.PartitionedOptions{IdleTimeout: time.Second})
				for _, n := range []int{0, -3, math.MinInt} {
					assert.EqualValues(t, 10, chargeKey(t, p, "a", n))
				}
				assert.Zero(t, p.Len(), "no partition was made")
				assert.EqualValues(t, -4, chargeKey(t, p, "a", 14))
				assert.Equal(t, 1, p.Len())
				lease, err := p.TryAcquire(t.Context(), "a", 1)
				require.NoError(t, err)
				assert.False(t, lease.Acquired())
				assert.EqualValues(t, 10, chargeKey(t, p, "b", 0), "another key")
				time.Sleep(time.Millisecond)
				assert.EqualValues(t, 6, chargeKey(t, p, "a", -10))
				lease, err = p.TryAcquire(t.Context(), "a", 6)
				require.NoError(t, err)
				assert.True(t, lease.Acquired())
				time.Sleep(time.Minute)
				assert.Zero(t, p.Len(), "it is forgotten once it is full and idle")
				require.NoError(t, p.Close())
				for _, n := range []int{-1, 0, 1} {
					_, err = p.Charge(t.Context(), "a", n)
					assert.ErrorIs(t, err, limiter.ErrClosed)
				}
			})
		})
	}
}

// A partition that owes permits is not forgotten, also if it is unused for longer than IdleTimeout.
func TestPartitioned_ChargeKeepsThePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := chargeLimits.TokenBucket()
		o.ReplenishmentPeriod = time.Hour
		p := byKey(t, limiter.FactoryFor[string](o), &limiter.PartitionedOptions{IdleTimeout: time.Minute, MaxPartitions: 1})
		assert.EqualValues(t, -10, chargeKey(t, p, "a", 20))
		time.Sleep(9*time.Hour + time.Minute)
		assert.EqualValues(t, 8, chargeKey(t, p, "a", 0))
		_, err := p.Charge(t.Context(), "b", 1)
		require.ErrorIs(t, err, limiter.ErrPartitionLimit)
		assert.ErrorContains(t, err, "1 partitions are in use")
		assert.EqualValues(t, 10, chargeKey(t, p, "b", 0), "a question needs no partition")
		assert.EqualValues(t, 10, chargeKey(t, p, "b", -1))
		time.Sleep(2 * time.Hour)
		assert.EqualValues(t, 9, chargeKey(t, p, "b", 1), "a is idle now, and makes room")
	})
}

func TestPartitioned_ChargeErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p := byKey(t, limiter.FactoryFor[string](chargeLimits.TokenBucket()), nil)
	for _, n := range []int{-1, 0, 1} {
		_, err := p.Charge(ended, "a", n)
		assert.ErrorIs(t, err, context.Canceled)
	}
	assert.Zero(t, p.Len())

	failing := errors.New("no limiter")
	p = byKey(t, func(string) (limiter.Limiter, error) { return nil, failing }, nil)
	for _, n := range []int{-1, 0, 1} {
		_, err := p.Charge(t.Context(), "a", n)
		assert.ErrorIs(t, err, failing)
	}
	p = byKey(t, limiter.FactoryFor[string](chargeLimits.Concurrency()), nil)
	for _, n := range []int{-1, 0, 1} {
		_, err := p.Charge(t.Context(), "a", n)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
	}
	numbers := weir.Must(limiter.NewPartitionedByKey(func(f float64) float64 { return f }, func(float64) (limiter.Limiter, error) { return limiter.NewUnlimited(), nil }, nil))
	defer func() { _ = numbers.Close() }()
	for _, n := range []int{-1, 0, 1} {
		_, err := numbers.Charge(t.Context(), math.NaN(), n)
		assert.ErrorIs(t, err, weir.ErrInvalidOptions)
	}
}

func TestPartitioned_ChargeOfCustomLimiter(t *testing.T) {
	p := byKey(t, func(string) (limiter.Limiter, error) { return refusing{}, nil }, nil)
	_, err := p.Charge(t.Context(), "a", 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "a limiter_test.refusing cannot be charged")
}

func TestChain_Charge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := weir.Must(limiter.NewTokenBucket(chargeLimits.TokenBucket()))
		small := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 3, Window: time.Second}))
		c := weir.Must(limiter.Chain(bucket, weir.Must(limiter.Chain(small, limiter.NewUnlimited()))))
		level, err := c.Charge(t.Context(), 0)
		require.NoError(t, err)
		assert.Equal(t, limiter.Level{Remaining: 3}, level)
		level, err = c.Charge(t.Context(), 5)
		require.NoError(t, err)
		assert.Equal(t, limiter.Level{Remaining: -2, Full: time.Second}, level)
		assert.EqualValues(t, 5, charge(t, bucket, 0))
		assert.EqualValues(t, 2, charge(t, c, -4))
		assert.EqualValues(t, 9, charge(t, bucket, 0))
		assert.Zero(t, c.Statistics().SuccessfulLeases)

		require.NoError(t, c.Close())
		_, err = c.Charge(t.Context(), 1)
		require.ErrorIs(t, err, limiter.ErrClosed)
		level, err = (&limiter.Chained{}).Charge(t.Context(), 1)
		require.NoError(t, err)
		assert.Equal(t, limiter.Level{Remaining: math.MaxInt64}, level)
	})
}

func TestChainPartitioned_Charge(t *testing.T) {
	keys := byKey(t, limiter.FactoryFor[string](chargeLimits.TokenBucket()), nil)
	lengths := weir.Must(limiter.NewPartitionedByKey(func(n int) int { return n },
		limiter.FactoryFor[int](limiter.FixedWindowOptions{PermitLimit: 3, Window: time.Hour}), nil))
	defer func() { _ = lengths.Close() }()
	inner := weir.Must(limiter.ChainPartitioned(limiter.Translate(lengths, func(s string) int { return len(s) })))
	p := weir.Must(limiter.ChainPartitioned[string](keys, inner))
	assert.EqualValues(t, 3, chargeKey(t, p, "ab", -1))
	assert.Zero(t, keys.Len()+lengths.Len())
	assert.EqualValues(t, -2, chargeKey(t, p, "ab", 5))
	assert.EqualValues(t, 5, chargeKey(t, limiter.Partitioned[string](keys), "ab", 0))
	assert.EqualValues(t, -2, chargeKey(t, p, "xy", 0), "another key, and the same length")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.(limiter.PartitionedCharger[string]).Charge(ended, "ab", 5)
	require.ErrorIs(t, err, context.Canceled)
}

// Charges, leases and evictions at once: what is charged is never lost, and never given back twice.
func TestPartitioned_ChargeConcurrentSafe(t *testing.T) {
	for name, each := range map[string]limiter.Factory[string]{
		"TokenBucket":   limiter.FactoryFor[string](limiter.TokenBucketOptions{TokenLimit: 1000, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}),
		"FixedWindow":   limiter.FactoryFor[string](limiter.FixedWindowOptions{PermitLimit: 1000, Window: time.Hour}),
		"SlidingWindow": limiter.FactoryFor[string](limiter.SlidingWindowOptions{PermitLimit: 1000, Window: time.Hour, SegmentsPerWindow: 10}),
	} {
		t.Run(name, func(t *testing.T) {
			p := byKey(t, each, &limiter.PartitionedOptions{MaxPartitions: 4})
			keys := []string{"a", "b", "c", "d"}
			for _, key := range keys {
				chargeKey(t, p, key, 1)
			}
			var wg sync.WaitGroup
			const workers, rounds = 8, 300
			for w := range workers {
				wg.Go(func() {
					key := keys[w%len(keys)]
					for range rounds {
						_, err := p.Charge(t.Context(), key, 3)
						assert.NoError(t, err)
						lease, err := p.TryAcquire(t.Context(), key, 1)
						assert.NoError(t, err)
						_, err = p.Charge(t.Context(), key, -2)
						assert.NoError(t, err)
						_, _ = p.Charge(t.Context(), "new", 1) // no room
						_, err = p.Charge(t.Context(), "new", 0)
						assert.NoError(t, err)
						lease.Release()
					}
				})
			}
			wg.Wait()
			for _, key := range keys {
				s, err := p.Statistics(key)
				require.NoError(t, err)
				taken := int64(1+workers/len(keys)*rounds) + s.SuccessfulLeases
				assert.Equal(t, 1000-taken, chargeKey(t, p, key, 0), key)
				chargeKey(t, p, key, math.MinInt)
				assert.EqualValues(t, 1000, chargeKey(t, p, key, 0))
			}
		})
	}
}

// A chain with a member that cannot be charged charges none of the others, wherever that member is.
func TestChain_ChargeOfAllOrNone(t *testing.T) {
	for name, other := range map[string]limiter.Limiter{
		"lends":     weir.Must(limiter.NewConcurrency(chargeLimits.Concurrency())),
		"no charge": refusing{},
		"a chain":   weir.Must(limiter.Chain(limiter.NewUnlimited(), refusing{})),
	} {
		bucket := weir.Must(limiter.NewTokenBucket(chargeLimits.TokenBucket()))
		_, err := weir.Must(limiter.Chain(bucket, other)).Charge(t.Context(), 5)
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
		assert.ErrorContains(t, err, "limiter 1 (", name)
		assert.EqualValues(t, 10, charge(t, bucket, 0), name)

		keys := byKey(t, limiter.FactoryFor[string](chargeLimits.TokenBucket()), nil)
		others := byKey(t, func(string) (limiter.Limiter, error) { return other, nil }, nil)
		p := weir.Must(limiter.ChainPartitioned[string](keys, others))
		_, err = p.(limiter.PartitionedCharger[string]).Charge(t.Context(), "a", 5)
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
		assert.EqualValues(t, 10, chargeKey(t, limiter.Partitioned[string](keys), "a", 0), name)
	}
}

// If a member fails after the chain has asked it for its level, the others are charged all the same.
func TestChain_ChargeFailsLate(t *testing.T) {
	bucket := weir.Must(limiter.NewTokenBucket(chargeLimits.TokenBucket()))
	level, err := weir.Must(limiter.Chain(away{}, bucket)).Charge(t.Context(), 5)
	require.EqualError(t, err, "limiter 0 (limiter_test.away) of the chain: away")
	assert.Zero(t, level)
	assert.EqualValues(t, 5, charge(t, bucket, 0))
}

// away is a limiter in a store that is there for a question, and not for the charge that follows.
type away struct{ refusing }

func (away) Charge(_ context.Context, n int) (limiter.Level, error) {
	if n == 0 {
		return limiter.Level{Remaining: 1}, nil
	}
	return limiter.Level{}, errors.New("away")
}
