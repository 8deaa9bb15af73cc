package bench

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
)

// BenchmarkFlood floods a limiter that has MaxPartitions keys with keys that it has never seen.
func BenchmarkFlood(b *testing.B) {
	for _, most := range []int{1_000, 100_000, 1_000_000} {
		for _, idle := range []bool{true, false} {
			for _, c := range floodedBy(idle) {
				b.Run(fmt.Sprintf("max=%d/idle=%v/by=%s", most, idle, c.name), func(b *testing.B) {
					skipLarge(b, most)
					(&flood{b: b, most: most, idle: idle, factory: c.factory}).run()
				})
			}
		}
	}
}

type flooded struct {
	name    string
	factory limiter.Factory[string]
}

// floodedBy returns limiters whose keys are idle again after a microsecond, so that they make room for new keys, even
// if there are only 1,000 of them. If idle is false, no key is idle during the flood.
func floodedBy(idle bool) []flooded {
	bucket := limiter.TokenBucketOptions{TokenLimit: plenty, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
	window := limiter.FixedWindowOptions{PermitLimit: plenty, Window: 1000 * time.Hour}
	if idle {
		bucket.TokensPerPeriod, bucket.ReplenishmentPeriod = plenty, time.Microsecond
		window.Window = time.Microsecond
	}
	return []flooded{
		{"weir-token-bucket", limiter.FactoryFor[string](bucket)},
		{"weir-fixed-window", limiter.FactoryFor[string](window)},
	}
}

// A flood asks for one new key after the other.
type flood struct {
	b       *testing.B
	most    int
	idle    bool
	factory limiter.Factory[string]
	next    int // the number of the next new key
}

// run fills a limiter and floods it. It reports how long the calls of the flood took, and how long calls for a known
// key took while another goroutine flooded. The time of a call includes one reading of the clock.
func (f *flood) run() {
	b := f.b
	o := noBound
	o.MaxPartitions = f.most
	p := newPartitioned(b, f.factory, o)
	defer func() { check(b, p.Close()) }()
	known := f.newKey()
	f.take(p, known)
	for range f.most - 1 {
		f.take(p, f.newKey())
	}
	runtime.GC()

	calls := 50_000
	if testing.Short() {
		calls = 500
	}
	var alone, beside times
	for b.Loop() {
		keys := make([]string, calls)
		for i := range keys {
			keys[i] = f.newKey()
		}
		alone.begin()
		for _, key := range keys {
			f.ask(p, key)
			alone.lap()
		}
		alone.end(calls)
		f.beside(p, known, calls, &beside)
	}
	alone.report(b, "")
	beside.report(b, "known-")
	b.ReportMetric(0, "ns/op") // it would be the time of a whole flood
}

func (f *flood) newKey() string {
	f.next++
	return keyName(f.next)
}

func (f *flood) take(p *limiter.PartitionedLimiter[string, string], key string) {
	if lease, err := p.TryAcquire(ctx, key, 1); err != nil || !lease.Acquired() {
		f.b.Errorf("%v: %v %v", key, lease, err)
	}
}

// ask asks for a new key. It is rejected if no partition is idle.
func (f *flood) ask(p *limiter.PartitionedLimiter[string, string], key string) {
	if lease, err := p.TryAcquire(ctx, key, 1); err != nil || lease.Acquired() != f.idle {
		f.b.Errorf("%v: %v %v", key, lease, err)
	}
}

// beside times calls for a known key while another goroutine floods, one after each call of the flood.
func (f *flood) beside(p *limiter.PartitionedLimiter[string, string], key string, calls int, known *times) {
	var flooded atomic.Int64 // calls of the flood
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !done.Load() {
			f.ask(p, f.newKey())
			flooded.Add(1)
		}
	})
	known.begin()
	for i := range calls {
		for flooded.Load() <= int64(i) {
			runtime.Gosched()
		}
		start := time.Now()
		f.take(p, key)
		known.add(time.Since(start))
	}
	done.Store(true)
	wg.Wait()
	known.end(calls)
}

// times collects how long the calls of each flood took.
type times struct {
	last    time.Time
	current []time.Duration
	mean    time.Duration
	tenth   []time.Duration // the tenth longest of each flood
	floods  int
}

func (t *times) begin() {
	t.current = t.current[:0]
	t.last = time.Now()
}

// lap adds a call that began when the one before it ended.
func (t *times) lap() {
	now := time.Now()
	t.add(now.Sub(t.last))
	t.last = now
}

func (t *times) add(d time.Duration) { t.current = append(t.current, d) }

func (t *times) end(calls int) {
	var sum time.Duration
	for _, d := range t.current {
		sum += d
	}
	t.mean += sum / time.Duration(calls)
	slices.Sort(t.current)
	t.tenth = append(t.tenth, t.current[len(t.current)-10])
	t.floods++
}

// report reports the mean of all calls, and the median over the floods of the tenth longest call.
func (t *times) report(b *testing.B, prefix string) {
	slices.Sort(t.tenth)
	b.ReportMetric(float64(t.mean)/float64(t.floods), prefix+"ns/key")
	b.ReportMetric(float64(t.tenth[len(t.tenth)/2]), prefix+"tenth-longest-ns")
}
