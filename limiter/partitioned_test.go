package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// byKey is a partition function for resources that are keys.
func byKey[K comparable](f Factory[K]) func(K) Partition[K] {
	return func(key K) Partition[K] { return Partition[K]{Key: key, New: f} }
}

func newPartitioned[K comparable](tb testing.TB, f Factory[K], o PartitionedOptions) *PartitionedLimiter[K, K] {
	tb.Helper()
	p, err := NewPartitioned(byKey(f), &o)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, p.Close()) })
	return p
}

func mustAcquire[R any](tb testing.TB, p Partitioned[R], resource R, n int) Lease {
	tb.Helper()
	l, err := p.TryAcquire(tb.Context(), resource, n)
	require.NoError(tb, err)
	require.True(tb, l.Acquired(), "resource %v: rejected: %q", resource, l.Reason())
	return l
}

func mustReject[R any](tb testing.TB, p Partitioned[R], resource R, n int) Lease {
	tb.Helper()
	l, err := p.TryAcquire(tb.Context(), resource, n)
	require.NoError(tb, err)
	require.False(tb, l.Acquired(), "resource %v: granted", resource)
	return l
}

var oneAtATime = FactoryFor[string](ConcurrencyOptions{PermitLimit: 1, QueueLimit: 10})

func TestPartitioned_KeysAreApart(t *testing.T) {
	p := newPartitioned(t, oneAtATime, PartitionedOptions{})
	a := mustAcquire(t, p, "a", 1)
	mustAcquire(t, p, "b", 1)
	mustReject(t, p, "a", 1)
	a.Release()
	mustAcquire(t, p, "a", 1)
	assert.Equal(t, 2, p.Len())
}

func TestPartitioned_PartitionCalledOnce(t *testing.T) {
	calls := 0
	p, err := NewPartitioned(func(key string) Partition[string] {
		calls++
		return Partition[string]{Key: key, New: oneAtATime}
	}, nil)
	require.NoError(t, err)
	defer p.Close()
	_, _ = p.TryAcquire(t.Context(), "a", 1)
	assert.Equal(t, 1, calls)
	_, _ = p.TryAcquire(t.Context(), "a", 1)
	assert.Equal(t, 2, calls)
	_, err = p.Statistics("a")
	require.NoError(t, err)
	assert.Equal(t, 3, calls)
	_, err = p.TryAcquire(t.Context(), "b", -1)
	require.ErrorIs(t, err, ErrPermitCount)
	assert.Equal(t, 4, calls)
	assert.Equal(t, 1, p.Len(), "a call that is wrong makes no partition")
}

func TestPartitioned_StatisticsOfUnknownKey(t *testing.T) {
	p := newPartitioned(t, oneAtATime, PartitionedOptions{})
	s, err := p.Statistics("unknown")
	require.NoError(t, err)
	assert.Zero(t, s)
	assert.Zero(t, p.Len())
	mustAcquire(t, p, "a", 1)
	s, err = p.Statistics("a")
	require.NoError(t, err)
	assert.Equal(t, Statistics{SuccessfulLeases: 1}, s)
}

func TestPartitioned_MakesLimiterOnceConcurrentSafe(t *testing.T) {
	var made atomic.Int64
	p := newPartitioned(t, func(key int) (Limiter, error) {
		made.Add(1)
		return NewConcurrency(ConcurrencyOptions{PermitLimit: 64})
	}, PartitionedOptions{})
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for key := range 100 {
				if l, err := p.TryAcquire(t.Context(), key, 1); err != nil || !l.Acquired() {
					t.Errorf("key %d: %v", key, err)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 100, made.Load())
	assert.Equal(t, 100, p.Len())
}

func TestPartitioned_SlowFactory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartitioned(t, func(key string) (Limiter, error) {
			if key == "slow" {
				time.Sleep(time.Minute)
			}
			return oneAtATime(key)
		}, PartitionedOptions{})
		start := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = p.TryAcquire(t.Context(), "slow", 1) })
		}
		synctest.Wait()
		for i := range 1000 {
			mustAcquire(t, p, fmt.Sprint(i), 1)
		}
		assert.Zero(t, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.TryAcquire(ctx, "slow", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "a context ends the wait for another caller's factory")
		wg.Wait()
		assert.Equal(t, time.Minute, time.Since(start))
		s, err := p.Statistics("slow")
		require.NoError(t, err)
		assert.Equal(t, Statistics{SuccessfulLeases: 1, FailedLeases: 1}, s)
	})
}

