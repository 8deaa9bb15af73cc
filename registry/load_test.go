package registry_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A thousand reloads, one a millisecond, each with another limit, while more is
// asked for than any limit allows.
func TestReload_GrantsNoMoreThanTheLargestLimit(t *testing.T) {
	const window, reloads, most = 20 * time.Millisecond, 1000, 10
	limits := []int{3, most, 5, 1, 8}
	for _, queue := range []int{0, 5} {
		synctest.Test(t, func(t *testing.T) {
			r := open(t, nil)
			limit := limits[0]
			p := define(t, r, "orders", func(b *registry.Builder) error {
				b.Add(ratelimit.New(b.FixedWindow("l", limiter.FixedWindowOptions{
					PermitLimit: limit, Window: window, QueueLimit: queue,
				}), nil))
				return nil
			})
			began := time.Now()
			granted := make([]int, reloads*time.Millisecond/window+1)
			var mu sync.Mutex
			call := func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				granted[time.Since(began)/window]++
				return nil
			}
			var wg sync.WaitGroup
			for i := range 30 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 37 * time.Microsecond)
					for time.Since(began) < reloads*time.Millisecond {
						if err := p.Execute(t.Context(), call); err != nil {
							assert.ErrorIs(t, err, pipeline.ErrRejected)
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			for i := range reloads {
				limit = limits[i%len(limits)]
				require.NoError(t, r.Reload(t.Context()))
				time.Sleep(time.Millisecond)
			}
			wg.Wait()
			total := 0
			for i, n := range granted {
				assert.LessOrEqual(t, n, most, "window %d", i)
				total += n
			}
			assert.Greater(t, total, len(granted)*most*8/10, "and what they allow is granted")
		})
	}
}

// A bucket never gives more than its size and what has flowed in, whatever happens to
// the limits.
func TestReload_DoesNotRefillABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		size := 10
		p := define(t, r, "orders", func(b *registry.Builder) error {
			b.Add(ratelimit.New(b.TokenBucket("l", limiter.TokenBucketOptions{
				TokenLimit: size, TokensPerPeriod: 1, ReplenishmentPeriod: 10 * time.Millisecond,
			}), nil))
			return nil
		})
		granted := 0
		for i := range 1000 {
			size = 1 + i*7%10
			require.NoError(t, r.Reload(t.Context()))
			for p.Execute(t.Context(), nothing) == nil {
				granted++
			}
			time.Sleep(time.Millisecond)
		}
		assert.LessOrEqual(t, granted, 10+100)
		assert.GreaterOrEqual(t, granted, 1+90)
	})
}

// neverClosed fails the test for what no execution may meet because of a reload.
func neverClosed(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	assert.NotErrorIs(t, err, limiter.ErrClosed)
	assert.NotErrorIs(t, err, pipeline.ErrClosed)
	assert.ErrorIs(t, err, pipeline.ErrRejected)
	if rejected, ok := errors.AsType[*ratelimit.RejectedError](err); ok {
		assert.NotEqual(t, limiter.ReasonClosed, rejected.Reason)
	}
}

// load runs executions of p on a few goroutines until stop is called.
func load(t *testing.T, p *pipeline.Pipeline, call func(context.Context) error) (stop func()) {
	t.Helper()
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !stopped.Load() {
				neverClosed(t, p.Execute(t.Context(), call))
			}
		})
	}
	return func() {
		stopped.Store(true)
		wg.Wait()
	}
}

// Every reload closes the limiter of the version before it, and no execution fails.
func TestReload_ChangesOfKindUnderLoadConcurrentSafe(t *testing.T) {
	r := open(t, nil)
	now := 0
	p := define(t, r, "orders", func(b *registry.Builder) error {
		b.Add(ratelimit.New(subjects[now%len(subjects)].make(b, 1000+now), nil))
		b.Add(ratelimit.New(nil, nil)) // owned by the strategy
		return nil
	})
	stop := load(t, p, nothing)
	for now = range 500 {
		require.NoError(t, r.Reload(t.Context()))
	}
	stop()
}
