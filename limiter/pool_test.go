package limiter_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

func bucketOf(tokens int, every time.Duration) *limiter.TokenBucket {
	return weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: tokens, TokensPerPeriod: 1, ReplenishmentPeriod: every}))
}

// n buckets admit what one bucket of n times the size admits, within one burst, whenever callers come.
func TestPool_AdmitsTheSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var members []limiter.Limiter
		for range 4 {
			members = append(members, bucketOf(5, time.Second))
		}
		pool := weir.Must(limiter.AnyOf(&limiter.PoolOptions{QueueLimit: 100}, members...))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var mu sync.Mutex
		granted, by := 0, make([]int, 4)
		for range 30 {
			wg.Go(func() {
				for {
					l, err := pool.Acquire(ctx, 1)
					if err != nil {
						return
					}
					i, ok := limiter.PickedKey.From(l)
					assert.True(t, ok)
					mu.Lock()
					granted++
					by[i]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		assert.InDelta(t, 4*5+4*99, granted, 4)
		for _, n := range by {
			assert.InDelta(t, granted/4, n, 2)
		}
		assert.EqualValues(t, granted, pool.Statistics().SuccessfulLeases)
		assert.Zero(t, pool.Statistics().QueuedPermits)
	})
}

// The first waiter takes the slot that is free first, wherever that is.
func TestPool_Slots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
		b := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 2}))
		pool := weir.Must(limiter.AnyOf(&limiter.PoolOptions{QueueLimit: 2}, a, b))
		var held []limiter.Lease
		for _, want := range []int{1, 0, 1} { // b has two left, then each has one
			l := weir.Must(pool.TryAcquire(t.Context(), 1))
			i, _ := limiter.PickedKey.From(l)
			require.Equal(t, want, i)
			held = append(held, l)
		}
		got := make(chan int, 2)
		for range 2 {
			go func() {
				i, _ := limiter.PickedKey.From(weir.Must(pool.Acquire(t.Context(), 1)))
				got <- i
			}()
			synctest.Wait()
		}
		l := weir.Must(pool.Acquire(t.Context(), 1))
		assert.Equal(t, limiter.ReasonQueueLimit, l.Reason())
		start := time.Now()
		held[1].Release()
		assert.Equal(t, 0, <-got)
		held[2].Release()
		held[2].Release()
		assert.Equal(t, 1, <-got)
		assert.Zero(t, time.Since(start), "a release wakes the first waiter")
		_, err := pool.TryAcquire(t.Context(), 3)
		require.ErrorIs(t, err, limiter.ErrPermitCount)

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := pool.Acquire(ctx, 1)
			assert.ErrorIs(t, err, context.Canceled)
			got <- -1
		}()
		synctest.Wait()
		cancel()
		<-got
		go func() {
			assert.Equal(t, limiter.ReasonClosed, weir.Must(pool.Acquire(t.Context(), 1)).Reason())
			got <- -1
		}()
		synctest.Wait()
		require.NoError(t, pool.Close())
		<-got
		_, err = pool.TryAcquire(t.Context(), 1)
		require.ErrorIs(t, err, limiter.ErrClosed)
	})
}

// A pool of a chain is a fair queue that holds nothing while it waits.
func TestPool_OfAChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, tokens := bucketOf(10, time.Second), bucketOf(100, 10*time.Millisecond)
		pool := weir.Must(limiter.AnyOf(&limiter.PoolOptions{QueueLimit: 1000, QueueOrder: limiter.Fair},
			weir.Must(limiter.Chain(requests, tokens))))
		require.True(t, weir.Must(tokens.TryAcquire(t.Context(), 100)).Acquired())
		go func() {
			l := weir.Must(pool.Acquire(t.Context(), 10))
			l.Release()
		}()
		synctest.Wait()
		assert.EqualValues(t, 10, requests.Statistics().AvailablePermits)
		time.Sleep(time.Second)
		assert.EqualValues(t, 1, requests.Statistics().AvailablePermits)
	})
}

// A context that panics takes its waiter with it.
func TestPool_ContextThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
		pool := weir.Must(limiter.AnyOf(&limiter.PoolOptions{QueueLimit: 10}, l))
		held := weir.Must(pool.TryAcquire(t.Context(), 1))
		assert.Panics(t, func() { _, _ = pool.Acquire(doneless{t.Context()}, 1) })
		held.Release()
		next := weir.Must(pool.Acquire(t.Context(), 1))
		assert.True(t, next.Acquired())
	})
}

type doneless struct{ context.Context }

func (doneless) Done() <-chan struct{} { panic("no channel") }

// Who would wait behind others is told how long who is first waits.
func TestPool_RetryAfterBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := weir.Must(limiter.AnyOf(&limiter.PoolOptions{QueueLimit: 1}, bucketOf(1, time.Minute)))
		require.True(t, weir.Must(pool.TryAcquire(t.Context(), 1)).Acquired())
		done := make(chan limiter.Lease, 1)
		go func() { done <- weir.Must(pool.Acquire(t.Context(), 1)) }()
		synctest.Wait()
		for _, ask := range []func(context.Context, int) (limiter.Lease, error){pool.TryAcquire, pool.Acquire} {
			after, known := weir.Must(ask(t.Context(), 1)).RetryAfter()
			assert.True(t, known)
			assert.Equal(t, time.Minute, after)
		}
		<-done
	})
}

// Charge takes nothing where a call has a cost of its own.
func TestChain_ChargePerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, tokens := bucketOf(10, time.Second), bucketOf(100, time.Second)
		limits := weir.Must(weir.Must(weir.Must(limiter.Chain(requests, tokens)).Named("requests", "tokens")).PerCall("requests"))
		weir.Must(limits.Charge(t.Context(), 50))
		assert.EqualValues(t, 10, left(requests))
		assert.EqualValues(t, 50, left(tokens))
	})
}
