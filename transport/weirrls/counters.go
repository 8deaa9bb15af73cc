package weirrls

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/weir-go/weir/internal/validate"
)

// Counters count the hits of windows that begin at whole units since 1970. They must be safe for concurrent use.
type Counters interface {
	// Count adds n to the counter of a key in a span, and returns the sum. n can be below 0; the sum does not fall below
	// 0. With an n of 0 it returns the sum. When the span is over, its counter can be forgotten.
	Count(ctx context.Context, span Span, key string, n int64) (sum int64, err error)
}

// CountersOptions are the options of [NewCounters] and [NewSharedCounters]. The zero value has the defaults.
type CountersOptions struct {
	// MaxKeys bounds the counters of each unit in this process. The default is [DefaultMaxKeys]. A new key beyond the
	// bound takes the place of the counter with the smallest sum, and begins with that sum. So no sum is too low, and a
	// flood of keys makes a sum too high by at most about the hits of the unit divided by MaxKeys. Spans that are no
	// unit, which limits of requests can have, are bounded apart, by twice MaxKeys. [NewSharedCounters] ignores MaxKeys.
	MaxKeys int
	// Name is the beginning of the names of the limiters of [NewSharedCounters] in the store, such as weirrls/second.
	// Programs with the same Name share the counters of equal domains and descriptors. It consists of ASCII letters,
	// digits and the characters ._-/. The default is "weirrls".
	Name string
}

func (o *CountersOptions) validate() error {
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

// NewCounters returns counters in this process. They have no goroutine, so they need no Close. If o is nil, the
// defaults apply. The error is a [weir.OptionsError].
func NewCounters(o *CountersOptions) (Counters, error) {
	var options CountersOptions
	if o != nil {
		options = *o
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	if options.MaxKeys == 0 {
		options.MaxKeys = DefaultMaxKeys
	}
	return newMemoryCounters(options.MaxKeys), nil
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

// Count implements [Counters].
func (m *memoryCounters) Count(_ context.Context, span Span, key string, n int64) (sum int64, err error) {
	if !span.usable() {
		return 0, errSpan
	}
	return m.count(span, []byte(key), n), nil
}

// count is Count for a key that is not kept.
func (m *memoryCounters) count(span Span, key []byte, n int64) (sum int64) {
	if u, ok := unitOf(span.Seconds); ok {
		return m.whole[u].count(span, key, n)
	}
	u := unitAtLeast(span.Seconds)
	return m.other[u].count(span, appendLength(key, span.Seconds), n)
}

var errSpan = fmt.Errorf("weirrls: Seconds of a Span must be from 1 to %d", maxSpan)

// unitAtLeast returns the shortest unit of at least that many seconds, or a year.
func unitAtLeast(seconds int64) Unit {
	u := Second
	for u < Year && secondsOf[u] < seconds {
		u++
	}
	return u
}

// appendLength returns a copy of a key that differs for each length of a span.
func appendLength(key []byte, seconds int64) []byte {
	own := make([]byte, 0, len(key)+8)
	return binary.LittleEndian.AppendUint64(append(own, key...), uint64(seconds)) //nolint:gosec // at least 1
}
