package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goroutines is how many goroutines ask at the same time. Each contender has as many connections.
const goroutines = 32

// A remote is a contender whose state is in a server.
type remote struct {
	name string
	// want is the answer that every call must get. It is anything for contenders that fail under load; how often is
	// reported.
	want answer
	// local says that hardly a call leaves the process. One call in 61 is timed, because reading the clock twice would take
	// most of the time.
	local bool
	// open makes new state and returns the function of one call.
	open func(b *testing.B, keys []string) func(key string) (bool, error)
}

type answer uint8

const (
	granting answer = iota
	rejecting
	anything
)

// compareRemotely runs every contender on one hot key and on 10,000 keys drawn at random, all seen before.
func compareRemotely(b *testing.B, contenders []remote) {
	many := 10_000
	if testing.Short() {
		many = 10
	}
	for _, n := range []int{1, many} {
		keys := keyNames(n)
		for _, c := range contenders {
			b.Run(fmt.Sprintf("keys=%d/by=%s", n, c.name), func(b *testing.B) {
				call := c.open(b, keys)
				b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) { c.together(b, keys, call) })
				if n == 1 && c.want != anything {
					b.Run("goroutines=1", func(b *testing.B) { c.alone(b, keys[0], call) })
				}
			})
		}
	}
}

// seen asks for each key once, before the time is measured.
func seen(b *testing.B, keys []string, call func(key string) (bool, error)) func(key string) (bool, error) {
	b.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	for part := range slices.Chunk(keys, max(1, len(keys)/goroutines)) {
		wg.Go(func() {
			for _, key := range part {
				_, err := call(key)
				assert.NoError(b, err)
			}
		})
	}
	return call
}

// together shares b.N between the goroutines.
func (c remote) together(b *testing.B, keys []string, call func(key string) (bool, error)) {
	b.ReportAllocs()
	var next, granted, failed atomic.Int64
	var firstErr atomic.Pointer[error]
	share := int64(max(1, min(b.N/goroutines/16, 1000)))
	times := make([]histogram, goroutines)
	work := func(h *histogram) {
		random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		var ok, errs int64
		for from := next.Add(share) - share; from < int64(b.N); from = next.Add(share) - share {
			for i := from; i < min(from+share, int64(b.N)); i++ {
				key := keys[random.Uint64N(uint64(len(keys)))]
				timed := !c.local || i%61 == 0
				var start time.Time
				if timed {
					start = time.Now()
				}
				was, err := call(key)
				if timed {
					h.add(time.Since(start))
				}
				switch {
				case err != nil:
					errs++
					escaping := err // err itself would be allocated for each call
					firstErr.CompareAndSwap(nil, &escaping)
				case was:
					ok++
				}
			}
		}
		granted.Add(ok)
		failed.Add(errs)
	}
	var wg sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for i := range goroutines {
		wg.Go(func() { work(&times[i]) })
	}
	wg.Wait()
	took := time.Since(start)
	b.StopTimer()
	c.report(b, took, granted.Load(), failed.Load(), firstErr.Load())
	for i := range times[1:] {
		times[0].merge(&times[i+1])
	}
	b.ReportMetric(float64(times[0].quantile(0.5).Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(times[0].quantile(0.99).Nanoseconds()), "p99-ns")
}

// alone measures one call at a time, without other callers.
func (c remote) alone(b *testing.B, key string, call func(key string) (bool, error)) {
	alone(b, func() bool {
		granted, err := call(key)
		return err == nil && granted == (c.want == granting)
	})
}

// report reports the throughput. It fails the run if an answer is not the wanted one.
func (c remote) report(b *testing.B, took time.Duration, granted, failed int64, err *error) {
	n := int64(b.N)
	b.ReportMetric(float64(n)/took.Seconds(), "ops/s")
	if c.want == anything {
		b.ReportMetric(float64(granted)/took.Seconds(), "granted/s")
		b.ReportMetric(100*float64(failed)/float64(n), "failed-%")
		return
	}
	if err != nil {
		b.Fatalf("%d of %d calls failed, one with: %v", failed, n, *err)
	}
	want := map[answer]int64{granting: n, rejecting: 0}[c.want]
	require.Equal(b, want, granted, "granted")
}
