package limiter

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// remove takes an entry out of a shard.
func (s *shard[K]) remove(hash uint64, e *entry[K]) { s.removeAt(s.indexOf(uint32(hash), e)) }

// A table does what a map does, whatever is put in and taken out, also if many hashes are the same.
// (httprate: keys whose hashes collide share a counter.)
func TestTable_IsAMap(t *testing.T) {
	seed := maphash.MakeSeed()
	for name, hash := range map[string]func(int) uint64{
		"spread": func(key int) uint64 { return maphash.Comparable(seed, key) },
		"few":    func(key int) uint64 { return maphash.Comparable(seed, key) % 7 },
		"last":   func(key int) uint64 { return math.MaxUint64 - uint64(key%3) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var s shard[int]
			want := map[int]*entry[int]{}
			for step := range 20_000 {
				key := r.IntN(500)
				if step/5000%2 == 1 {
					key = r.IntN(10) // and nearly everything goes again
					for k := range want {
						key = k
						break
					}
				}
				e := s.find(hash(key), key)
				require.Same(t, want[key], e)
				switch {
				case e != nil && r.IntN(2) == 0:
					s.remove(hash(key), e)
					delete(want, key)
				case e == nil:
					e = &entry[int]{key: key}
					s.insert(hash(key), partition[int]{entry: e})
					want[key] = e
				}
				if r.IntN(100) == 0 {
					s.shrink()
				}
				require.Equal(t, len(want), s.n)
			}
			all := s.clear()
			assert.Len(t, all, len(want))
			for _, e := range all {
				require.Same(t, want[e.key], e.entry)
			}
			assert.Zero(t, s.n)
		})
	}
}

func TestTable_GivesMemoryBack(t *testing.T) {
	var s shard[int]
	seed := maphash.MakeSeed()
	var all []*entry[int]
	for key := range 100_000 {
		all = append(all, &entry[int]{key: key})
		s.insert(maphash.Comparable(seed, key), partition[int]{entry: all[key]})
	}
	assert.LessOrEqual(t, 3*len(s.table()), 8*s.n)
	for key, e := range all[:90_000] {
		s.remove(maphash.Comparable(seed, key), e)
	}
	s.shrink()
	assert.Less(t, len(s.table()), 8*s.n)
	for key := 90_000; key < 100_000; key++ {
		e := s.find(maphash.Comparable(seed, key), key)
		require.Same(t, all[key], e)
		s.remove(maphash.Comparable(seed, key), e)
	}
	s.shrink()
	assert.Nil(t, s.table())
}

// Shards that shared cache lines would slow each other down.
func TestShard_Size(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("the layout is for pointers of 64 bits; smaller shards are correct, too, and slower at worst")
	}
	assert.EqualValues(t, 64, unsafe.Sizeof(shard[string]{}))
}

// find without the lock never finds another key's entry, and finds an entry that stays in the table, whatever happens
// around it, if not at once then soon.
func TestTable_FindConcurrentSafe(t *testing.T) {
	var s shard[int]
	seed := maphash.MakeSeed()
	const lasting, keys = 100, 3000
	hash := func(key int) uint64 { return maphash.Comparable(seed, key) }
	for key := range lasting {
		s.insert(hash(key), partition[int]{entry: &entry[int]{key: key}})
	}
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			found := 0
			for key := 0; !stop.Load() || found == 0; key = (key + 1) % keys {
				e := s.find(hash(key), key)
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
	for range 20 { // growing and shrinking
		var in []*entry[int]
		for key := lasting; key < keys; key++ {
			e := &entry[int]{key: key}
			s.insert(hash(key), partition[int]{entry: e})
			in = append(in, e)
		}
		for _, e := range in {
			s.remove(hash(e.key), e)
		}
		s.shrink()
	}
	stop.Store(true)
	readers.Wait()
	for key := range lasting {
		e := s.find(hash(key), key)
		assert.NotNil(t, e)
	}
}

// Few shards are enough for few partitions, and more partitions than expected are no mistake.
func TestPartitioned_ExpectedPartitions(t *testing.T) {
	for expected, want := range map[int]int{0: 128, 1: 1, 2: 2, 3: 4, 65: 128, 1 << 30: 128} {
		assert.Equal(t, want, shardCount(expected), expected)
	}
	p := newPartitioned(t, unlimitedEach[int], PartitionedOptions{ExpectedPartitions: 1})
	assert.Len(t, p.keys.shards, 1)
	for key := range 1000 {
		mustAcquire(t, p, key, 1)
	}
	assert.Equal(t, 1000, p.Len())
	require.NoError(t, p.Reconfigure(PartitionedOptions{ExpectedPartitions: 1000}))
	assert.Len(t, p.keys.shards, 1)
	_, err := NewPartitionedByKey(func(key int) int { return key }, unlimitedEach[int], &PartitionedOptions{ExpectedPartitions: -1})
	require.EqualError(t, err, "limiter: ExpectedPartitions must be at least 0, got -1")
}
