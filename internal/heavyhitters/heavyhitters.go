// Package heavyhitters finds the keys that occur most often among millions, in bounded memory.
//
// It is the Space-Saving algorithm: Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k
// elements in data streams", ICDT 2005. There are [Places] places, each with a key and a count. A key that has no place
// takes the one with the least count, and goes on counting from there, so its count can be too high by that much, and
// by no more than the sum of all counts divided by the number of places.
package heavyhitters

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/weir-go/weir/internal/clock"
)

const (
	// Places is how many keys are counted at once.
	Places = 1024
	// Keep is how long a Counter counts after the last call of Top.
	Keep = time.Minute
	// MaxText is the number of bytes that [Cut] leaves of a text.
	MaxText = 200
)

// A Counter counts keys from the first call of Top on, until [Keep] after the last one. Until then and afterwards it has
// no memory, and Add costs one atomic load. The zero Counter is ready for use. It is safe for concurrent use.
type Counter[K comparable] struct {
	current atomic.Pointer[sketch[K]] // nil while it does not count
	mu      sync.Mutex                // held while current changes
	closed  bool
}

// A Count is how often a key was counted. The true count is from Count-Error to Count, if no calls of Add were sampled;
// see [Counter.Add].
type Count[K comparable] struct {
	Key   K // a string is cut to 1 byte more than MaxText
	Count int64
	Error int64
}

// Add counts a key, if the Counter counts. hash is a hash of the key, the same in every call.
//
// At more than 100,000 calls a second, Add counts one call in 8, drawn at random, with a weight of 8, and at more than a
// million one in 64. Of n calls with a key, it then counts n with a standard deviation of √(7n) or √(63n). Add never
// waits for another call: if the Counter is busy, the next call that is counted counts for this one, too.
func (c *Counter[K]) Add(key K, hash uint64) {
	if s := c.current.Load(); s != nil {
		s.add(key, hash)
	}
}

// Top returns the n keys with the largest counts, the largest first, and makes the Counter count from now on if it does
// not. Keys with the same count keep their order from call to call.
func (c *Counter[K]) Top(n int) []Count[K] {
	now := clock.Now()
	s := c.begin(now)
	if s == nil {
		return nil
	}
	all := s.counts(now)
	slices.SortStableFunc(all, func(a, b Count[K]) int { return cmp.Compare(b.Count, a.Count) })
	return all[:min(max(n, 0), len(all))]
}

// begin returns the sketch, which it makes if there is none, or nil after Close.
func (c *Counter[K]) begin(now time.Duration) *sketch[K] {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.current.Load()
	if c.closed {
		return nil
	}
	// A timer of a testing/synctest bubble does not fire after the bubble, so what was counted there is dropped here.
	if s == nil || s.bubble != (now < 0) {
		s = newSketch[K](now)
		c.current.Store(s)
		time.AfterFunc(Keep, func() { c.end(s) })
	}
	s.asked = now
	return s
}

// end drops s if Top was not called for the time of Keep, and is called again later otherwise.
func (c *Counter[K]) end(s *sketch[K]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.Load() != s {
		return
	}
	if left := s.asked + Keep - clock.Now(); left > 0 && left <= Keep {
		time.AfterFunc(left, func() { c.end(s) })
		return
	}
	c.current.Store(nil)
}

// Counting reports whether the Counter counts.
func (c *Counter[K]) Counting() bool { return c.current.Load() != nil }

// Close ends the counting for good.
func (c *Counter[K]) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.current.Store(nil)
}

// A sketch has the places. All arrays have their full size from the beginning, so Add allocates nothing.
type sketch[K comparable] struct {
	asked  time.Duration // when Top was last called; guarded by Counter.mu
	bubble bool          // it was made in a testing/synctest bubble
	isText bool          // the keys are strings

	weight atomic.Int64 // of a counted call; one call in as many is counted
	missed atomic.Int64 // the weight of calls that were not counted because the sketch was busy

	mu     sync.Mutex
	places []place[K]
	least  []int32 // the indexes of the places as a heap: the least count is first
	chains []int32 // by hash: 1 + the index of the first place of the chain, or 0

	begun    time.Duration // of the present period; see adapt
	inPeriod int64         // the weight that was counted in it
}

type place[K comparable] struct {
	key    K
	hash   uint64
	count  int64
	error  int64
	next   int32 // in the chain: 1 + the index of the next place, or 0
	inHeap int32 // the index in least
}

const chains = 2 * Places // a power of two

func newSketch[K comparable](now time.Duration) *sketch[K] {
	s := &sketch[K]{
		bubble: now < 0, isText: isText[K](), begun: now,
		places: make([]place[K], 0, Places), least: make([]int32, 0, Places), chains: make([]int32, chains),
	}
	s.weight.Store(1)
	return s
}

// patience is how often a call tries to get hold of the sketch if every call counts for itself.
const patience = 16

func (s *sketch[K]) add(key K, hash uint64) {
	weight, tries := s.weight.Load(), patience
	if weight > 1 {
		if rand.Uint32()&uint32(weight-1) != 0 {
			return
		}
		tries = 1
	}
	for !s.mu.TryLock() {
		if tries--; tries == 0 {
			s.missed.Add(weight)
			return
		}
	}
	defer s.mu.Unlock() // also if comparing keys panics
	if s.missed.Load() != 0 {
		weight += s.missed.Swap(0)
	}
	s.count(key, hash, weight)
	s.inPeriod += weight
	s.adapt(clock.Now())
}