func TestPartitioned_FailingFactory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no route to the configuration")
		calls := 0
		p := newPartitioned(t, func(key string) (Limiter, error) {
			calls++
			if time.Sleep(time.Second); calls == 1 {
				return nil, broken
			}
			return oneAtATime(key)
		}, PartitionedOptions{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := p.Acquire(t.Context(), "a", 1)
				assert.ErrorIs(t, err, broken)
			})
		}
		wg.Wait()
		assert.Equal(t, 1, calls, "callers that came meanwhile get the same error")
		assert.Zero(t, p.Len())
		mustAcquire(t, p, "a", 1)
		assert.Equal(t, 2, calls)
	})
}

func TestPartitioned_PanickingFactory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		p := newPartitioned(t, func(key string) (Limiter, error) {
			if calls++; calls == 1 {
				time.Sleep(time.Second)
				panic("boom")
			}
			return oneAtATime(key)
		}, PartitionedOptions{MaxPartitions: 1})
		go func() {
			time.Sleep(time.Millisecond)
			_, err := p.TryAcquire(t.Context(), "a", 1)
			assert.ErrorContains(t, err, "panicked")
		}()
		assert.PanicsWithValue(t, "boom", func() { _, _ = p.TryAcquire(t.Context(), "a", 1) })
		synctest.Wait()
		mustAcquire(t, p, "a", 1)
	})
}

func TestPartitioned_FactoryWithoutLimiter(t *testing.T) {
	for name, factory := range map[string]Factory[string]{
		"no factory": nil,
		"no limiter": func(string) (Limiter, error) { return nil, nil },
		"bad bucket": FactoryFor[string](TokenBucketOptions{}),
		"bad fixed":  FactoryFor[string](FixedWindowOptions{}),
		"bad slider": FactoryFor[string](SlidingWindowOptions{}),
		"bad conc":   FactoryFor[string](ConcurrencyOptions{}),
	} {
		p := newPartitioned(t, factory, PartitionedOptions{MaxPartitions: 1})
		for range 2 {
			_, err := p.TryAcquire(t.Context(), "a", 1)
			require.ErrorIs(t, err, ErrInvalidOptions, name)
		}
		assert.Zero(t, p.Len(), name)
	}
}

func TestNewPartitioned_Errors(t *testing.T) {
	_, err := NewPartitioned(byKey(oneAtATime), &PartitionedOptions{IdleTimeout: -1, MaxPartitions: -2})
	require.ErrorIs(t, err, ErrInvalidOptions)
	assert.ErrorContains(t, err, "IdleTimeout")
	assert.ErrorContains(t, err, "MaxPartitions")
	_, err = NewPartitioned[string, string](nil, nil)
	require.EqualError(t, err, "limiter: partition must not be nil")
}

// closeCounter counts how often it is closed, and what it says then.
type closeCounter struct {
	*Concurrency
	closed *atomic.Int64
	err    error
}

func (c closeCounter) Close() error {
	c.closed.Add(1)
	return errors.Join(c.Concurrency.Close(), c.err)
}

func TestPartitioned_ForgetsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int64
		p := newPartitioned(t, func(key string) (Limiter, error) {
			return closeCounter{weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1})), &closed, nil}, nil
		}, PartitionedOptions{IdleTimeout: time.Minute})
		held := mustAcquire(t, p, "held", 1)
		mustAcquire(t, p, "free", 1).Release()

		time.Sleep(75 * time.Second)
		synctest.Wait()
		assert.Equal(t, 2, p.Len(), "seen idle after a quarter, and not for longer than the timeout")
		time.Sleep(15 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, p.Len(), "another quarter later at most")
		assert.EqualValues(t, 1, closed.Load())

		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, 1, p.Len(), "a limiter with a lease is not forgotten")
		held.Release()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Zero(t, p.Len())
		assert.EqualValues(t, 2, closed.Load())
		assert.Nil(t, p.keys.sweep.Load(), "no housekeeping where there is nothing to keep")

		mustAcquire(t, p, "held", 1)
		assert.Equal(t, 1, p.Len(), "and a key may come back")
	})
}

func TestPartitioned_ForgetsFullBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartitioned(t, FactoryFor[string](TokenBucketOptions{
			TokenLimit: 10, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second,
		}), PartitionedOptions{})
		mustAcquire(t, p, "a", 10)
		time.Sleep(20 * time.Second) // full after 10, idle for 10
		synctest.Wait()
		assert.Equal(t, 1, p.Len())
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		assert.Zero(t, p.Len())
	})
}

// plain is a limiter that is nothing but a Limiter.
type plain struct{ l Limiter }

func (p plain) TryAcquire(ctx context.Context, n int) (Lease, error) { return p.l.TryAcquire(ctx, n) }
func (p plain) Acquire(ctx context.Context, n int) (Lease, error)    { return p.l.Acquire(ctx, n) }

