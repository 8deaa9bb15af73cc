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

// goroutines is how many ask at the same time; each contender has as many connections.
const goroutines = 32

// A remote is a contender whose state is in a server.
type remote struct {
	name string
	// want is the answer that every call must get; anything is for contenders that fail under load, which is reported.
	want answer
	// local: hardly a call leaves the process, so that two looks at the clock would be most of it: one of 61 is timed.
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
		keys := make([]string, n)
		for i := range keys {
			keys[i] = keyName(i)
		}
		for _, c := range contenders {
			b.Run(fmt.Sprintf("keys=%d/by=%s", n, c.name), func(b *testing.B) {
				call := c.open(b, keys)
				b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) { c.swarm(b, keys, call) })
				if c.local {
					b.Run("goroutines=1", func(b *testing.B) { c.solo(b, keys[0], call) })
				}
			})
		}
	}
}

// seen asks for each key once, so that nothing is new when the clock runs.
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

// swarm shares b.N between the goroutines.
func (c remote) swarm(b *testing.B, keys []string, call func(key string) (bool, error)) {
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

// solo measures one call at a time, without other callers.
func (c remote) solo(b *testing.B, key string, call func(key string) (bool, error)) {
	alone(b, func() bool {
		granted, err := call(key)
		return err == nil && granted == (c.want == granting)
	})
}

// report gives the throughput, or fails the run where not every answer was as it must be.
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
