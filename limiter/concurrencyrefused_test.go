package limiter

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever may bring a permit back ends what is known of there being none.
func TestAFullConcurrencyThatRefusesWithoutItsLock(t *testing.T) {
	for name, does := range map[string]func(*testing.T, *Concurrency, Lease){
		"release": func(_ *testing.T, _ *Concurrency, l Lease) { l.Release() },
		"refund":  func(_ *testing.T, _ *Concurrency, l Lease) { l.undo() },
		"raised": func(t *testing.T, c *Concurrency, _ Lease) {
			require.NoError(t, c.Reconfigure(ConcurrencyOptions{PermitLimit: 2}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1}))
			lease := take(t, c, 1)
			for range 5 {
				l, err := c.Acquire(t.Context(), 1)
				require.NoError(t, err)
				assert.Equal(t, ReasonNoPermit, l.Reason())
				l, err = c.TryAcquire(t.Context(), 1)
				require.NoError(t, err)
				assert.False(t, l.Acquired())
				assert.Empty(t, l.Reason())
			}
			assert.EqualValues(t, 10, c.Statistics().FailedLeases)
			assert.NotZero(t, c.full.bits.Load()&noneFree)
			does(t, c, lease)
			take(t, c, 1)
			refused(t, c, 1)
			refused(t, c, 1)
			require.NoError(t, c.Close())
			_, err := c.TryAcquire(t.Context(), 1)
			require.ErrorIs(t, err, ErrClosed)
		})
	}
}

// Who may queue is not refused because others, who may not, are.
func TestAFullConcurrencyStillQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}))
		lease := take(t, c, 1)
		for range 5 {
			refused(t, c, 1)
		}
		waited := make(chan Lease)
		go func() {
			l, err := c.Acquire(t.Context(), 1)
			assert.NoError(t, err)
			waited <- l
		}()
		synctest.Wait()
		refused(t, c, 1)
		lease.Release()
		l := <-waited
		assert.True(t, l.Acquired())
		refused(t, c, 1)
		l.Release()
		take(t, c, 1)
		assert.EqualValues(t, 7, c.Statistics().FailedLeases)
	})
}

// All rejections are counted, no permit is held twice, and a permit that has come back is there.
func TestAFullConcurrencyThatRefusesWithoutItsLockConcurrentSafe(t *testing.T) {
	c := Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 2}))
	var held, rejected, granted atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20_000 {
				ask := c.TryAcquire
				if (g+i)%2 == 0 {
					ask = c.Acquire
				}
				l, err := ask(t.Context(), 1)
				switch {
				case err != nil:
					t.Error(err)
				case !l.Acquired():
					rejected.Add(1)
				default:
					if n := held.Add(1); n > 2 {
						t.Errorf("%d hold a permit of 2", n)
					}
					granted.Add(1)
					held.Add(-1)
					l.Release()
				}
			}
		})
	}
	wg.Wait()
	assert.Equal(t, Statistics{AvailablePermits: 2, SuccessfulLeases: granted.Load(), FailedLeases: rejected.Load()}, c.Statistics())
	take(t, c, 2)
}
