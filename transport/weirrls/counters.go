package weirrls

import (
	"context"
	"strconv"

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
	// MaxKeys bounds the number of counters of [NewCounters], for each unit. The default is 100,000. Beyond the
	// bound, a new key replaces the key with the smallest sum and begins with that sum. So no sum is too low, and a flood
	// of keys makes a sum too high by at most about the hits of the unit divided by MaxKeys. A limit of a request can
	// last several units: such counters have a bound of their own, twice MaxKeys. [NewSharedCounters] ignores MaxKeys.
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
	if options.MaxKeys == 0 {
		options.MaxKeys = admission.DefaultMaxPartitions
	}
	return &Counters{hits: newMemoryCounters(options.MaxKeys)}, nil
}

// memoryCounters are counters in this process, with a table for each unit. Spans that are no whole unit, which only limits
// that requests bring with them can have, are in the table of the next longer unit of their own kind.
type memoryCounters struct {
	whole, other [Year + 1]*counterTable
}

func newMemoryCounters(maxKeys int) *memoryCounters {
	m := &memoryCounters{}
	for u := Second; u <= Year; u++ {
		m.whole[u] = &counterTable{length: secondsOf[u], whole: true, maxKeys: maxKeys}
		m.other[u] = &counterTable{length: secondsOf[u], maxKeys: maxKeys}
	}
	return m
}

func (m *memoryCounters) count(_ context.Context, span timeSpan, key string, n int64) (sum int64, err error) {
	return m.add(span, key, n), nil
}

// add is count, which cannot fail in memory.
func (m *memoryCounters) add(span timeSpan, key string, n int64) (sum int64) {
	if u, ok := unitOf(span.seconds); ok {
		return m.whole[u].count(span, key, n)
	}
	u := unitAtLeast(span.seconds)
	return m.other[u].count(span, key+"\x00"+strconv.FormatInt(span.seconds, 10), n) // a key differs for each length of a span
}

// unitAtLeast returns the shortest unit of at least that many seconds, or a year.
func unitAtLeast(seconds int64) Unit {
	u := Second
	for u < Year && secondsOf[u] < seconds {
		u++
	}
	return u
}
