package weirrls

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"sync"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/transport/internal/admission"
)

// Counters count the hits of each [Window], and of limits that requests bring with them. Make them with [NewCounters] or
// [NewSharedCounters]. Several services can have the same Counters. They are safe for concurrent use.
type Counters struct {
	hits   hitCounter
	shared bool // hits.count takes a round trip
}

// A hitCounter counts the hits of spans.
type hitCounter interface {
	// count adds n to what was counted for a key in a span, and returns the sum. n can be negative; the sum does not fall
	// below 0. If n is 0, it returns the sum. The hits of a span that is over can be forgotten.
	count(ctx context.Context, span timeSpan, key string, n int64) (sum int64, err error)
}

// CountersOptions are the options of [NewCounters] and [NewSharedCounters]. The zero value has the defaults.
type CountersOptions struct {
	// MaxKeys bounds the number of counters of [NewCounters], for each unit. The default is 100,000. Beyond the bound, new
	// keys share counters, as many more, until the unit ends. So no sum is too low, and a flood of keys makes that of a new
	// key too high, on average by the hits of the flood divided by MaxKeys. A new key that shares a counter gets nothing
	// back. [NewSharedCounters] ignores MaxKeys.
	MaxKeys int
	// Name is the prefix of the names of the limiters that [NewSharedCounters] makes in the store, such as
	// weirrls/second. Programs with the same Name share the counters of equal domains and descriptors. It consists of
	// ASCII letters, digits and the characters ._-/. The default is "weirrls". [NewCounters] ignores Name.
	Name string
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil.
func (o *CountersOptions) Validate() error {
	if o == nil {
		return nil
	}
	var problems validate.Problems
	if o.MaxKeys < 0 || o.MaxKeys > mostKeys {
		problems.Add("MaxKeys", o.MaxKeys, "must be from 1 to %d, or 0 for the default", mostKeys)
	}
	return problems.Err("weirrls")
}

const mostKeys = 1_000_000_000

// maxHits bounds the hits of one request. It is above the largest limit of a window, so a request for more is over any
// limit, and sums do not overflow.
const maxHits = 1 << 33

// NewCounters returns counters in this process. They need no Close. If o is nil, the defaults apply. The error is a
// [weir.OptionsError].
func NewCounters(o *CountersOptions) (*Counters, error) {
	var options CountersOptions
	if o != nil {
		options = *o
	}
	if err := options.Validate(); err != nil {
		return nil, err
	}
	return &Counters{hits: newMemoryCounters(cmp.Or(options.MaxKeys, admission.DefaultMaxPartitions))}, nil
}

// memoryCounters are counters in this process, with a table for each unit. Spans that are no whole unit, which only limits
// that requests bring with them can have, are in the table of the next longer one.
type memoryCounters [Year + 1]counterTable

func newMemoryCounters(maxKeys int) *memoryCounters {
	m := &memoryCounters{}
	for u := Second; u <= Year; u++ {
		m[u] = counterTable{unit: secondsOf[u], maxKeys: maxKeys}
	}
	return m
}

func (m *memoryCounters) count(_ context.Context, span timeSpan, key string, n int64) (sum int64, err error) {
	return m[unitAtLeast(span.seconds)].count(span, key, n), nil
}

// unitAtLeast returns the shortest unit of at least that many seconds, or a year.
func unitAtLeast(seconds int64) Unit {
	u := Second
	for u < Year && secondsOf[u] < seconds {
		u++
	}
	return u
}

// A counterTable has the counters of all keys for spans of up to a unit. It makes its shards when it is first used.
type counterTable struct {
	unit    int64 // in seconds
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
		t.shards[i] = counterShard{unit: t.unit, max: (t.maxKeys + n - 1) / n, own: make(map[counterKey]counter)}
	}
}

// count is that of a [hitCounter].
func (t *counterTable) count(span timeSpan, key string, n int64) (sum int64) {
	t.once.Do(t.init)
	hash := maphash.String(t.seed, key)
	shards := uint64(len(t.shards))
	return t.shards[hash%shards].count(span, key, hash/shards, n)
}

// A counterShard has the counters of some keys. The first max keys of a unit have a counter each; all others share as many
// more, by their hashes. What is given back to a shared counter stays counted, since it can be the hits of another key. So
// the sum of a key is never too low, however many keys a client makes up.
type counterShard struct {
	unit int64
	max  int

	mu     sync.Mutex
	begin  int64 // of the unit that runs now
	own    map[counterKey]counter
	shared []int64 // the hits in this unit; nil: none
	before []int64 // those in the unit before, for spans that go on
}

type counterKey struct {
	key     string
	seconds int64 // the length of the span
}

type counter struct {
	begin int64 // of the span
	sum   int64
}

func (s *counterShard) count(span timeSpan, key string, hash uint64, n int64) (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(span.begin - span.begin%s.unit)
	k, slot := counterKey{key, span.seconds}, hash%uint64(s.max)
	c, found := s.own[k]
	// A caller that has read the clock right before a span began counts in the new one, and gives nothing back to it.
	if first := max(c.begin, spanAt(s.begin, span.seconds).begin); span.begin < first {
		span.begin, n = first, max(n, 0)
	}
	if !found || c.begin < span.begin {
		c = counter{begin: span.begin}
	}
	switch {
	case found:
	case len(s.own) >= s.max:
		if n > 0 {
			if s.shared == nil {
				s.shared = make([]int64, s.max)
			}
			s.shared[slot] = saturate.Add(s.shared[slot], n)
		}
		return s.sharedSum(slot, span)
	default:
		c.sum = s.sharedSum(slot, span)
		if n <= 0 {
			return c.sum
		}
	}
	c.sum = max(saturate.Add(c.sum, n), 0)
	s.own[k] = c
	return c.sum
}

// sharedSum returns what was counted in a shared counter since the span began, or more.
func (s *counterShard) sharedSum(slot uint64, span timeSpan) (sum int64) {
	if s.shared != nil {
		sum = s.shared[slot]
	}
	if s.before != nil && span.begin < s.begin {
		sum = saturate.Add(sum, s.before[slot])
	}
	return sum
}

// turn makes the unit that begins then the one that runs now, and drops the counters of spans that have ended. A clock that
// is set back by more than a unit begins with no counters, because the unit of the counters may be far away.
func (s *counterShard) turn(begin int64) {
	if begin == s.begin || begin == s.begin-s.unit {
		return
	}
	shared := s.shared
	s.shared, s.before = nil, nil
	if begin == s.begin+s.unit {
		s.before = shared
	}
	back := begin < s.begin
	maps.DeleteFunc(s.own, func(k counterKey, c counter) bool { return back || c.begin+k.seconds <= begin })
	s.begin = begin
}
