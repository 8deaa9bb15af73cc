package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/weir-go/weir/limiter"
)

// A store holds a token bucket for each key and makes it when the key is first seen.
type store struct {
	try   func(key string) bool
	close func()
}

// A storeContender is one way to limit by key.
type storeContender struct {
	name string
	open func(b *testing.B) store
}

var (
	bucketOptions = limiter.TokenBucketOptions{TokenLimit: plenty, TokensPerPeriod: plenty, ReplenishmentPeriod: time.Second}
	windowOptions = limiter.FixedWindowOptions{PermitLimit: plenty, Window: time.Second}
)

// stores are the contenders of the keyed benchmarks. No contender forgets a key while they run.
var stores = []storeContender{
	{"weir-partitioned", partitionedStore(limiter.FactoryFor[string](bucketOptions), noBound)},
	{"go-limiter", goLimiterStore(memorystore.Config{Tokens: plenty, Interval: time.Second})},
	{"x-time-rate-map", rateMapStore(plenty)},
}

// noBound keeps every key for longer than any benchmark runs.
var noBound = limiter.PartitionedOptions{IdleTimeout: time.Hour}

func partitionedStore(factory limiter.Factory[string], o limiter.PartitionedOptions) func(b *testing.B) store {
	return func(b *testing.B) store {
		p := newPartitioned(b, factory, o)
		return store{
			try: func(key string) bool {
				lease, err := p.TryAcquire(ctx, key, 1)
				return err == nil && lease.Acquired()
			},
			close: func() {
				if err := p.Close(); err != nil {
					b.Error(err)
				}
			},
		}
	}
}

func newPartitioned(b *testing.B, factory limiter.Factory[string], o limiter.PartitionedOptions) *limiter.PartitionedLimiter[string, string] {
	b.Helper()
	p, err := limiter.NewPartitioned(func(key string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: key, New: factory}
	}, &o)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func goLimiterStore(c memorystore.Config) func(b *testing.B) store {
	return func(b *testing.B) store {
		s, err := memorystore.New(&c)
		if err != nil {
			b.Fatal(err)
		}
		return store{
			try: func(key string) bool {
				_, _, _, ok, err := s.Take(ctx, key)
				return err == nil && ok
			},
			close: func() {
				if err := s.Close(ctx); err != nil {
					b.Error(err)
				}
			},
		}
	}
}

// rateMapStore is a map of x/time/rate limiters, as programs write it by hand. It never forgets a key.
func rateMapStore(limit rate.Limit) func(b *testing.B) store {
	return func(*testing.B) store {
		var mu sync.RWMutex
		limiters := map[string]*rate.Limiter{}
		find := func(key string) *rate.Limiter {
			mu.RLock()
			l := limiters[key]
			mu.RUnlock()
			if l != nil {
				return l
			}
			mu.Lock()
			defer mu.Unlock()
			if l = limiters[key]; l == nil {
				l = rate.NewLimiter(limit, plenty)
				limiters[key] = l
			}
			return l
		}
		return store{
			try:   func(key string) bool { return find(key).Allow() },
			close: func() { clear(limiters) },
		}
	}
}

// keyName returns a new string each time, as the key of a request is a new string.
func keyName(i int) string { return fmt.Sprintf("user:%07d", i) }
