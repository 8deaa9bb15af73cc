package weirrls

import (
	"context"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// counterHits are [hits] that are counted by Counters, for a Window or a limit that the request brings with it.
type counterHits struct {
	*call
	limit *limit
	key   string
	n     int64 // below 0: they are given back

	allowed    uint32
	unit       protoUnit
	multiplier uint32 // 0: none
	span       timeSpan
	// exact makes a request that looks need something to be left, and hits that are refused cost nothing. A Window is over
	// if more than its limit were counted, also if the request only looks, and counts every hit.
	exact bool

	sum int64
}

// newCounterHits returns hits of a counter, without the limit of them.
func newCounterHits(c *call, l *limit, key string, n uint64, negative bool) *counterHits {
	h := &counterHits{call: c, limit: l, key: key, n: int64(min(n, maxHits))} //nolint:gosec // it is small
	if negative {
		h.n = -h.n
	}
	return h
}

// setWindow makes w the limit.
func (h *counterHits) setWindow(w *Window) {
	h.allowed, h.unit, h.span = w.RequestsPerUnit, protoUnits[w.Unit], spanAt(h.now, secondsOf[w.Unit])
}

// setOverride makes the limit that a request brings with it the limit of h. It returns false if that limit has no unit
// that is known, or is for more than a year.
func (h *counterHits) setOverride(o *common.RateLimitDescriptor_RateLimitOverride) bool {
	h.unit = protoUnit(o.GetUnit())
	u, ok := unitOfProto(h.unit)
	if !ok {
		return false
	}
	seconds := secondsOf[u]
	if m := o.GetUnitMultiplier().GetValue(); m > 1 {
		h.multiplier = m
		seconds *= int64(m)
	}
	h.allowed, h.span = o.GetRequestsPerUnit(), spanAt(h.now, seconds)
	h.exact = !h.options.OverridesCountRejected
	return seconds <= maxSpan
}

func (h *counterHits) takesTime() bool { return h.options.Counters.shared }

func (h *counterHits) counter() counterID { return counterID{key: h.key, span: h.span} }

func (h *counterHits) refundable() bool { return h.exact && h.n >= 0 }

func (h *counterHits) take() (v verdict, err error) {
	if h.sum, err = h.add(h.n); err != nil {
		return undecided, err
	}
	over := h.sum > int64(h.allowed) || h.exact && h.n == 0 && h.sum == int64(h.allowed)
	if h.n < 0 || !over {
		return within, nil
	}
	if h.exact {
		h.refund()
	}
	return refused, nil
}

// refund takes the hits back. If that fails they stay counted: the answer is about what is left for the next request.
func (h *counterHits) refund() {
	if h.n == 0 {
		return
	}
	sum, err := h.add(-h.n)
	if err != nil {
		sum = max(h.sum-h.n, 0)
	}
	h.sum = sum
}

// add adds n to the counter. The hits count also if the answer comes too late for the request, or the caller has gone.
func (h *counterHits) add(n int64) (sum int64, err error) {
	counters, span, key := h.options.Counters, h.span, h.key
	if !counters.shared {
		return counters.hits.count(h.ctx, span, key, n)
	}
	return inTime(h.call, func(ctx context.Context) (int64, error) { return counters.hits.count(ctx, span, key, n) })
}

func (h *counterHits) release() {}

func (h *counterHits) rejection() limiter.Lease {
	return custom.RejectedKnowing(h.reset(), "", 0)
}

// reset returns when the window begins again.
func (h *counterHits) reset() time.Duration { return time.Duration(h.span.rest(h.now)) * time.Second }

// describe adds what envoyproxy/ratelimit says about a window. If it could not be counted, it is worth coming back earlier.
func (h *counterHits) describe(s *ratelimitv3.RateLimitResponse_DescriptorStatus, over, decided bool) {
	s.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{Name: h.limit.Name, RequestsPerUnit: h.allowed, Unit: h.unit}
	if h.multiplier > 0 {
		s.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(h.multiplier)
	}
	reset := h.reset()
	if !decided {
		reset = min(reset, outageRetry)
	} else if !over {
		s.LimitRemaining = toUint32(int64(h.allowed) - h.sum)
	}
	s.DurationUntilReset = durationpb.New(reset)
}
