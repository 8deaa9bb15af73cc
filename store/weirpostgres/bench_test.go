package weirpostgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
)

const (
	clients  = 32
	manyKeys = 10_000
)

// benchPool has a connection for each client.
func benchPool(b *testing.B) *pgxpool.Pool {
	return connect(b, postgres(b).URL, func(c *pgxpool.Config) { c.MaxConns = clients })
}

// parallel runs op from as many goroutines as there are clients, and reports operations in a second.
func parallel(b *testing.B, op func() error) {
	b.SetParallelism((clients + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := op(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

func key(n int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }

// oneOf returns a function that picks a key.
func oneOf(n int) func() string { return func() string { return key(rand.IntN(n)) } }

// fixed makes the definition the same each time that a benchmark is run again with a larger b.N, and stores it.
func fixed(b *testing.B, be *Backend, d *backend.Definition) *backend.Definition {
	d.Version, d.Anchor = 1, 0
	_, err := be.Define(b.Context(), 0, d)
	require.NoError(b, err)
	return d
}

func BenchmarkDecide(b *testing.B) {
	pool := benchPool(b)
	schema := freshSchema(b, pool)
	for _, keys := range []int{1, manyKeys} {
		for _, async := range []bool{false, true} {
			b.Run(fmt.Sprintf("keys=%d/async=%v", keys, async), func(b *testing.B) {
				be := newBackend(b, pool, BackendOptions{Schema: schema, AsynchronousCommit: async})
				d := fixed(b, be, bucket(b, be, "bench", 1<<40, 1000, 1000))
				pick := oneOf(keys)
				parallel(b, func() error { return be.Decide(context.Background(), []*backend.Batch{take(d, pick(), 1)}) })
			})
		}
	}
	b.Run("rejected", func(b *testing.B) {
		be := newBackend(b, pool, BackendOptions{Schema: schema})
		d := fixed(b, be, bucket(b, be, "none left", 1, 1, 1<<50))
		require.NoError(b, be.Decide(b.Context(), []*backend.Batch{take(d, "", 1)}))
		parallel(b, func() error { return be.Decide(context.Background(), []*backend.Batch{take(d, "", 1)}) })
	})
	b.Run("100 asks of one key", func(b *testing.B) {
		be := newBackend(b, pool, BackendOptions{Schema: schema})
		d := fixed(b, be, bucket(b, be, "coalesced", 1<<40, 1000, 1000))
		asks := make([]backend.Request, 100)
		for i := range asks {
			asks[i] = backend.Request{Min: 1, Max: 1}
		}
		parallel(b, func() error {
			return be.Decide(context.Background(), []*backend.Batch{{Definition: d, Requests: asks}})
		})
	})
	b.Run("100 keys", func(b *testing.B) {
		be := newBackend(b, pool, BackendOptions{Schema: schema})
		d := fixed(b, be, bucket(b, be, "many", 1<<40, 1000, 1000))
		parallel(b, func() error {
			batches := make([]*backend.Batch, 100)
			first := rand.IntN(manyKeys)
			for i := range batches {
				batches[i] = take(d, key(first+i), 1)
			}
			return be.Decide(context.Background(), batches)
		})
	})
}

// BenchmarkHold is a Hold and its Release.
func BenchmarkHold(b *testing.B) {
	pool := benchPool(b)
	schema := freshSchema(b, pool)
	for _, keys := range []int{1, manyKeys} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			be := newBackend(b, pool, BackendOptions{Schema: schema})
			d := fixed(b, be, concurrency(b, be, "bench", 1000))
			pick := oneOf(keys)
			parallel(b, func() error { return pair(be, d, pick()) })
		})
	}
}

func pair(be *Backend, d *backend.Definition, key string) error {
	h := &backend.LeaseRequest{Definition: d, Key: key, ID: fmt.Sprint(rand.Uint64()), Permits: 1, TTL: 60_000_000}
	if err := be.Acquire(context.Background(), []*backend.LeaseRequest{h}); err != nil || !h.OK {
		return fmt.Errorf("hold: ok %v, %w", h.OK, err)
	}
	return be.Release(context.Background(), []*backend.LeaseRequest{h})
}
