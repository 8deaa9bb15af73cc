package adaptive_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// bodies is a transport whose results are bodies: the time for which each is in use.
type bodies struct {
	context.Context
	refuses bool
}

func (b bodies) Value(key any) any {
	if _, ok := key.(holding.Key); ok {
		return b
	}
	return b.Context.Value(key)
}

func (b bodies) Release(any) {}
func (b bodies) Drop(any)    {}

func (b bodies) Hold(result any, release func()) bool {
	if b.refuses {
		return false
	}
	go func() { // time.AfterFunc makes the race detector crash now and then, if the time is 0 and in a bubble
		time.Sleep(result.(time.Duration))
		release()
	}()
	return true
}

// The permits are in use as long as the result is, but each limiter learns from the time of the execution, whichever strategy
// holds the lease: here each takes 10 ms, and its body more and more.
func TestStrategy_LearnsBeforeLeaseIsReleased(t *testing.T) {
	chain := func(members ...limiter.Limiter) limiter.Limiter { return weir.Must(limiter.Chain(members...)) }
	other := func() limiter.Limiter {
		return weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: 20, InitialLimit: 20, MaxLimit: 20}))
	}
	strategies := map[string]func(l limiter.Limiter) pipeline.Strategy{
		"adaptive":                 func(l limiter.Limiter) pipeline.Strategy { return adaptive.New(l, nil) },
		"second of a chain":        func(l limiter.Limiter) pipeline.Strategy { return adaptive.New(chain(other(), l), nil) },
		"ratelimit":                func(l limiter.Limiter) pipeline.Strategy { return ratelimit.New(l, nil) },
		"ratelimit with a chain":   func(l limiter.Limiter) pipeline.Strategy { return ratelimit.New(chain(limiter.NewUnlimited(), l), nil) },
		"ratelimit with two":       func(l limiter.Limiter) pipeline.Strategy { return ratelimit.New(chain(other(), l), nil) },
		"ratelimit, by key":        func(l limiter.Limiter) pipeline.Strategy { return byKey(t, l) },
		"ratelimit, chains by key": func(l limiter.Limiter) pipeline.Strategy { return byKey(t, chain(limiter.NewUnlimited(), l)) },
	}
	for name, strategy := range strategies {
		t.Run(name, func(t *testing.T) { testLearnsBeforeRelease(t, strategy) })
	}
}

// byKey makes a strategy of a partitioned limiter that has l for every key.
func byKey(t *testing.T, l limiter.Limiter) pipeline.Strategy {
	t.Helper()
	keyed := weir.Must(limiter.NewPartitionedByKey(func(k string) string { return k }, func(string) (limiter.Limiter, error) { return l, nil }, nil))
	t.Cleanup(func() { _ = keyed.Close() })
	return ratelimit.NewPartitioned(keyed, func(context.Context) string { return "key" }, nil)
}

func testLearnsBeforeRelease(t *testing.T, strategy func(l limiter.Limiter) pipeline.Strategy) {
	t.Helper()
	limitAfter := func(t *testing.T, ctx context.Context, body func(round int) time.Duration) int {
		t.Helper()
		l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: 1, InitialLimit: 20, MaxLimit: 20}))
		p := weir.Must(pipeline.New("partner", strategy(l)))
		for round := range 300 {
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					_, _ = pipeline.ExecuteValue(ctx, p, func(context.Context) (time.Duration, error) {
						time.Sleep(10 * time.Millisecond)
						return body(round), nil
					})
				})
			}
			all.Wait()
			time.Sleep(body(round) + time.Millisecond)
		}
		assert.EqualValues(t, l.Limit(), l.Statistics().AvailablePermits, "all are back")
		return l.Limit()
	}
	growing := func(round int) time.Duration { return time.Duration(max(round-150, 0)) * 20 * time.Millisecond }
	synctest.Test(t, func(t *testing.T) {
		plain := limitAfter(t, t.Context(), growing)
		assert.Equal(t, 20, plain)
		assert.Equal(t, plain, limitAfter(t, bodies{Context: t.Context()}, growing))
	})
}

func TestStrategy_HoldsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, refuses := range map[string]bool{"held": false, "refused": true} {
			l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: 1, InitialLimit: 1, MaxLimit: 1}))
			p := weir.Must(pipeline.New("partner", adaptive.New(l, nil)))
			_, err := pipeline.ExecuteValue(bodies{t.Context(), refuses}, p, func(context.Context) (time.Duration, error) {
				return time.Second, nil
			})
			require.NoError(t, err)
			assert.Equal(t, refuses, l.Statistics().AvailablePermits == 1, name)
			time.Sleep(2 * time.Second)
			assert.EqualValues(t, 1, l.Statistics().AvailablePermits, name)
		}
	})
}

// With one header at a time and 50 bodies in use, the limiter must not take one for all that is in use: its limit follows
// that number.
func TestStrategy_CountsWhatIsHeldAsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: 1, InitialLimit: 60, MaxLimit: 100}))
		p := weir.Must(pipeline.New("partner", adaptive.New(l, nil)))
		for range 3000 {
			_, err := pipeline.ExecuteValue(bodies{Context: t.Context()}, p, func(context.Context) (time.Duration, error) {
				time.Sleep(10 * time.Millisecond)
				return time.Second, nil
			})
			require.NoError(t, err)
			time.Sleep(10 * time.Millisecond)
		}
		assert.Greater(t, l.Limit(), 50)
		time.Sleep(2 * time.Second)
	})
}

// A throttler lends nothing: what it has let through is counted with its result, and holds nothing.
func TestThrottler_LendsNothing(t *testing.T) {
	throttler := weir.Must(adaptive.NewThrottler(nil))
	own := weir.Must(adaptive.NewLimiter(nil))
	for name, c := range map[string]struct {
		limiter limiter.Limiter
		lends   bool
	}{
		"a throttler":                    {throttler, false},
		"a chain of it":                  {weir.Must(limiter.Chain(limiter.NewUnlimited(), throttler)), false},
		"an adaptive limiter":            {own, true},
		"a chain of an adaptive limiter": {weir.Must(limiter.Chain(throttler, own)), true},
	} {
		lease, err := c.limiter.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		assert.Equal(t, c.lends, lease.Lends(), name)
		lease.Succeeded()
		lease.Release()
	}
	assert.EqualValues(t, 20, own.Statistics().AvailablePermits)
	_, idle := throttler.IdleDuration()
	assert.False(t, idle, "it has counted the executions")
}
