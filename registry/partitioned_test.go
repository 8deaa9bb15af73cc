package registry_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/registry"
)

func same(s string) string { return s }

// keyed defines a pipeline with a partitioned limiter whose options are *each and
// *o, and returns where the limiter can be seen.
func keyed[O limiter.Options](t *testing.T, r *registry.Registry, key *func(string) string, each *O, o *limiter.PartitionedOptions) **limiter.PartitionedLimiter[string, string] {
	t.Helper()
	var l *limiter.PartitionedLimiter[string, string]
	require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
		l = registry.Partitioned(b, "users", *key, *each, o)
		return nil
	}))
	return &l
}

// left is how many permits a user has.
func left(t *testing.T, l *limiter.PartitionedLimiter[string, string], user string) int {
	t.Helper()
	s, err := l.Statistics(user)
	require.NoError(t, err)
	return int(s.AvailablePermits)
}

func spend(t *testing.T, l *limiter.PartitionedLimiter[string, string], user string, n int) {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), user, n)
	require.NoError(t, err)
	require.True(t, lease.Acquired())
}

func TestPartitioned_KeptAndReconfigured(t *testing.T) {
	t.Run("token bucket", func(t *testing.T) { testPartitioned(t, bucketOptions) })
	t.Run("fixed window", func(t *testing.T) { testPartitioned(t, windowOptions) })
	t.Run("sliding window", func(t *testing.T) { testPartitioned(t, slidingOptions) })
	t.Run("concurrency", func(t *testing.T) { testPartitioned(t, one) })
}

func testPartitioned[O limiter.Options](t *testing.T, options func(int) O) {
	r := open(t, nil)
	key, each, o := same, options(10), limiter.PartitionedOptions{IdleTimeout: time.Hour}
	l := keyed(t, r, &key, &each, &o)
	get(t, r, "orders")
	first := *l
	spend(t, first, "ann", 7)
	spend(t, first, "bob", 2)

	require.NoError(t, r.Reload(t.Context()))
	require.Same(t, first, *l)
	assert.Equal(t, []int{3, 8}, []int{left(t, first, "ann"), left(t, first, "bob")})

	each = options(8)
	require.NoError(t, r.Reload(t.Context()))
	require.Same(t, first, *l)
	spend(t, first, "new", 1)
	assert.Equal(t, []int{1, 6, 7}, []int{left(t, first, "ann"), left(t, first, "bob"), left(t, first, "new")})

	each = options(20)
	o.MaxPartitions = 3
	require.NoError(t, r.Reload(t.Context()))
	require.Same(t, first, *l)
	assert.Equal(t, []int{13, 18, 19}, []int{left(t, first, "ann"), left(t, first, "bob"), left(t, first, "new")})
	lease, err := first.TryAcquire(t.Context(), "one too many", 1)
	require.NoError(t, err)
	assert.Equal(t, limiter.ReasonPartitionLimit, lease.Reason())

	require.NoError(t, r.Close(t.Context()))
	_, err = first.TryAcquire(t.Context(), "ann", 1)
	assert.ErrorIs(t, err, limiter.ErrClosed)
}

// A page that knows only the key's text can ask for it, also before the first call and after a reload.
func TestPartitioned_PeekKey(t *testing.T) {
	r := open(t, nil)
	each := bucketOptions(2)
	require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
		registry.Partitioned(b, "users", strconv.Itoa, each, nil)
		return nil
	}))
	peek := func(n int) limiter.Lease {
		for _, info := range r.Limiters() {
			lease, err := info.Limiter.(custom.KeyPeeker).PeekKey(t.Context(), "7", n)
			require.NoError(t, err)
			return lease
		}
		t.Fatal("no limiter")
		return limiter.Lease{}
	}
	require.True(t, peek(2).Acquired())
	each = bucketOptions(3)
	require.NoError(t, r.Reload(t.Context(), "orders"))
	require.True(t, peek(3).Acquired())
}

func TestPartitioned_KeyFunctionIsReplaced(t *testing.T) {
	r := open(t, nil)
	key, each, o := same, bucketOptions(10), limiter.PartitionedOptions{}
	l := keyed(t, r, &key, &each, &o)
	get(t, r, "orders")
	spend(t, *l, "ann", 7)
	key = strings.ToLower
	require.NoError(t, r.Reload(t.Context()))
	spend(t, *l, "ANN", 1)
	assert.Equal(t, 2, left(t, *l, "ann"))
	assert.Equal(t, 1, (*l).Len())
}

