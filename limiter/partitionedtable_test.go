package limiter

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A table does what a map does, whatever is put in and taken out.
func TestTable_IsAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tab, seed := table[int]{}, maphash.MakeSeed()
	want := map[int]*entry[int]{}
	for step := range 200_000 {
		key := r.IntN(2000)
		if step/20_000%2 == 1 {
			key = r.IntN(10) // and nearly everything goes again
			for k := range want {
				key = k
				break
			}
		}
		h := maphash.Comparable(seed, key)
		e := tab.find(h, key)
		require.Same(t, want[key], e)
		switch {
		case e != nil && r.IntN(2) == 0:
			tab.remove(e)
			delete(want, key)
		case e == nil:
			e = &entry[int]{key: key, hash: uint32(maphash.Comparable(seed, key))}
			tab.insert(e)
			want[key] = e
		}
		if r.IntN(100) == 0 {
			tab.shrink(r.IntN(10))
		}
		require.Equal(t, len(want), tab.n)
	}
	n := 0
	for e := tab.clear(); e != nil; e = e.next.Load() {
		require.Same(t, want[e.key], e)
		n++
	}
	assert.Equal(t, len(want), n)
}

func TestTable_GivesMemoryBack(t *testing.T) {
	tab, seed := table[int]{}, maphash.MakeSeed()
	var all []*entry[int]
	for key := range 100_000 {
		e := &entry[int]{key: key, hash: uint32(maphash.Comparable(seed, key))}
		tab.insert(e)
		all = append(all, e)
	}
	assert.LessOrEqual(t, tab.heads.Load().len(), tab.n*4/3+1)
	for _, e := range all[:90_000] {
		tab.remove(e)
	}
	for tab.shrink(100) {
	}
	assert.LessOrEqual(t, len(tab.heads.Load().slots), 4*tab.n)
	for key := 90_000; key < 100_000; key++ {
		require.Same(t, all[key], tab.find(maphash.Comparable(seed, key), key))
	}
	for _, e := range all[90_000:] {
		tab.remove(e)
	}
	for tab.shrink(100) {
	}
	assert.Nil(t, tab.heads.Load())
}

// BenchmarkSweep reports for how long housekeeping holds a shard's lock at a
// time, with a million.
func BenchmarkSweep(b *testing.B) {
	keys := makeKeys(manyKeys())
	for b.Loop() {
		b.StopTimer()
		p := fill(b, keys)
		b.StartTimer()
		var longest time.Duration
		for i := range p.shards {
			s := &p.shards[i]
			for from, more := 0, true; more; from += visitChains {
				started := time.Now()
				more = s.visit(from, func(e *entry[string]) { _, _ = p.timeLeft(e, moment()) })
				longest = max(longest, time.Since(started))
			}
		}
		b.ReportMetric(float64(longest.Microseconds()), "µs-longest-hold")
		b.StopTimer()
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// Shards that shared cache lines would slow each other down.
func TestShard_Size(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("the layout is for pointers of 64 bits; smaller shards are correct, too, and slower at worst")
	}
	assert.EqualValues(t, 64, unsafe.Sizeof(shard[string]{}))
}

// find without the lock never finds another key's entry, and finds an entry that
// stays in the table, whatever happens around it, if not at once then soon.
func TestTable_FindConcurrentSafe(t *testing.T) {
	tab, seed := table[int]{}, maphash.MakeSeed()
	const lasting, keys = 100, 3000
	for key := range lasting {
		tab.insert(&entry[int]{key: key, hash: uint32(maphash.Comparable(seed, key))})
	}
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			found := 0
			for key := 0; !stop.Load() || found == 0; key = (key + 1) % keys {
				e := tab.find(maphash.Comparable(seed, key), key)
				if e == nil {
					continue
				}
				found++
				if !assert.Equal(t, key, e.key) {
					return
				}
			}
		})
	}
	for range 20 { // growing and shrinking through many heads
		var in []*entry[int]
		for key := lasting; key < keys; key++ {
			e := &entry[int]{key: key, hash: uint32(maphash.Comparable(seed, key))}
			tab.insert(e)
			in = append(in, e)
		}
		for _, e := range in {
			tab.remove(e)
		}
		for tab.shrink(7) {
		}
	}
	stop.Store(true)
	readers.Wait()
	for key := range lasting {
		assert.NotNil(t, tab.find(maphash.Comparable(seed, key), key))
	}
}

// Few shards are enough for few partitions, and more partitions than expected are no mistake.
func TestPartitioned_ExpectedPartitions(t *testing.T) {
	most := shardCount(0)
	for expected, want := range map[int]int{1: 1, 2: 2, 3: 4, 65: 128, 1 << 30: most} {
		assert.Equal(t, want, shardCount(expected), expected)
	}
	p, err := NewPartitionedByKey(func(key int) int { return key }, UnlimitedFactory[int](), &PartitionedOptions{ExpectedPartitions: 1})
	require.NoError(t, err)
	defer func() { _ = p.Close() }()
	assert.Len(t, p.shards, 1)
	for key := range 1000 {
		lease, err := p.TryAcquire(t.Context(), key, 1)
		require.NoError(t, err)
		assert.True(t, lease.Acquired())
	}
	assert.Equal(t, 1000, p.Len())
	require.NoError(t, p.Reconfigure(PartitionedOptions{ExpectedPartitions: 1000}))
	assert.Len(t, p.shards, 1)
	_, err = NewPartitionedByKey(func(key int) int { return key }, UnlimitedFactory[int](), &PartitionedOptions{ExpectedPartitions: -1})
	require.EqualError(t, err, "limiter: ExpectedPartitions must be at least 0, got -1")
}
