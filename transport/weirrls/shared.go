package weirrls

import (
	"cmp"
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
type sharedCounters [Year + 1]*store.Partitioned

// NewSharedCounters returns counters that all programs with the same store share. Each descriptor takes a round trip, and
// those of a request take theirs at the same time. Windows begin by the clocks of the machines, which must agree, as for
// envoyproxy/ratelimit. [ServiceOptions.CountersFailOpen] says what happens while the store is away. If o is nil, the
// defaults apply.
//
// The counters are limiters of the store, one for each [Unit], and are closed with it. The error is a [weir.OptionsError].
func NewSharedCounters(s *store.Store, o *CountersOptions) (*Counters, error) {
	var options CountersOptions
	if o != nil {
		options = *o
	}
	options.Name = cmp.Or(options.Name, "weirrls")
	var problems validate.Problems
	if isnil.Value(s) {
		problems.Add("s", nil, "must not be nil")
	}
	problems.Include("", options.Validate())
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
	return &Counters{hits: c, shared: true}, nil
}

func (c *sharedCounters) count(ctx context.Context, span timeSpan, of string, n int64) (sum int64, err error) {
	w := c[unitAtLeast(span.seconds)]
	key := of + "@" + strconv.FormatInt(span.begin, 10) + "+" + strconv.FormatInt(span.seconds, 10)
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
