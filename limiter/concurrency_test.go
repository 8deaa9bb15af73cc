package limiter

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// fillUp takes all permits of c.
func fillUp(t *testing.T, c *Concurrency) Lease {
	t.Helper()
	lease, err := c.TryAcquire(t.Context(), int(c.Statistics().AvailablePermits))
	require.NoError(t, err)
	require.True(t, lease.Acquired())
	return lease
}

func TestConcurrency_RejectsWithoutItsLock(t *testing.T) {
	c := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 2}))
	held := fillUp(t, c)
	c.mu.Lock()
	l, err := c.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, Lease{}, l)
	l, err = c.Acquire(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, rejected(0, noPermit), l)
	c.mu.Unlock()
	assert.Equal(t, Statistics{SuccessfulLeases: 1, FailedLeases: 2}, c.Statistics())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.TryAcquire(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	held.Release()
	assert.Equal(t, Statistics{AvailablePermits: 2, SuccessfulLeases: 1, FailedLeases: 2}, c.Statistics())
}

// A waiter that has its answer may ask again at once: it must not be rejected although permits are free, or the
// limiter is closed. The many waiters behind it have the call that answers them last long enough to see that.
func TestConcurrency_WaitersSeeWhatTheyWereTold(t *testing.T) {
	const rounds, waiters = 20, 100
	for name, end := range map[string]func(c *Concurrency, held Lease) error{
		"released": func(_ *Concurrency, held Lease) error { held.Release(); return nil },
		"refunded": func(_ *Concurrency, held Lease) error { held.Refund(); return nil },
		"limit raised": func(c *Concurrency, _ Lease) error {
			return c.Reconfigure(ConcurrencyOptions{PermitLimit: 4 * waiters, QueueLimit: waiters})
		},
		"closed": func(c *Concurrency, _ Lease) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				c := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 2 * waiters, QueueLimit: waiters}))
				held := fillUp(t, c)
				var answered sync.WaitGroup
				for range waiters {
					answered.Go(func() {
						_, err := c.Acquire(t.Context(), 1)
						assert.NoError(t, err)
						again, err := c.TryAcquire(t.Context(), 1)
						if name == "closed" {
							assert.ErrorIs(t, err, ErrClosed)
							return
						}
						assert.NoError(t, err)
						assert.True(t, again.Acquired())
					})
				}
				for c.Statistics().QueuedPermits < waiters {
					runtime.Gosched()
				}
				require.NoError(t, end(c, held))
				answered.Wait()
				if t.Failed() {
					return
				}
			}
		})
	}
}

// Every call is counted once, and is in the statistics that are read after it.
func TestConcurrency_CountsConcurrentSafe(t *testing.T) {
	const goroutines, calls = 8, 4000
	c := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 2}))
	var begun, ended, granted, held atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range calls {
				ask := c.TryAcquire
				if r.IntN(2) == 0 {
					ask = c.Acquire
				}
				begun.Add(1)
				l, err := ask(t.Context(), 1)
				ended.Add(1)
				assert.NoError(t, err)
				if l.Acquired() {
					granted.Add(1)
					assert.LessOrEqual(t, held.Add(1), int64(3))
					if i%8 == 0 {
						assert.NoError(t, c.Reconfigure(ConcurrencyOptions{PermitLimit: 1 + r.IntN(3)}))
					}
					held.Add(-1)
					l.Release()
				}
				if i%16 == 0 {
					least := ended.Load()
					s := c.Statistics()
					most := begun.Load()
					counted := s.SuccessfulLeases + s.FailedLeases
					assert.True(t, least <= counted && counted <= most, "%d calls ended, %d counted, %d begun", least, counted, most)
				}
			}
		})
	}
	wg.Wait()
	s := c.Statistics()
	assert.Equal(t, granted.Load(), s.SuccessfulLeases)
	assert.Equal(t, int64(goroutines*calls)-granted.Load(), s.FailedLeases)
}

// A permit comes back once, however many copies of its lease are released at once, also when its slot has another lease.
func TestConcurrency_ReleasesOnceConcurrentSafe(t *testing.T) {
	const limit, goroutines, calls = 5, 8, 2000
	c := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: limit}))
	var held atomic.Int64
	leases := make(chan Lease, limit)
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range calls {
				if l := weir.Must(c.TryAcquire(t.Context(), 1)); l.Acquired() {
					assert.LessOrEqual(t, held.Add(1), int64(limit))
					leases <- l
				}
				select {
				case l := <-leases:
					held.Add(-1)
					copied := ReasonKey.With(l, "another copy")
					wg.Go(copied.Release)
					l.Release()
				default:
				}
			}
		})
	}
	wg.Wait()
	for len(leases) > 0 {
		l := <-leases
		l.Release()
		l.Release()
	}
	assert.EqualValues(t, limit, c.Statistics().AvailablePermits)
}

// Counts that no longer fit into the tally, and limits that do not, are exact.
func TestConcurrency_CountsBeyondTheTally(t *testing.T) {
	const calls = 10_000
	c := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 2}))
	for range calls {
		l := take(t, c, 2)
		refused(t, c, 1)
		l.Release()
	}
	assert.Equal(t, Statistics{AvailablePermits: 2, SuccessfulLeases: calls, FailedLeases: calls}, c.Statistics())
	for _, limit := range []int{mostPermits, mostPermits + 1} {
		require.NoError(t, c.Reconfigure(ConcurrencyOptions{PermitLimit: limit}))
		l := take(t, c, limit-1)
		take(t, c, 1).Release()
		refused(t, c, 2)
		require.NoError(t, c.Reconfigure(ConcurrencyOptions{PermitLimit: 5}))
		refused(t, c, 1)
		l.Release()
		assert.EqualValues(t, 5, c.Statistics().AvailablePermits)
	}
}
