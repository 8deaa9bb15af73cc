package registry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
)

func TestSharedPartitioned_Kept(t *testing.T) {
	t.Run("token bucket", func(t *testing.T) { testSharedPartitioned(t, bucketOptions) })
	t.Run("fixed window", func(t *testing.T) { testSharedPartitioned(t, windowOptions) })
	t.Run("sliding window", func(t *testing.T) { testSharedPartitioned(t, slidingOptions) })
	t.Run("concurrency", func(t *testing.T) { testSharedPartitioned(t, one) })
}

func testSharedPartitioned[O limiter.Options](t *testing.T, options func(int) O) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		observed := 0
		r := open(t, &registry.Options{ObserveLimiter: func(string, limiter.StatisticsProvider) func() {
			observed++
			return nil
		}})
		limit := 10
		var l *store.Partitioned
		require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
			l = registry.SharedPartitioned(b, c.s, "users", options(limit), nil)
			return nil
		}))
		first := l
		left := func(user string) int {
			st, err := first.Statistics(user)
			require.NoError(t, err)
			return int(st.AvailablePermits)
		}
		for user, n := range map[string]int{"ann": 7, "bob": 2} {
			lease, err := first.TryAcquire(t.Context(), user, n)
			require.NoError(t, err)
			require.True(t, lease.Acquired())
		}
		limit = 8
		require.NoError(t, r.Reload(t.Context()))
		synctest.Wait()
		require.Same(t, first, l)
		assert.Equal(t, []int{1, 6, 8}, []int{left("ann"), left("bob"), left("new")})
		assert.Zero(t, observed, "it has no statistics as a whole")

		require.NoError(t, r.Close(t.Context()))
		_, err := first.TryAcquire(t.Context(), "ann", 1)
		assert.ErrorIs(t, err, limiter.ErrClosed)
	})
}

// Each look at the statistics is a round trip, but not while the store is unavailable.
func TestShared_ObserveLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t)
		var look func() limiter.Statistics
		stopped := false
		r := open(t, &registry.Options{ObserveLimiter: func(name string, l limiter.StatisticsProvider) func() {
			assert.Equal(t, "l", name)
			look = l.Statistics
			return func() { stopped = true }
		}})
		w := &wants[limiter.TokenBucketOptions]{s: c.s, o: bucketOptions(10)}
		require.NoError(t, r.Define("orders", w.build))
		assert.Zero(t, c.Calls(), "no statistics yet")
		isTaken(t, w.got, 3)
		assert.EqualValues(t, 7, look().AvailablePermits)
		before := c.Calls("Decide")
		look()
		assert.Equal(t, before+1, c.Calls("Decide"))

		c.Fail(errBoom)
		for range 100 {
			look()
		}
		assert.LessOrEqual(t, c.Calls("Decide"), before+1+3, "then the store counts as away")
		c.Fail(nil)
		time.Sleep(5 * time.Second)
		require.NoError(t, r.Close(t.Context()))
		assert.True(t, stopped)
	})
}
