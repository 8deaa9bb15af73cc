package limiter_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
)

// Tenants that wait all the time get permits by their weights.
func TestFair_Shares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := limiter.NewTokenBucket(limiter.TokenBucketOptions{
			TokenLimit: 10, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second, QueueLimit: 1000, QueueOrder: limiter.Fair,
		})
		require.NoError(t, err)
		defer l.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10_000*time.Second)
		defer cancel()
		var mu sync.Mutex
		got := map[string]int{}
		var wg sync.WaitGroup
		for _, tenant := range []limiter.Tenant{{Key: "a"}, {Key: "b", Weight: 3}, {Key: "c"}} {
			for i := range 10 {
				n := map[string]int{"a": 1, "b": 2, "c": 1 + i}[tenant.Key]
				wg.Go(func() {
					for {
						lease, err := l.Acquire(limiter.WithTenant(ctx, tenant), n)
						if err != nil {
							return
						}
						if !lease.Acquired() {
							panic(lease.Reason())
						}
						mu.Lock()
						got[tenant.Key] += n
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		require.InDelta(t, 2000, got["a"], 40)
		require.InDelta(t, 6000, got["b"], 40)
		require.InDelta(t, 2000, got["c"], 40)
	})
}

// The rows of https://github.com/BerriAI/litellm/pull/35422: 1000 tokens a minute, and teams that each ask for 30 once a second.
// There, a team alone was served 1560, and two with floors of a half 1590 and 540.
func TestFair_FloorsAndLending(t *testing.T) {
	for _, test := range []struct {
		name        string
		secondStart time.Duration
		first, last [2]float64 // what the teams are served at least and at most
	}{
		{"alone", time.Hour, [2]float64{980, 1030}, [2]float64{0, 0}},
		{"two teams", 0, [2]float64{490, 510}, [2]float64{490, 510}},
		{"the second comes in mid-minute", 30 * time.Second, [2]float64{750, 790}, [2]float64{235, 265}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tokens := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
					TokenLimit: 30, TokensPerPeriod: 1, ReplenishmentPeriod: time.Minute / 1000, QueueLimit: 10_000, QueueOrder: limiter.Fair,
				}))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var served [2]atomic.Int64
				var wg sync.WaitGroup
				for i, start := range []time.Duration{0, test.secondStart} {
					ctx := limiter.WithTenant(ctx, limiter.Tenant{Key: []string{"first", "second"}[i]})
					wg.Go(func() {
						for clock.Sleep(ctx, start); ctx.Err() == nil; clock.Sleep(ctx, time.Second) {
							wg.Go(func() {
								if l, err := tokens.Acquire(ctx, 30); err == nil && l.Acquired() {
									served[i].Add(30)
								}
							})
						}
					})
				}
				wg.Wait()
				for i, want := range [][2]float64{test.first, test.last} {
					got := float64(served[i].Load())
					assert.True(t, got >= want[0] && got <= want[1], "team %d: %v, not in %v", i, got, want)
				}
			})
		})
	}
}

// Whatever the function of a context does, nothing is lost: it is called with no lock held.
func TestFair_ContextThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 5, QueueOrder: limiter.Fair}))
		held := weir.Must(l.TryAcquire(t.Context(), 1))
		assert.Panics(t, func() { _, _ = l.Acquire(panicking{t.Context(), nil}, 1) })
		// A permit comes back while the tenant is looked for: it is taken without a wait.
		got, err := l.Acquire(panicking{t.Context(), held.Release}, 1)
		require.NoError(t, err)
		assert.True(t, got.Acquired())
		// The limiter is closed meanwhile.
		_, err = l.Acquire(panicking{t.Context(), func() { _ = l.Close() }}, 1)
		require.ErrorIs(t, err, limiter.ErrClosed)
	})
}

// A panicking context calls f when it is asked for a value, and panics if it is nil.
type panicking struct {
	context.Context
	f func()
}

func (c panicking) Value(any) any {
	if c.f == nil {
		panic("no value")
	}
	c.f()
	return nil
}

