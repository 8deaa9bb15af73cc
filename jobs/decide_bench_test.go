package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/jobs/internal/window"
)

// benchmarkBatch is how many asks a transaction has.
func benchmarkBatch() int64 {
	if testing.Short() {
		return 100
	}
	return maxBatch
}

// BenchmarkDecide is the cost of a transaction of 1000 asks without the database: reading the rows, deciding, and writing
// the states of windows. One operation is the whole batch.
func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name  string
		setup func(m *memory) func(i int64) *request
	}{
		{"fixed window, 40 a second", func(m *memory) func(int64) *request {
			m.set(Definition{FixedWindow: "w", Limit: 40, Interval: time.Second})
			return func(i int64) *request { return m.job(i, m.fixed("w")) }
		}},
		{"semaphore of 1000, held, 1000 wait, 1000 come", func(m *memory) func(int64) *request {
			m.set(Definition{Semaphore: "s", MaxCount: 1000})
			n := m.semaphore("s")
			for i := range int64(1000) {
				id := holderID{m.id(n.ref), fmt.Sprint("owner ", i), -1 - i}
				m.holders[id] = &memoryHolder{holderRow: holderRow{holderID: id, Mode: keptRow}, acquired: m.now - i*second}
			}
			m.key(n.ref).hold = 100 * second
			m.waits(n, 1, 1000)
			return func(i int64) *request { return m.job(i+1000, n) }
		}},
		{"20 mutexes each, granted, 20000 rows of waiters", func(m *memory) func(int64) *request {
			needs := func(i int64) (ns []need) {
				for k := range 20 {
					n := m.mutex(fmt.Sprint("m", k))
					n.ref.Key = fmt.Sprint(i)
					ns = append(ns, n)
				}
				return ns
			}
			for i := range int64(1000) {
				for _, n := range needs(i + 1) {
					m.waits(n, i+1, 1)
				}
			}
			return func(i int64) *request { return m.job(i, needs(i)...) }
		}},
		{"window of 1000 buckets, 1000 with places come too early", func(m *memory) func(int64) *request {
			m.set(Definition{SlidingWindow: "w", Limit: 1000, Interval: 1000 * time.Second, Buckets: 1000})
			key := m.key(m.sliding("w").ref)
			w := mustRead(m.t, "", m.rulesOf(key.ref).window, m.now)
			for i := range int64(1000) {
				w.Filled = append(w.Filled, window.Bucket{At: m.now/w.Bucket - 999 + i, Started: 1})
			}
			key.state = w.String()
			return m.came(func(i int64) *request { return m.job(i, m.sliding("w")) })
		}},
		{"dynamic window, 1000 keys, 1000 with places come too early", func(m *memory) func(int64) *request {
			m.dynamicKeys(Definition{DynamicWindow: "d", Interval: time.Minute, Buckets: 60, Capacity: 60_000, MinLimit: 1}, 1000)
			return m.came(func(i int64) *request { return m.job(i, m.dynamic("d", fmt.Sprint("key ", i%1000))) })
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := newMemory(b)
			next := c.setup(m)
			var reqs []*request
			for i := range benchmarkBatch() {
				reqs = append(reqs, next(i+1))
			}
			var granted int
			b.ReportAllocs()
			for b.Loop() {
				batch := m.load(reqs)
				batch.decide(reqs, m.lease)
				batch.toBringBack()
				for _, row := range batch.rows {
					if row.window != nil && row.window.Changed {
						row.state = row.window.String()
					}
				}
				granted = 0
				for _, req := range reqs {
					if req.decision.granted {
						granted++
					}
				}
			}
			b.ReportMetric(float64(granted), "granted")
		})
	}
}

// came makes the jobs ask once.
func (m *memory) came(next func(i int64) *request) func(i int64) *request {
	var reqs []*request
	for i := range benchmarkBatch() {
		reqs = append(reqs, next(i+1))
	}
	m.decide(reqs...)
	return next
}

// waits makes jobs wait for a key.
func (m *memory) waits(n need, first, jobs int64) {
	id := m.id(n.ref)
	for i := range jobs {
		w := waiter{waiterID: waiterID{id, first + i}, Wake: m.now + i*10*ms, Bucket: -1}
		m.waiters[w.waiterID] = w
	}
	m.keys[id-1].waiting += jobs
}

// dynamicKeys makes a dynamic window in which each key has begun one execution in each bucket.
func (m *memory) dynamicKeys(o Definition, keys int) {
	m.set(o)
	for i := range keys {
		key := m.key(m.dynamic("d", fmt.Sprint("key ", i)).ref)
		w := mustRead(m.t, "", o.rules(DynamicWindow).window, m.now)
		for i := range w.Buckets {
			w.Filled = append(w.Filled, window.Bucket{At: m.now/w.Bucket - w.Buckets + 1 + i, Started: 1})
		}
		key.state = w.String()
	}
}
