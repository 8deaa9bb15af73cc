package limiter

import (
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPartitionedAllYieldsWhatTheFactoryMade(t *testing.T) {
	p := newPartitioned(t, TokenBucketFactory[int](TokenBucketOptions{TokenLimit: 5, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}), PartitionedOptions{})
	for key := range 1000 {
		_, err := p.TryAcquire(t.Context(), key, key%5)
		require.NoError(t, err)
	}
	all := maps.Collect(p.All())
	require.Len(t, all, 1000)
	for key, l := range all {
		assert.EqualValues(t, 5-key%5, l.(*TokenBucket).Statistics().AvailablePermits)
	}
	for range p.All() {
		break
	}
	assert.Panics(t, func() {
		for range p.All() {
			panic("boom")
		}
	})
	for i := range p.shards {
		for _, e := range p.shards[i].pinAll() {
			assert.EqualValues(t, 1, e.pins.Load(), "nothing stays pinned")
			e.unpin()
		}
	}
}

// After a change of what the factory makes, no limiter of the old kind escapes.
func TestPartitionedAllWaitsForWhatIsBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limit atomic.Int64
		limit.Store(1)
		factory := func(int) (Limiter, error) {
			l, err := NewConcurrency(ConcurrencyOptions{PermitLimit: int(limit.Load())})
			time.Sleep(time.Second)
			return l, err
		}
		p := newPartitioned(t, factory, PartitionedOptions{IdleTimeout: time.Hour})
		go func() { _, _ = p.TryAcquire(t.Context(), 1, 1) }()
		synctest.Wait()
		limit.Store(2)
		all := maps.Collect(p.All())
		require.Contains(t, all, 1)
		assert.Equal(t, 1, all[1].(*Concurrency).Options().PermitLimit)
	})
}

func TestPartitionedReconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartitioned(t, ConcurrencyFactory[int](ConcurrencyOptions{PermitLimit: 1}), PartitionedOptions{IdleTimeout: time.Hour})
		for key := range 3 {
			l, err := p.TryAcquire(t.Context(), key, 1)
			require.NoError(t, err)
			if key > 0 {
				l.Release()
			}
		}
		require.ErrorIs(t, p.Reconfigure(PartitionedOptions{MaxPartitions: -1}), ErrInvalidOptions)
		time.Sleep(30 * time.Second)
		require.NoError(t, p.Reconfigure(PartitionedOptions{MaxPartitions: 1, IdleTimeout: time.Minute}))
		assert.Equal(t, 3, p.Len(), "nobody is thrown out at once")
		l, err := p.TryAcquire(t.Context(), 0, 1)
		require.NoError(t, err)
		assert.Empty(t, l.Reason(), "who is there may stay")

		time.Sleep(31 * time.Second)
		assert.Equal(t, 1, p.Len(), "idle for longer than the new time")
		l, err = p.TryAcquire(t.Context(), 9, 1)
		require.NoError(t, err)
		assert.Equal(t, ReasonPartitionLimit, l.Reason())
	})
}

func TestOptionsAreThoseInForce(t *testing.T) {
	c := ConcurrencyOptions{PermitLimit: 3, QueueLimit: 2, QueueOrder: NewestFirst}
	f := FixedWindowOptions{PermitLimit: 3, Window: time.Minute, QueueLimit: 2, QueueOrder: NewestFirst, ManualReplenishment: true}
	s := SlidingWindowOptions{PermitLimit: 3, Window: time.Minute, SegmentsPerWindow: 6, QueueLimit: 2, ManualReplenishment: true}
	b := TokenBucketOptions{TokenLimit: 3, TokensPerPeriod: 2, ReplenishmentPeriod: time.Second, QueueLimit: 7, QueueOrder: NewestFirst}
	assert.Equal(t, c, Must(NewConcurrency(c)).Options())
	assert.Equal(t, f, Must(NewFixedWindow(f)).Options())
	assert.Equal(t, s, Must(NewSlidingWindow(s)).Options())
	bucket := Must(NewTokenBucket(b))
	assert.Equal(t, b, bucket.Options())
	b.TokenLimit, b.QueueLimit = 10, 0
	require.NoError(t, bucket.Reconfigure(b))
	assert.Equal(t, b, bucket.Options())
	require.NoError(t, bucket.Close())
	assert.Equal(t, b, bucket.Options())
}
