package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// BenchmarkRegistryReload reloads a registry so that a limiter of 500,000 keys gets new limits. Meanwhile another
// goroutine, every 20 µs, gets a pipeline, builds one with a limiter, reloads such a pipeline, or asks for a permit of
// a key. longest-ns is the longest of these calls during a reload, the median over all reloads; reload-ns is how long a
// reload takes, after which every key must have the new limits.
func BenchmarkRegistryReload(b *testing.B) {
	keys := 500_000
	if testing.Short() {
		keys = 10_000
	}
	for _, call := range []string{"get", "build", "reload", "key"} {
		b.Run(fmt.Sprintf("keys=%d/call=%s/by=weir", keys, call), func(b *testing.B) {
			r := newReloaded(b, keys)
			defer func() { check(b, r.registry.Close(ctx)) }()
			calls := map[string]func(){"get": r.get, "build": r.build, "reload": r.reloadAnother, "key": r.key}
			var longest, reloads []time.Duration
			for b.Loop() {
				done := make(chan time.Duration)
				var over atomic.Bool
				go func() { done <- longestUntil(&over, calls[call]) }()
				time.Sleep(time.Millisecond) // until it has begun

				start := time.Now()
				r.reload()
				reloads = append(reloads, time.Since(start))
				r.mustHold()
				over.Store(true)
				longest = append(longest, <-done)
				r.clean()
			}
			b.ReportMetric(float64(median(longest)), "longest-ns")
			b.ReportMetric(float64(median(reloads)), "reload-ns")
			b.ReportMetric(0, "ns/op") // it would be the time of a whole round
		})
	}
}

func longestUntil(over *atomic.Bool, call func()) (longest time.Duration) {
	for !over.Load() {
		start := time.Now()
		call()
		longest = max(longest, time.Since(start))
		time.Sleep(20 * time.Microsecond)
	}
	return longest
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// reloaded is a registry with a pipeline that is limited by key.
type reloaded struct {
	b        *testing.B
	registry *registry.Registry
	perKey   *limiter.PartitionedLimiter[string, string]
	keys     []string
	limit    int      // of each key, from the next reload on
	built    []string // the pipelines that build has defined
}

func newReloaded(b *testing.B, keys int) *reloaded {
	r := &reloaded{b: b, registry: registry.New(nil), keys: keyNames(keys), limit: plenty}
	check(b, r.registry.Define("api", func(b *registry.Builder) error {
		o := limiter.TokenBucketOptions{TokenLimit: r.limit, TokensPerPeriod: 1, ReplenishmentPeriod: 1000 * time.Hour}
		perKey := registry.Partitioned(b, "user", func(key string) string { return key }, o, &noBound)
		if r.perKey == nil { // a reload keeps it, and others read it meanwhile
			r.perKey = perKey
		}
		b.Add(ratelimit.NewPartitioned(perKey, func(context.Context) string { return "" }, nil))
		return nil
	}))
	r.get()
	r.build()
	for _, key := range r.keys {
		r.take(key)
	}
	runtime.GC()
	return r
}

func (r *reloaded) get() {
	_, err := r.registry.Get("api")
	r.must(err)
}

func (r *reloaded) build() {
	name := fmt.Sprint("other-", len(r.built))
	r.must(r.registry.Define(name, func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.TokenBucket(name, bucketOptions), nil))
		return nil
	}))
	_, err := r.registry.Get(name)
	r.must(err)
	r.built = append(r.built, name)
}

func (r *reloaded) reloadAnother() { r.must(r.registry.Reload(ctx, r.built[0])) }

// key asks for a key that mustHold does not check.
func (r *reloaded) key() { r.take("another") }

func (r *reloaded) take(key string) {
	lease, err := r.perKey.TryAcquire(ctx, key, 1)
	r.must(err)
	if !lease.Acquired() {
		r.b.Errorf("%v: %v", key, lease)
	}
}

func (r *reloaded) must(err error) {
	if err != nil {
		r.b.Error(err)
	}
}

// reload lowers the limit of each key.
func (r *reloaded) reload() {
	r.limit--
	r.must(r.registry.Reload(ctx, "api"))
}

// mustHold checks that each key has the new limit, of which one permit is taken.
func (r *reloaded) mustHold() {
	for _, key := range r.keys {
		s, err := r.perKey.Statistics(key)
		r.must(err)
		if s.AvailablePermits != int64(r.limit-1) {
			r.b.Fatalf("%v has %d permits, not %d", key, s.AvailablePermits, r.limit-1)
		}
	}
}

// clean removes the pipelines that build has defined, except for the first.
func (r *reloaded) clean() {
	r.must(r.registry.Remove(ctx, r.built[1:]...))
	r.built = r.built[:1]
}
