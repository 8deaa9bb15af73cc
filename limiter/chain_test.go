package limiter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func take(tb testing.TB, l Limiter, n int) Lease {
	tb.Helper()
	lease, err := l.TryAcquire(tb.Context(), n)
	require.NoError(tb, err)
	require.True(tb, lease.Acquired(), "rejected: %q", lease.Reason())
	return lease
}

func refused(tb testing.TB, l Limiter, n int) Lease {
	tb.Helper()
	lease, err := l.TryAcquire(tb.Context(), n)
	require.NoError(tb, err)
	require.False(tb, lease.Acquired())
	return lease
}

func available(l StatisticsProvider) int64 { return l.Statistics().AvailablePermits }

func hourly(limit int) *TokenBucket {
	return weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: limit, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}))
}

func concurrent(limit int) *Concurrency {
	return weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: limit, QueueLimit: 100}))
}

func TestChain_WithoutLimiters(t *testing.T) {
	_, err := Chain()
	require.ErrorIs(t, err, ErrInvalidOptions)
	_, err = Chain(NewUnlimited(), nil)
	require.ErrorIs(t, err, ErrInvalidOptions)
	assert.ErrorContains(t, err, "limiters[1] must not be nil")
}

func TestChained_ZeroValue(t *testing.T) {
	var c Chained
	l := take(t, &c, 7)
	assert.Equal(t, 7, l.Permits())
	l.Release()
}

func TestChain_CombinesLeases(t *testing.T) {
	slots, bucket := concurrent(2), hourly(10)
	c := weir.Must(Chain(slots, bucket))
	l := take(t, c, 2)
	assert.Equal(t, 2, l.Permits())
	assert.Zero(t, available(slots))
	assert.EqualValues(t, 8, available(bucket))
	copied := l
	l.Release()
	copied.Release()
	assert.EqualValues(t, 2, available(slots))
	assert.EqualValues(t, 8, available(bucket), "what a bucket gave is spent")
	assert.Equal(t, Statistics{AvailablePermits: 2, SuccessfulLeases: 1}, c.Statistics())
}

func TestChain_RejectionCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := hourly(10)
		fixed := weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 10, Window: time.Hour}))
		sliding := weir.Must(NewSlidingWindow(SlidingWindowOptions{PermitLimit: 10, Window: time.Hour, SegmentsPerWindow: 4}))
		slots, unlimited := concurrent(10), NewUnlimited().(*unlimited)
		inner := weir.Must(Chain(fixed, sliding))
		last := concurrent(1)
		c := weir.Must(Chain(bucket, inner, slots, unlimited, last))
		take(t, last, 1)

		for range 5 {
			l := refused(t, c, 1)
			assert.Zero(t, l.Permits())
		}
		for name, l := range map[string]StatisticsProvider{"bucket": bucket, "fixed": fixed, "sliding": sliding, "slots": slots, "inner": inner} {
			assert.Equal(t, Statistics{AvailablePermits: 10}, l.Statistics(), name)
		}
		assert.Zero(t, unlimited.Statistics().SuccessfulLeases)
		assert.Zero(t, c.Statistics().SuccessfulLeases)
		_, idle := bucket.IdleDuration()
		assert.True(t, idle)
	})
}

func TestChain_ErrorRefunds(t *testing.T) {
	bucket, closed := hourly(10), hourly(10)
	c := weir.Must(Chain(bucket, closed))
	_, err := c.TryAcquire(t.Context(), 11)
	require.ErrorIs(t, err, ErrPermitCount)
	require.NoError(t, closed.Close())
	_, err = c.TryAcquire(t.Context(), 1)
	require.ErrorIs(t, err, ErrClosed)
	assert.ErrorContains(t, err, "limiter 1 (")
	assert.Equal(t, Statistics{AvailablePermits: 10}, bucket.Statistics())
}

// scripted grants leases that its test made.
type scripted struct{ lease Lease }

// A scriptedOwner is the owner of a lease that is released or refunded once.
type scriptedOwner struct{ release, refund func() }

func (s *scriptedOwner) Release(int, int64) { s.release() }
func (s *scriptedOwner) Refund(int, int64)  { s.refund() }

