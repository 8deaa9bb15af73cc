package weirredis

import (
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/testserver"
)

const benchGoroutines = 32

// benchBackend returns a Backend on a client with a connection for each goroutine.
func benchBackend(b *testing.B) *Backend {
	b.Helper()
	o, err := redis.ParseURL(testserver.Redis(b).URL)
	require.NoError(b, err)
	o.PoolSize, o.MinIdleConns = benchGoroutines, benchGoroutines
	client := redis.NewClient(o)
	b.Cleanup(func() { _ = client.Close() })
	return newTestBackend(b, client)
}

// parallel runs f in 32 goroutines.
func parallel(b *testing.B, f func(i int64) error) {
	b.Helper()
	b.ReportAllocs()
	b.SetParallelism(benchGoroutines / runtime.GOMAXPROCS(0))
	var next atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := f(next.Add(1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// benchBucket gives a permit a microsecond, so that nothing is rejected.
func benchBucket() *backend.Definition {
	limits := rate.Schedule{Kind: rate.TokenBucket, Permits: 1_000_000, Period: 1000, Refill: 1000}
	return backend.NewDefinition("bench", limits, 1_700_000_000_000_000)
}

func takeOne(d *backend.Definition, key string) *backend.Batch {
	return &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{{Min: 1, Max: 1}}, Granted: make([]int64, 1)}
}

func BenchmarkDecide(b *testing.B) {
	usual := func(*backend.Definition) {}
	sliding := func(d *backend.Definition) {
		d.Kind, d.Refill, d.Segments, d.Period, d.Permits = rate.SlidingWindow, 0, 10, 100_000, 1<<40
	}
	exhausted := func(d *backend.Definition) { d.Permits, d.Period, d.Refill = 1, 1<<40, 1 }
	for _, c := range []struct {
		name              string
		change            func(*backend.Definition)
		keys              int64
		batches, requests int // at once, and of each batch
	}{
		{"one key", usual, 1, 1, 1},
		{"10000 keys", usual, 10_000, 1, 1},
		{"sliding", sliding, 1, 1, 1},
		{"rejected", exhausted, 1, 1, 1},
		{"100 keys at once", usual, 100, 100, 1},
		{"100 requests at once", usual, 1, 1, 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			be, d := benchBackend(b), benchBucket()
			c.change(d)
			parallel(b, func(i int64) error {
				batches := make([]*backend.Batch, c.batches)
				for n := range batches {
					batches[n] = takeOne(d, strconv.FormatInt((i+int64(n))%c.keys, 10))
					batches[n].Requests = slices.Repeat(batches[n].Requests, c.requests)
				}
				return be.Decide(b.Context(), batches)
			})
		})
	}
}

// BenchmarkHold measures a lease that is acquired and released while no caller waits.
func BenchmarkHold(b *testing.B) {
	be := benchBackend(b)
	d := &backend.Definition{Name: "bench", Schedule: rate.Schedule{Kind: rate.Concurrency, Permits: 1000}, Version: 1}
	parallel(b, func(i int64) error {
		h := &backend.LeaseRequest{Definition: d, Key: "k", ID: strconv.FormatInt(i, 36), Permits: 1, TTL: 30_000_000}
		if err := be.Acquire(b.Context(), []*backend.LeaseRequest{h}); err != nil {
			return err
		}
		return be.Release(b.Context(), []*backend.LeaseRequest{h})
	})
}