// A limiter that does not say whether it is idle can have lent permits: it is kept, and so is a chain with one.
func TestPartitioned_KeepsWithoutIdler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartitioned(t, func(key int) (Limiter, error) {
			l := plain{weir.Must(single(key))}
			if key == 1 {
				return Chain(NewUnlimited(), l)
			}
			return l, nil
		}, PartitionedOptions{IdleTimeout: time.Minute, MaxPartitions: 2})
		for key := range 2 {
			mustAcquire(t, p, key, 1).Release()
		}
		time.Sleep(time.Hour)
		assert.Equal(t, 2, p.Len())
		assert.Equal(t, ReasonPartitionLimit, mustReject(t, p, 2, 1).Reason())
	})
}

func TestPartitioned_Close(t *testing.T) {
	var closed atomic.Int64
	broken := errors.New("does not close")
	p, err := NewPartitioned(byKey(func(key string) (Limiter, error) {
		c := closeCounter{Concurrency: weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1})), closed: &closed}
		if key == "broken" {
			c.err = broken
		}
		return c, nil
	}), nil)
	require.NoError(t, err)
	for _, key := range []string{"a", "b", "broken"} {
		mustAcquire(t, p, key, 1)
	}
	require.ErrorIs(t, p.Close(), broken)
	assert.EqualValues(t, 3, closed.Load())
	require.NoError(t, p.Close())
	assert.Zero(t, p.Len())

	_, err = p.TryAcquire(t.Context(), "a", 1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = p.Acquire(t.Context(), "new", 1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = p.Statistics("a")
	require.ErrorIs(t, err, ErrClosed)
	_, err = p.TryAcquire(t.Context(), "a", -1)
	require.ErrorIs(t, err, ErrPermitCount, "the range comes first")
}

func TestPartitioned_CloseRejectsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPartitioned(byKey(oneAtATime), nil)
		require.NoError(t, err)
		mustAcquire(t, p, "a", 1)
		done := make(chan Lease)
		go func() {
			l, err := p.Acquire(t.Context(), "a", 1)
			assert.NoError(t, err)
			done <- l
		}()
		synctest.Wait()
		require.NoError(t, p.Close())
		l := <-done
		assert.False(t, l.Acquired())
		assert.Equal(t, ReasonClosed, l.Reason())
	})
}

func TestPartitioned_CloseWhileMaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int64
		p, err := NewPartitioned(byKey(func(string) (Limiter, error) {
			time.Sleep(time.Second)
			return closeCounter{weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1})), &closed, nil}, nil
		}), nil)
		require.NoError(t, err)
		go func() {
			time.Sleep(time.Millisecond)
			assert.NoError(t, p.Close())
		}()
		_, err = p.TryAcquire(t.Context(), "a", 1)
		require.ErrorIs(t, err, ErrClosed)
		assert.EqualValues(t, 1, closed.Load())
		assert.Zero(t, p.Len())
	})
}

// A limiter that was found is never closed under the caller, and a throttled key
// gets no fresh bucket: with an idle timeout of nothing partitions are forgotten
// as fast as can be.
func TestPartitioned_ForgetWhileUsedConcurrentSafe(t *testing.T) {
	p, err := NewPartitioned(byKey(FactoryFor[int](ConcurrencyOptions{PermitLimit: 2, QueueLimit: 100})), &PartitionedOptions{IdleTimeout: 1})
	require.NoError(t, err)
	const keys = 8
	var held [keys]atomic.Int64
	stop := make(chan struct{})
	var keepers, users sync.WaitGroup
	for range 2 {
		keepers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					p.keys.sweepAll(moment())
				}
			}
		})
	}
	for g := range 8 {
		users.Go(func() {
			for i := range 2000 {
				key := (g + i) % keys
				l, err := p.Acquire(t.Context(), key, 1)
				if err != nil || !l.Acquired() {
					t.Errorf("%v %q", err, l.Reason())
					return
				}
				if n := held[key].Add(1); n > 2 {
					t.Errorf("%d hold a permit of 2", n)
				}
				held[key].Add(-1)
				l.Release()
			}
		})
	}
	users.Wait()
	close(stop)
	keepers.Wait()
	require.NoError(t, p.Close())
	assert.Zero(t, p.keys.count.Load())
}

