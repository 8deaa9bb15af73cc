package weirrls

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// sharedLimit is the limit of the windows of shared counters, which is never reached. It is the same for programs whose ints
// have 32 bits.
const sharedLimit = math.MaxInt32

// sharedCounters are counters in a store. A counter is a sliding window of two units in two segments, so that what was
// taken in a span, which is at most a unit, cannot come back before the span ends. The key has the beginning of the span by
// this machine's clock; the store's clock says only when a counter can be forgotten.
type sharedCounters [Year + 1]*store.PartitionedSlidingWindow

// NewSharedCounters returns counters that all programs with the same store share. Each call of Count is a round trip. The
// spans are those of the machines' clocks, which must agree, as those of envoyproxy/ratelimit must. While the store is
// away, Count returns an error at once; see [ServiceOptions.CountersFailOpen]. If o is nil, the defaults apply.
//
// The counters are limiters of the store, one for each [Unit], and are closed with it. The error is a [weir.OptionsError].
func NewSharedCounters(s *store.Store, o *CountersOptions) (Counters, error) {
	var options CountersOptions
	if o != nil {
		options = *o
	}
	if options.Name == "" {
		options.Name = "weirrls"
	}
	var problems validate.Problems
	if isnil.Value(s) {
		problems.Add("s", nil, "must not be nil")
	}
	problems.Include("", options.validate())
	if err := problems.Err("weirrls"); err != nil {
		return nil, err
	}
	c := &sharedCounters{}
	for u := Second; u <= Year; u++ {
		w, err := s.PartitionedSlidingWindow(options.Name+"/"+u.String(), limiter.SlidingWindowOptions{
			PermitLimit:       sharedLimit,
			Window:            2 * time.Duration(secondsOf[u]) * time.Second,
			SegmentsPerWindow: 2,
		}, nil)
		if err != nil {
			return nil, err
		}
		c[u] = w
	}
	return c, nil
}

// Count implements [Counters].
func (c *sharedCounters) Count(ctx context.Context, span Span, key string, n int64) (sum int64, err error) {
	if !span.usable() {
		return 0, errSpan
	}
	w := c[unitAtLeast(span.Seconds)]
	key += "@" + strconv.FormatInt(span.Begin, 10) + "+" + strconv.FormatInt(span.Seconds, 10)
	for {
		// An int can have 32 bits. More than that in one request is rare, and the rest can take another round trip.
		part := int(min(max(n, -math.MaxInt), math.MaxInt))
		level, err := w.Charge(ctx, key, part)
		if err != nil {
			return 0, err
		}
		if n -= int64(part); n == 0 {
			return sharedLimit - level.Remaining, nil
		}
	}
}