// Another order of the queue keeps the waiters, and serves them as it says.
func TestFair_Reconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 100, QueueOrder: limiter.Fair}
		l := weir.Must(limiter.NewConcurrency(o))
		held := weir.Must(l.TryAcquire(t.Context(), 1))
		got := make(chan string, 10)
		for _, key := range []string{"a", "a", "a", "b", "a", "c"} {
			go func() {
				lease := weir.Must(l.Acquire(limiter.WithTenant(t.Context(), limiter.Tenant{Key: key}), 1))
				tenant, ok := limiter.TenantKey.From(lease)
				assert.Equal(t, l.Limits().QueueOrder == limiter.Fair, ok)
				assert.True(t, !ok || tenant.Key == key)
				got <- key
				time.Sleep(time.Second)
				lease.Release()
			}()
			synctest.Wait()
		}
		held.Release()
		assert.Equal(t, "a", <-got)
		assert.Equal(t, "b", <-got)
		o.QueueOrder = limiter.NewestFirst
		require.NoError(t, l.Reconfigure(o))
		assert.EqualValues(t, 4, l.Statistics().QueuedPermits)
		assert.Equal(t, "a", <-got, "in the order in which they would have been served, the last one was an a")
		o.QueueOrder = limiter.OldestFirst
		require.NoError(t, l.Reconfigure(o))
		for _, want := range []string{"c", "a", "a"} {
			assert.Equal(t, want, <-got)
		}
		time.Sleep(time.Second)
	})
}

// From a full queue, who has most gives way, and no one else.
func TestFair_FullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{
			PermitLimit: 1, QueueLimit: 4, QueueOrder: limiter.Fair, QueueLimitPerTenant: 3,
		}))
		_ = weir.Must(l.TryAcquire(t.Context(), 1))
		reasons := make(chan string, 10)
		wait := func(tenant limiter.Tenant) {
			go func() {
				lease := weir.Must(l.Acquire(limiter.WithTenant(t.Context(), tenant), 1))
				reasons <- tenant.Key + ": " + lease.Reason()
			}()
			synctest.Wait()
		}
		for range 4 {
			wait(limiter.Tenant{Key: "many"})
		}
		assert.Equal(t, "many: "+limiter.ReasonQueueLimit, <-reasons, "a tenant's own limit")
		wait(limiter.Tenant{Key: "few"})
		wait(limiter.Tenant{Key: "other"})
		assert.Equal(t, "many: "+limiter.ReasonQueueLimit, <-reasons)
		wait(limiter.Tenant{Key: "many"})
		assert.Equal(t, "many: "+limiter.ReasonQueueLimit, <-reasons, "it would have most itself")
		for range 4 {
			wait(limiter.Tenant{Key: "urgent", Priority: 1})
		}
		assert.Equal(t, "many: "+limiter.ReasonQueueLimit, <-reasons)
		assert.NotContains(t, <-reasons, "urgent")
		assert.NotContains(t, <-reasons, "urgent")
		assert.Equal(t, "urgent: "+limiter.ReasonQueueLimit, <-reasons)
		require.NoError(t, l.Close())
		synctest.Wait()
		assert.Len(t, reasons, 4)
	})
}

// A newcomer that comes before who was first is served at once if its permits are free.
func TestFair_NewcomerThatIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(l limiter.Limiter, key string, n int) <-chan time.Duration {
			took, start := make(chan time.Duration, 1), time.Now()
			go func() {
				lease := weir.Must(l.Acquire(limiter.WithTenant(t.Context(), limiter.Tenant{Key: key}), n))
				if lease.Acquired() {
					took <- time.Since(start)
				} else {
					took <- -1
				}
			}()
			synctest.Wait()
			return took
		}
		slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 10, QueueLimit: 8, QueueOrder: limiter.Fair}))
		held := weir.Must(slots.TryAcquire(t.Context(), 5))
		large := wait(slots, "a", 8)
		assert.Zero(t, <-wait(slots, "b", 3)) // the queue is full: it even pushes a out
		assert.EqualValues(t, -1, <-large)
		held.Release()

		window := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Minute, QueueLimit: 100, QueueOrder: limiter.Fair}))
		require.True(t, weir.Must(window.TryAcquire(t.Context(), 5)).Acquired())
		large = wait(window, "a", 8)
		assert.Zero(t, <-wait(window, "b", 3))
		assert.Equal(t, time.Minute, <-large)
	})
}