// A build that fails leaves the key function alone, and the options.
func TestPartitioned_FailedBuild(t *testing.T) {
	r := open(t, nil)
	fail := false
	var l *limiter.PartitionedLimiter[string, string]
	require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
		if fail {
			registry.Partitioned(b, "users", strings.ToLower, bucketOptions(99), nil)
			return errBoom
		}
		l = registry.Partitioned(b, "users", same, bucketOptions(10), nil)
		return nil
	}))
	spend(t, l, "ANN", 1)
	fail = true
	require.ErrorIs(t, r.Reload(t.Context()), errBoom)
	spend(t, l, "ANN", 1)
	assert.Equal(t, 8, left(t, l, "ANN"))
}

func TestPartitioned_InvalidOptions(t *testing.T) {
	for field, f := range map[string]func(b *registry.Builder){
		"key must not be nil": func(b *registry.Builder) {
			registry.Partitioned[string, string](b, "users", nil, bucketOptions(1), nil)
		},
		"TokenLimit": func(b *registry.Builder) {
			registry.Partitioned(b, "users", same, bucketOptions(0), nil)
		},
		"MaxPartitions": func(b *registry.Builder) {
			registry.Partitioned(b, "users", same, bucketOptions(1), &limiter.PartitionedOptions{MaxPartitions: -2})
		},
	} {
		r := open(t, nil)
		err := r.Define("orders", func(b *registry.Builder) error { f(b); return nil })
		assert.ErrorIs(t, err, limiter.ErrInvalidOptions)
		assert.ErrorContains(t, err, `"users"`)
		assert.ErrorContains(t, err, field)
	}
}

// Another type of key, of resource or of limiter is another limiter, also where
// two types have the same name.
func TestPartitioned_OtherTypes(t *testing.T) {
	type user string
	var o *limiter.PartitionedOptions
	asked := []registry.BuildFunc{
		func(b *registry.Builder) error {
			registry.Partitioned(b, "users", same, bucketOptions(1), o)
			return nil
		},
		func(b *registry.Builder) error {
			registry.Partitioned(b, "users", same, windowOptions(1), o)
			return nil
		},
		func(b *registry.Builder) error {
			registry.Partitioned(b, "users", func(s string) user { return user(s) }, bucketOptions(1), o)
			return nil
		},
		func(b *registry.Builder) error {
			type user string
			registry.Partitioned(b, "users", func(s string) user { return user(s) }, bucketOptions(1), o)
			return nil
		},
		func(b *registry.Builder) error {
			registry.Partitioned(b, "users", func(u user) string { return string(u) }, bucketOptions(1), o)
			return nil
		},
	}
	r := open(t, &registry.Options{DrainTimeout: -1})
	now := 0
	p := define(t, r, "orders", func(b *registry.Builder) error { return asked[now](b) })
	for now = range asked {
		end := hold(t, p) // keeps the old one
		defer end()
		require.NoError(t, r.Reload(t.Context()))
		assert.Equal(t, now+1, r.OwnedLimiters())
	}
}

// While the limits change partitions are made; when the reload has returned every one
// of them has the new limits, whenever it was made, and so has each that is made later.
func TestPartitioned_ReconfiguredWhileMadeConcurrentSafe(t *testing.T) {
	r := open(t, nil)
	key, each, o := same, bucketOptions(1), limiter.PartitionedOptions{IdleTimeout: time.Hour}
	l := keyed(t, r, &key, &each, &o)
	get(t, r, "orders")
	first := *l
	check := func(want int) {
		t.Helper()
		for user, l := range first.All() {
			if got := l.(*limiter.TokenBucket).Limits().Permits; got != want {
				t.Errorf("user %s has a limit of %d, not %d", user, got, want)
			}
		}
	}
	for n := 2; n < 60; n++ {
		var wg sync.WaitGroup
		for g := range 2 {
			wg.Go(func() {
				for i := range 40 {
					_, err := first.TryAcquire(t.Context(), fmt.Sprint(n, g, i), 0)
					assert.NoError(t, err)
				}
			})
		}
		each = bucketOptions(n)
		require.NoError(t, r.Reload(t.Context()))
		check(n)
		wg.Wait()
		check(n)
	}
	assert.Equal(t, 58*2*40, first.Len())
}
