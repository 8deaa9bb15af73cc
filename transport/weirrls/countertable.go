package weirrls

import (
	"container/heap"
	"hash/maphash"
	"sync"

	"github.com/weir-go/weir/internal/saturate"
)

// A counterTable has the counters of all keys for spans of about one length. It makes its parts when it is first used.
type counterTable struct {
	length  int64 // of the unit in seconds
	whole   bool  // all spans are units
	maxKeys int

	once   sync.Once
	seed   maphash.Seed
	shards []counterShard
}

const (
	maxCounterShards = 64  // so many that requests of different keys seldom wait for each other
	keysPerShard     = 256 // at least, so that the keys spread evenly
)

func (t *counterTable) init() {
	n := max(1, min(maxCounterShards, t.maxKeys/keysPerShard))
	t.seed = maphash.MakeSeed()
	t.shards = make([]counterShard, n)
	for i := range t.shards {
		t.shards[i] = counterShard{length: t.length, whole: t.whole, max: (t.maxKeys + n - 1) / n}
	}
}

// count adds n to the counter of a key in a span, and returns the sum.
func (t *counterTable) count(span timeSpan, key string, n int64) (sum int64) {
	t.once.Do(t.init)
	return t.shards[maphash.String(t.seed, key)%uint64(len(t.shards))].count(span.begin, key, n)
}

// A counterShard has the counters of some keys in two generations: counters that were used in the unit that runs now, and
// older ones, which are dropped when the next unit begins. If all spans are units, no older one is of use.
//
// A generation has at most max counters. Beyond that a new key gets the counter with the smallest sum, and goes on from
// there, as in the space-saving algorithm of Metwally, Agrawal and El Abbadi. A key that has lost its counter and comes
// back begins with floor, which is at least what it had: so a flood of keys lets no key begin at 0 again.
type counterShard struct {
	length int64
	whole  bool
	max    int

	mu      sync.Mutex
	begin   int64 // of the unit that runs now
	current generation
	older   generation
}

// A generation has the counters that were used in one unit.
type generation struct {
	at    map[string]int // where in all the counter of a key is
	all   []counter
	heap  []int // once there are max counters: their places in all, the smallest sum at the root
	floor int64 // the largest sum that a new key went on from
}

type counter struct {
	key    string
	begin  int64 // of the span
	base   int64 // the sum that the key went on from
	sum    int64 // of the hits since
	inHeap int   // where in heap the counter is
}

func (c *counter) total() int64 { return saturate.Add(c.base, c.sum) }

func (s *counterShard) count(begin int64, key string, n int64) (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(begin - begin%s.length)
	if s.whole && begin < s.begin { // the caller read the clock right before the unit began
		begin = s.begin
		n = max(n, 0) // what is given back was taken in the unit before
	}
	i, ok := s.find(key, begin, n)
	if !ok {
		return s.floor()
	}
	c := &s.current.all[i]
	if c.begin < begin {
		c.begin, c.base, c.sum = begin, s.floor(), 0
	}
	if c.begin == begin || n > 0 {
		c.sum = max(saturate.Add(c.sum, n), 0)
	}
	s.current.fix(i)
	return c.total()
}

// turn makes the generations those of the unit that begins then. A clock that is set back by more than a unit begins
// with no counters, because the unit of the counters may be far away.
func (s *counterShard) turn(begin int64) {
	if begin == s.begin || begin < s.begin && begin >= s.begin-s.length {
		return
	}
	if begin == s.begin+s.length && !s.whole {
		s.current, s.older = s.older, s.current
	} else {
		s.older.clear()
	}
	s.current.clear()
	s.begin = begin
}

// floor is what a new key begins with.
func (s *counterShard) floor() int64 { return max(s.current.floor, s.older.floor) }

// find returns the place of the counter of a key, and makes one if there is none and n is above 0.
func (s *counterShard) find(key string, begin, n int64) (i int, ok bool) {
	if i, ok := s.current.at[key]; ok {
		return i, true
	}
	if j, ok := s.older.at[key]; ok {
		c := s.older.all[j]
		delete(s.older.at, c.key)
		return s.add(c), true
	}
	if n <= 0 {
		return 0, false
	}
	return s.add(counter{key: key, begin: begin}), true
}

// add adds a counter, and returns its place. One without hits is that of a new key.
func (s *counterShard) add(c counter) (i int) {
	g := &s.current
	if len(g.all) < s.max {
		if g.at == nil {
			g.at = make(map[string]int)
		}
		i = len(g.all)
		g.all = append(g.all, c)
	} else {
		i = g.evict()
		c.inHeap = g.all[i].inHeap
		g.all[i] = c
	}
	if c.sum == 0 {
		g.all[i].base = max(c.base, s.floor())
	}
	g.at[c.key] = i
	if len(g.all) == s.max && g.heap == nil {
		g.makeHeap()
	}
	return i
}

// evict removes the key of the counter with the smallest sum, and returns its place.
func (g *generation) evict() (i int) {
	i = g.heap[0]
	smallest := &g.all[i]
	g.floor = max(g.floor, smallest.total())
	delete(g.at, smallest.key)
	return i
}

// clear removes all counters, but keeps the memory for the next ones.
func (g *generation) clear() {
	clear(g.at)
	clear(g.all) // it has the keys
	g.all, g.heap, g.floor = g.all[:0], nil, 0
}

// A generation is a [heap.Interface], without Push and Pop, once it has max counters.

func (g *generation) Len() int { return len(g.heap) }

func (g *generation) Less(a, b int) bool { return g.all[g.heap[a]].total() < g.all[g.heap[b]].total() }

func (g *generation) Swap(a, b int) {
	g.heap[a], g.heap[b] = g.heap[b], g.heap[a]
	g.all[g.heap[a]].inHeap = a
	g.all[g.heap[b]].inHeap = b
}

func (g *generation) Push(any) { panic("not used") }
func (g *generation) Pop() any { panic("not used") }

// makeHeap orders the counters by their sums.
func (g *generation) makeHeap() {
	g.heap = make([]int, len(g.all))
	for i := range g.heap {
		g.heap[i], g.all[i].inHeap = i, i
	}
	heap.Init(g)
}

// fix restores the order after the sum of one counter has changed.
func (g *generation) fix(i int) {
	if g.heap != nil {
		heap.Fix(g, g.all[i].inHeap)
	}
}