// A weight is chosen for each period, and again within the period as soon as there are too many calls for it.
const (
	period   = 10 * time.Millisecond
	manyIn8  = int64(100_000 * period / time.Second)
	manyIn64 = int64(1_000_000 * period / time.Second)
)

func weightFor(inPeriod int64) int64 {
	switch {
	case inPeriod < manyIn8:
		return 1
	case inPeriod < manyIn64:
		return 8
	default:
		return 64
	}
}

// adapt chooses the weight.
func (s *sketch[K]) adapt(now time.Duration) {
	weight, elapsed := weightFor(s.inPeriod), now-s.begun
	switch {
	case elapsed >= period:
		weight = weightFor(int64(float64(s.inPeriod) * float64(period) / float64(elapsed)))
		s.begun, s.inPeriod = now, 0
	case weight <= s.weight.Load():
		return
	}
	if weight != s.weight.Load() {
		s.weight.Store(weight)
	}
}

// counts returns all counts, in no order.
func (s *sketch[K]) counts(now time.Duration) []Count[K] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adapt(now)
	all := make([]Count[K], len(s.places))
	for i := range s.places {
		p := &s.places[i]
		all[i] = Count[K]{p.key, p.count, p.error}
	}
	return all
}

// count adds to the count of a key.
func (s *sketch[K]) count(key K, hash uint64, weight int64) {
	chain := &s.chains[hash%chains]
	short := s.shortened(key)
	for i := *chain; i != 0; i = s.places[i-1].next {
		if p := &s.places[i-1]; p.hash == hash && p.key == short {
			p.count += weight
			s.sink(p.inHeap)
			return
		}
	}
	short = s.keepable(short, key)
	if n := len(s.places); n < Places {
		s.places = append(s.places, place[K]{key: short, hash: hash, count: weight, next: *chain, inHeap: int32(n)})
		s.least = append(s.least, int32(n))
		*chain = int32(n + 1)
		s.rise(int32(n))
		return
	}
	i := s.least[0]
	s.unchain(i)
	p := &s.places[i]
	*p = place[K]{key: short, hash: hash, count: p.count + weight, error: p.count, next: *chain}
	*chain = i + 1
	s.sink(0)
}

// unchain takes a place out of its chain.
func (s *sketch[K]) unchain(i int32) {
	link := &s.chains[s.places[i].hash%chains]
	for *link != i+1 {
		link = &s.places[*link-1].next
	}
	*link = s.places[i].next
}

// sink moves the place at index i of the heap behind those with lesser counts.
func (s *sketch[K]) sink(i int32) {
	moved := s.least[i]
	count := s.places[moved].count
	for {
		child := 2*i + 1
		if int(child) >= len(s.least) {
			break
		}
		if next := child + 1; int(next) < len(s.least) && s.places[s.least[next]].count < s.places[s.least[child]].count {
			child = next
		}
		if s.places[s.least[child]].count >= count {
			break
		}
		s.put(i, s.least[child])
		i = child
	}
	s.put(i, moved)
}

// rise moves the place at index i of the heap before those with greater counts.
func (s *sketch[K]) rise(i int32) {
	moved := s.least[i]
	for i > 0 {
		parent := (i - 1) / 2
		if s.places[s.least[parent]].count <= s.places[moved].count {
			break
		}
		s.put(i, s.least[parent])
		i = parent
	}
	s.put(i, moved)
}

// put puts a place at index i of the heap.
func (s *sketch[K]) put(i, place int32) {
	s.least[i] = place
	s.places[place].inHeap = i
}

// keptText is how many bytes are kept of a key that is a string: enough for Cut to see that there were more.
const keptText = MaxText + 1

// isText reports whether keys of type K are strings.
func isText[K comparable]() bool { return reflect.TypeFor[K]().Kind() == reflect.String }

// shortened returns the part of a key by which a place knows it, together with the hash of the whole key: of a string,
// the first bytes.
func (s *sketch[K]) shortened(key K) K {
	if s.isText {
		if t := (*string)(unsafe.Pointer(&key)); len(*t) > keptText {
			*t = (*t)[:keptText]
		}
	}
	return key
}

// keepable returns a shortened key, copied if otherwise the whole key would stay in memory.
func (s *sketch[K]) keepable(short, whole K) K {
	if s.isText && short != whole {
		t := (*string)(unsafe.Pointer(&short))
		*t = strings.Clone(*t)
	}
	return short
}

// Text returns the key as [fmt.Sprint] writes it, cut by [Cut].
func (c Count[K]) Text() string { return Cut(fmt.Sprint(c.Key)) }

// Cut returns a text of MaxText bytes or less that begins like t. If it is not the whole of t, it ends with "…".
func Cut(t string) string {
	if len(t) <= MaxText {
		return t
	}
	const ellipsis = "…"
	end := MaxText - len(ellipsis)
	for least := end - utf8.UTFMax; end > least && !utf8.RuneStart(t[end]); {
		end--
	}
	return t[:end] + ellipsis
}