func (s scripted) TryAcquire(context.Context, int) (Lease, error) { return s.lease, nil }
func (s scripted) Acquire(context.Context, int) (Lease, error)    { return s.lease, nil }

func TestChain_ReleasesInReverseDespitePanic(t *testing.T) {
	var order []string
	granted := func(name string) scripted {
		return scripted{Lease{n: 1, owner: &scriptedOwner{func() {
			order = append(order, name)
			if name == "b" {
				panic("boom")
			}
		}, func() { order = append(order, "refund "+name) }}}}
	}
	l := take(t, weir.Must(Chain(granted("a"), granted("b"), granted("c"), granted("d"), granted("e"))), 1)
	assert.Panics(t, l.Release)
	l.Release()
	assert.Equal(t, []string{"e", "d", "c", "b", "a"}, order)

	order = nil
	refused(t, weir.Must(Chain(granted("a"), granted("b"), scripted{ReasonKey.With(rejected(time.Second, nil), "no")})), 1)
	assert.Equal(t, []string{"refund b", "refund a"}, order)
}

func TestChain_Metadata(t *testing.T) {
	region, zone := NewMetadataKey[string]("REGION"), NewMetadataKey[int]("ZONE")
	a := scripted{region.With(peeked(1), "a")}
	b := scripted{zone.With(region.With(peeked(1), "b"), 7)}
	l := take(t, weir.Must(Chain(a, b)), 1)
	r, ok := region.From(l)
	assert.True(t, ok)
	assert.Equal(t, "a", r)
	z, ok := zone.From(l)
	assert.True(t, ok)
	assert.Equal(t, 7, z)
	names := map[string]any{}
	for name, v := range l.Metadata() {
		assert.NotContains(t, names, name)
		names[name] = v
	}
	assert.Equal(t, map[string]any{"REGION": "a", "ZONE": 7}, names)

	rejected := refused(t, weir.Must(Chain(a, scripted{ReasonKey.With(rejected(time.Minute, nil), "closed on Sundays")})), 1)
	d, ok := rejected.RetryAfter()
	assert.True(t, ok)
	assert.Equal(t, time.Minute, d)
	assert.Equal(t, "closed on Sundays", rejected.Reason())
}

func TestChained_StatisticsAndIdleDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := concurrent(5)
		time.Sleep(time.Second)
		b := hourly(3)
		c := weir.Must(Chain(a, b))
		idle, ok := c.IdleDuration()
		assert.True(t, ok)
		assert.Zero(t, idle)
		take(t, c, 2).Release()
		refused(t, b, 2)
		refused(t, c, 2)
		assert.Equal(t, Statistics{AvailablePermits: 1, SuccessfulLeases: 1, FailedLeases: 2}, c.Statistics())
		_, ok = c.IdleDuration()
		assert.False(t, ok)
		time.Sleep(2*time.Hour + time.Minute)
		idle, ok = c.IdleDuration()
		assert.True(t, ok)
		assert.Equal(t, time.Minute, idle)
		_, ok = weir.Must(Chain(a, plain{a})).IdleDuration()
		assert.False(t, ok, "one of them does not know")
	})
}

func TestChained_Close(t *testing.T) {
	slots := concurrent(2)
	c := weir.Must(Chain(slots))
	l := take(t, c, 1)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	_, err := c.TryAcquire(t.Context(), 1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.Acquire(t.Context(), 1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.TryAcquire(t.Context(), -1)
	require.ErrorIs(t, err, ErrPermitCount)
	l.Release()
	assert.EqualValues(t, 2, available(slots))
}

func TestChain_ContextFirst(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	c := weir.Must(Chain(concurrent(1)))
	_, err := c.Acquire(ctx, -1)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, why)
	_, err = c.TryAcquire(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, Statistics{AvailablePermits: 1}, c.Statistics())
}

func TestChain_TypedNil(t *testing.T) {
	var bucket *TokenBucket
	_, err := Chain(weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1})), bucket)
	require.ErrorIs(t, err, ErrInvalidOptions)
	assert.ErrorContains(t, err, "limiters[1] must not be nil")
	_, err = ChainPartitioned[int]((*PartitionedLimiter[int, int])(nil))
	require.ErrorIs(t, err, ErrInvalidOptions)
}
