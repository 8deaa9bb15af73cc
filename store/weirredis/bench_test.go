package weirredis

import (
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testserver"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
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
	for _, keys := range []int64{1, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			be := benchBackend(b)
			d := benchBucket()
			parallel(b, func(i int64) error {
				batch := takeOne(d, strconv.FormatInt(i%keys, 10))
				return be.Decide(b.Context(), []*backend.Batch{batch})
			})
		})
	}
	b.Run("sliding", func(b *testing.B) {
		be := benchBackend(b)
		d := benchBucket()
		d.Kind, d.Refill, d.Segments, d.Period, d.Permits = rate.SlidingWindow, 0, 10, 100_000, 1<<40
		parallel(b, func(int64) error {
			return be.Decide(b.Context(), []*backend.Batch{takeOne(d, "k")})
		})
	})
	b.Run("rejected", func(b *testing.B) {
		be := benchBackend(b)
		d := benchBucket()
		d.Permits, d.Period, d.Refill = 1, 1<<40, 1
		parallel(b, func(int64) error {
			return be.Decide(b.Context(), []*backend.Batch{takeOne(d, "k")})
		})
	})
}

// 100 keys, or 100 asks of one key, in one round trip.
func BenchmarkDecideMany(b *testing.B) {
	b.Run("keys", func(b *testing.B) {
		be := benchBackend(b)
		d := benchBucket()
		parallel(b, func(int64) error {
			batches := make([]*backend.Batch, 100)
			for i := range batches {
				batches[i] = takeOne(d, strconv.Itoa(i))
			}
			return be.Decide(b.Context(), batches)
		})
	})
	b.Run("asks", func(b *testing.B) {
		be := benchBackend(b)
		d := benchBucket()
		parallel(b, func(int64) error {
			batch := &backend.Batch{Definition: d, Key: "k", Requests: make([]backend.Request, 100)}
			for i := range batch.Requests {
				batch.Requests[i] = backend.Request{Min: 1, Max: 1, IfPrevious: i > 0}
			}
			return be.Decide(b.Context(), []*backend.Batch{batch})
		})
	})
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