// Clocked limiters are used without a pin. A caller that comes too late asks again, and never gets ErrClosed.
func TestPartitioned_UseWhileForgottenConcurrentSafe(t *testing.T) {
	for name, factory := range map[string]Factory[int]{
		"bucket":         FactoryFor[int](TokenBucketOptions{TokenLimit: 100, TokensPerPeriod: 100, ReplenishmentPeriod: 1, QueueLimit: 100}),
		"fixed window":   FactoryFor[int](FixedWindowOptions{PermitLimit: 100, Window: 1, QueueLimit: 100}),
		"sliding window": FactoryFor[int](SlidingWindowOptions{PermitLimit: 100, Window: 2, SegmentsPerWindow: 2, QueueLimit: 100}),
	} {
		t.Run(name, func(t *testing.T) {
			var made atomic.Int64
			counted := func(key int) (Limiter, error) {
				made.Add(1)
				return factory(key)
			}
			// Each new key pushes one out that is full, so that limiters come and go
			// as fast as they can be made.
			p := newPartitioned(t, counted, PartitionedOptions{MaxPartitions: 2})
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					for i := range 2000 {
						ask := p.TryAcquire
						if i%2 == 0 {
							ask = p.Acquire
						}
						l, err := ask(t.Context(), (g+i/7)%5, 1)
						if err != nil || !l.Acquired() && l.Reason() == ReasonClosed {
							t.Errorf("%v %q", err, l.Reason())
							return
						}
					}
				})
			}
			wg.Wait()
			assert.Greater(t, made.Load(), int64(100))
		})
	}
}

func TestPartitioned_MaxPartitionsConcurrentSafe(t *testing.T) {
	p := newPartitioned(t, FactoryFor[int](ConcurrencyOptions{PermitLimit: 1}), PartitionedOptions{MaxPartitions: 10})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				l, err := p.TryAcquire(t.Context(), (g*31+i)%50, 1)
				if err != nil {
					t.Error(err)
				}
				if n := p.Len(); n > 10 {
					t.Errorf("%d partitions of 10", n)
				}
				l.Release()
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, p.Len(), p.keys.count.Load())
}

func TestTranslate(t *testing.T) {
	type request struct{ user string }
	p := newPartitioned(t, oneAtATime, PartitionedOptions{})
	byUser := Translate(p, func(r request) string { return r.user })
	mustAcquire(t, byUser, request{"a"}, 1)
	mustReject(t, byUser, request{"a"}, 1)
	mustReject(t, p, "a", 1)
	mustAcquire(t, byUser, request{"b"}, 1)

	_, err := ChainPartitioned(byUser, Translate[request, string](nil, nil), Translate[request](p, nil))
	require.ErrorIs(t, err, ErrInvalidOptions)
	assert.ErrorContains(t, err, "limiters[1] must not be nil; limiters[2] must not be nil")
}

func TestChainPartitioned_RejectionCostsNothing(t *testing.T) {
	perUser := newPartitioned(t, FactoryFor[string](TokenBucketOptions{
		TokenLimit: 2, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
	}), PartitionedOptions{})
	total := newPartitioned(t, func(string) (Limiter, error) { return NewConcurrency(ConcurrencyOptions{PermitLimit: 1}) }, PartitionedOptions{})
	both, err := ChainPartitioned[string](perUser, Translate(total, func(string) string { return "" }))
	require.NoError(t, err)

	held := mustAcquire(t, both, "a", 1)
	for range 10 {
		mustReject(t, both, "a", 1)
	}
	s, err := perUser.Statistics("a")
	require.NoError(t, err)
	assert.Equal(t, Statistics{AvailablePermits: 1, SuccessfulLeases: 1}, s)
	held.Release()
	mustAcquire(t, both, "a", 1).Release()
	l := mustReject(t, both, "a", 1)
	_, known := l.RetryAfter()
	assert.True(t, known)

	_, err = ChainPartitioned[string]()
	require.ErrorIs(t, err, ErrInvalidOptions)
	_, err = ChainPartitioned[string](perUser, nil)
	require.ErrorIs(t, err, ErrInvalidOptions)
}

// What the caller that makes a limiter takes is taken when it is made, and not when the factory began.
func TestPartitioned_SlowFactoryTakesNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		buckets := FactoryFor[string](TokenBucketOptions{TokenLimit: 10, TokensPerPeriod: 10, ReplenishmentPeriod: time.Second})
		p, err := NewPartitionedByKey(func(key string) string { return key }, func(key string) (Limiter, error) {
			time.Sleep(2500 * time.Millisecond)
			return buckets(key)
		}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close()) }()
		lease, err := p.TryAcquire(t.Context(), "a", 10)
		require.NoError(t, err)
		require.True(t, lease.Acquired())
		lease, err = p.TryAcquire(t.Context(), "a", 1)
		require.NoError(t, err)
		require.False(t, lease.Acquired())
		after, ok := lease.RetryAfter()
		require.True(t, ok)
		require.Equal(t, time.Second, after)
	})
}
