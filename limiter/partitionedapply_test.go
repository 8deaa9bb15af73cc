package limiter

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestPartitioned_All(t *testing.T) {
	p := newPartitioned(t, FactoryFor[int](TokenBucketOptions{TokenLimit: 5, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}), PartitionedOptions{})
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
	for i := range p.keys.shards {
		assert.Zero(t, p.keys.shards[i].held)
	}
}

// After a change of what the factory makes, no limiter of the old kind escapes.
func TestPartitioned_AllWaitsForMaking(t *testing.T) {
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
		assert.Equal(t, 1, all[1].(*Concurrency).Limits().Permits)
	})
}

func TestPartitioned_Reconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartitioned(t, FactoryFor[int](ConcurrencyOptions{PermitLimit: 1}), PartitionedOptions{IdleTimeout: time.Hour})
		for key := range 3 {
			l, err := p.TryAcquire(t.Context(), key, 1)
			require.NoError(t, err)
			if key > 0 {
				l.Release()
			}
		}
		require.ErrorIs(t, p.Reconfigure(PartitionedOptions{MaxPartitions: -2}), ErrInvalidOptions)
		time.Sleep(30 * time.Second)
		require.NoError(t, p.Reconfigure(PartitionedOptions{MaxPartitions: 1, IdleTimeout: time.Minute}))
		assert.Equal(t, 3, p.Len(), "no partition is forgotten at once")
		l, err := p.TryAcquire(t.Context(), 0, 1)
		require.NoError(t, err)
		assert.Empty(t, l.Reason(), "a known key stays")

		time.Sleep(31 * time.Second)
		assert.Equal(t, 1, p.Len(), "idle for longer than the new time")
		l, err = p.TryAcquire(t.Context(), 9, 1)
		require.NoError(t, err)
		assert.Equal(t, ReasonPartitionLimit, l.Reason())
	})
}

func TestLimiters_Limits(t *testing.T) {
	c := ConcurrencyOptions{PermitLimit: 3, QueueLimit: 2, QueueOrder: NewestFirst}
	f := FixedWindowOptions{PermitLimit: 3, Window: time.Minute, QueueLimit: 2, QueueOrder: NewestFirst}
	s := SlidingWindowOptions{PermitLimit: 3, Window: time.Minute, SegmentsPerWindow: 6, QueueLimit: 2}
	b := TokenBucketOptions{TokenLimit: 3, TokensPerPeriod: 2, ReplenishmentPeriod: time.Second, QueueLimit: 7, QueueOrder: NewestFirst}
	assert.Equal(t, c.Limits(), weir.Must(NewConcurrency(c)).Limits())
	assert.Equal(t, f.Limits(), weir.Must(NewFixedWindow(f)).Limits())
	assert.Equal(t, s.Limits(), weir.Must(NewSlidingWindow(s)).Limits())
	bucket := weir.Must(NewTokenBucket(b))
	assert.Equal(t, b.Limits(), bucket.Limits())
	b.TokenLimit, b.QueueLimit = 10, 0
	require.NoError(t, bucket.Reconfigure(b))
	assert.Equal(t, b.Limits(), bucket.Limits())
	require.NoError(t, bucket.Close())
	assert.Equal(t, b.Limits(), bucket.Limits())
}

// From the moment on at which Apply has begun, what it does is in force for every key.
func TestPartitioned_ApplyIsInForceAtOnce(t *testing.T) {
	for name, kind := range map[string]struct {
		factory Factory[int]
		raise   func(Limiter) error
	}{
		"bucket": {
			FactoryFor[int](TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}),
			func(l Limiter) error {
				return l.(*TokenBucket).Reconfigure(TokenBucketOptions{TokenLimit: 3, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour})
			},
		},
		"concurrency": {
			single,
			func(l Limiter) error { return l.(*Concurrency).Reconfigure(ConcurrencyOptions{PermitLimit: 3}) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPartitioned(t, kind.factory, PartitionedOptions{IdleTimeout: time.Hour})
				const keys = 1000
				for key := range keys {
					mustAcquire(t, p, key, 1)
					mustReject(t, p, key, 1)
				}
				slow, goOn := -1, make(chan struct{})
				applied := make(chan error)
				go func() {
					applied <- p.Apply(func(key int, l Limiter) error {
						if slow < 0 {
							slow = key
							<-goOn // it takes long to go through all of them
						}
						return kind.raise(l)
					})
				}()
				synctest.Wait()
				for key := range keys {
					if key == slow {
						mustReject(t, p, key, 1) // under way
					} else {
						mustAcquire(t, p, key, 1)
					}
				}
				close(goOn)
				require.NoError(t, <-applied)
				mustAcquire(t, p, slow, 1)
				for key := range keys {
					mustAcquire(t, p, key, 1)
					mustReject(t, p, key, 1)
				}
				assert.Nil(t, p.keys.change.Load())
			})
		})
	}
}

func TestPartitioned_ApplyError(t *testing.T) {
	p := newPartitioned(t, single, PartitionedOptions{IdleTimeout: time.Hour})
	for key := range 10 {
		mustAcquire(t, p, key, 1)
	}
	calls := 0
	broken := errors.New("not this one")
	err := p.Apply(func(int, Limiter) error {
		if calls++; calls == 3 {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, err, broken)
	assert.Equal(t, 3, calls)
	require.ErrorIs(t, p.Apply(nil), ErrInvalidOptions)
	assert.Panics(t, func() { _ = p.Apply(func(int, Limiter) error { panic("boom") }) })
	assert.Nil(t, p.keys.change.Load())
	mustAcquire(t, p, 10, 1)
}

// Limits that change all the time lose no permit and grant none too many.
func TestPartitioned_ApplyConcurrentSafe(t *testing.T) {
	o := TokenBucketOptions{TokenLimit: 1000, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
	p := newPartitioned(t, FactoryFor[int](o), PartitionedOptions{IdleTimeout: time.Hour})
	const keys, callers = 20, 4
	var granted [keys]atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := range 1200 * keys / callers * 2 {
				l, err := p.TryAcquire(t.Context(), i%keys, 1)
				if err != nil {
					t.Error(err)
					return
				}
				if l.Acquired() {
					granted[i%keys].Add(1)
				}
			}
		})
	}
	for i := range 50 {
		other := o
		other.QueueLimit = i % 3
		require.NoError(t, p.Apply(func(_ int, l Limiter) error { return l.(*TokenBucket).Reconfigure(other) }))
	}
	wg.Wait()
	for key := range keys {
		assert.EqualValues(t, 1000, granted[key].Load())
	}
}

// change may ask for a permit of its own key. Apply waits for a caller that is in change, and change is not called after that: a
// caller that is late does not undo what a later Apply does.
func TestPartitioned_ApplyWaitsForCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartitioned(t, single, PartitionedOptions{IdleTimeout: time.Hour})
		mustAcquire(t, p, 1, 1)
		mustAcquire(t, p, 2, 1)
		var calls []int
		began := time.Now()
		require.NoError(t, p.Apply(func(key int, _ Limiter) error {
			switch calls = append(calls, key); len(calls) {
			case 1:
				mustReject(t, p, key, 1)
				go mustReject(t, p, 3-key, 1)
				synctest.Wait()
			case 2:
				time.Sleep(time.Minute)
			}
			return nil
		}))
		assert.Equal(t, time.Minute, time.Since(began))
		assert.Len(t, calls, 3, "for one of the keys by the caller, and by Apply")

		late := &applyCall[int]{change: func(int, Limiter) error { panic("too late") }}
		late.end()
		require.NoError(t, late.apply(1, nil, false))
	})
}
