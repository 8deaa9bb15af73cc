package weirpostgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
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
	for _, c := range []struct {
		name              string
		permits, period   int64
		keys              int
		batches, requests int // at once, and of each batch
		async             bool
	}{
		{"one key", 1 << 40, 1000, 1, 1, 1, false},
		{"one key, asynchronous", 1 << 40, 1000, 1, 1, 1, true},
		{"10000 keys", 1 << 40, 1000, manyKeys, 1, 1, false},
		{"10000 keys, asynchronous", 1 << 40, 1000, manyKeys, 1, 1, true},
		{"rejected", 1, 1 << 50, 1, 1, 1, false},
		{"100 keys at once", 1 << 40, 1000, manyKeys, 100, 1, false},
		{"100 requests at once", 1 << 40, 1000, 1, 1, 100, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			be := newBackend(b, pool, BackendOptions{Schema: schema, AsynchronousCommit: c.async})
			d := fixed(b, be, bucket(b, be, c.name, c.permits, 1000, c.period))
			parallel(b, func() error {
				batches := make([]*backend.Batch, c.batches)
				first := rand.IntN(c.keys)
				for i := range batches {
					batches[i] = take(d, key(first+i), 1)
					batches[i].Requests = slices.Repeat(batches[i].Requests, c.requests)
				}
				return be.Decide(context.Background(), batches)
			})
		})
	}
}

// BenchmarkHold is a Hold and its Release.
func BenchmarkHold(b *testing.B) {
	pool := benchPool(b)
	schema := freshSchema(b, pool)
	for _, keys := range []int{1, manyKeys} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			be := newBackend(b, pool, BackendOptions{Schema: schema})
			d := fixed(b, be, concurrency(b, be, "bench", 1000))
			parallel(b, func() error { return pair(be, d, key(rand.IntN(keys))) })
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
