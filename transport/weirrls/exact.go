package weirrls

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// limiterHits are [hits] that are taken from a Limiter or Partitioned.
type limiterHits struct {
	*call
	limit    *limit
	key      string // of Partitioned
	n        uint64
	negative bool // they are given back

	lease    limiter.Lease
	rest     limiter.Lease // what OverrunRest took
	level    limiter.Level // if leveled
	leveled  bool
	refunded bool
}

func (h *limiterHits) takesTime() bool { return h.limit.remote }

func (h *limiterHits) counter() counterID { return counterID{limit: h.limit, key: h.key} }

func (h *limiterHits) refundable() bool { return !h.negative && h.limit.OnOverrun != OverrunDebt }

func (h *limiterHits) take() (v verdict, err error) {
	if h.negative {
		if err = h.giveBack(); err != nil {
			return undecided, err
		}
		return within, nil
	}
	h.lease, err = h.limit.tryAcquire(h.asking, h.key, h.n)
	switch {
	case err != nil || isUndecided(h.lease):
		return undecided, err
	case h.lease.Acquired():
		return within, nil
	case h.n == 0:
		return refused, nil
	case h.limit.OnOverrun == OverrunRest:
		return refused, h.takeRest()
	case h.limit.OnOverrun == OverrunNothing, h.n > maxHits && h.lease.Reason() == reasonTooMany:
		// The latter is a mistake, such as a negative number without its sign: the debt would last for years.
		return refused, nil
	default:
		return refused, h.charge(clampInt(h.n))
	}
}

// isUndecided reports whether a lease says nothing about the quota: the store is away, or the limiter is closed. A rejection
// because of too many keys is a decision: if FailOpen applied to it, a client could pass every limit by making up keys.
func isUndecided(lease limiter.Lease) bool {
	if lease.Acquired() {
		return false
	}
	reason := lease.Reason()
	return reason == limiter.ReasonUnavailable || reason == limiter.ReasonClosed
}

func (h *limiterHits) giveBack() error {
	if h.limit.charges == nil {
		return fmt.Errorf("weirrls: the limiter is not a limiter.Charger, so hits cannot be given back: %w", errors.ErrUnsupported)
	}
	return h.charge(-clampInt(h.n))
}

// charge tells the limiter what was used or is given back. It is a fact, so a store is told also if the caller has gone.
// The level is known if the store answers in time.
func (h *limiterHits) charge(n int) (err error) {
	limit, key := h.limit, h.key
	charge := func(ctx context.Context) (limiter.Level, error) { return limit.charge(ctx, key, n) }
	if limit.remote {
		h.level, err = inTime(h.call, charge)
	} else {
		h.level, err = charge(context.WithoutCancel(h.ctx))
	}
	h.leveled = err == nil
	if errors.Is(err, errLate) {
		return nil
	}
	return err
}

// restAttempts is how often takeRest asks: between its question and its attempt, other requests can take permits.
const restAttempts = 3

// takeRest takes what is left.
func (h *limiterHits) takeRest() error {
	for range restAttempts {
		level, err := h.limit.charge(h.asking, h.key, 0)
		if err != nil {
			return err
		}
		h.level, h.leveled = level, true
		if level.Remaining <= 0 {
			return nil
		}
		h.rest, err = h.limit.tryAcquire(h.asking, h.key, min(h.n, uint64(level.Remaining)))
		if err != nil || h.rest.Acquired() {
			return err
		}
	}
	return nil
}

func (h *limiterHits) refund() {
	var ignored error
	defer rescue(&ignored)
	h.refunded = true
	if h.lease.Permits() > 0 {
		h.lease.Refund()
	}
}

// release ends the leases. It does nothing for windows and buckets, whose permits are spent.
func (h *limiterHits) release() {
	var ignored error
	defer rescue(&ignored)
	defer h.rest.Release()
	h.lease.Release()
}

func (h *limiterHits) rejection() limiter.Lease { return h.lease }

// describe adds what is known about the limit. Without a number of permits that are left there is no current_limit: Envoy
// would tell the client that nothing is left.
func (h *limiterHits) describe(s *ratelimitv3.RateLimitResponse_DescriptorStatus, over, decided bool) {
	reset, known := h.lease.RetryAfter()
	if decided && (!over || !known) {
		h.findLevel()
	}
	switch {
	case over && known:
		s.DurationUntilReset = durationpb.New(reset)
	case over && h.limit.OnOverrun == OverrunNothing && h.lease.Reason() == reasonTooMany: // it can never be granted
	case h.leveled:
		s.DurationUntilReset = durationpb.New(h.level.Full)
	}
	if h.leveled && !over {
		s.LimitRemaining = toUint32(h.level.Remaining)
	}
	limits, known := h.limit.limits(h.key)
	if !known || !h.leveled && !over {
		return
	}
	requests, per := limits.Quota()
	s.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{Name: h.limit.Name, RequestsPerUnit: toUint32(requests)}
	if per%time.Second == 0 {
		u, _ := unitOf(int64(per / time.Second))
		s.CurrentLimit.Unit = protoUnits[u]
	}
}

// findLevel finds out what is left. A limiter in this process is asked again, now that a rejected request has given back
// what it took; a round trip to a store is saved if its answer had the level, or if the store is away.
func (h *limiterHits) findLevel() {
	if !h.leveled {
		if h.level, h.leveled = h.lease.Level(); h.refunded {
			h.level.Remaining += int64(h.lease.Permits())
		}
	}
	_, away := store.OutageKey.From(h.lease)
	if h.limit.charges == nil || away || h.limit.remote && h.leveled {
		return
	}
	if level, err := h.limit.charge(h.asking, h.key, 0); err == nil {
		h.level, h.leveled = level, true
	}
}

// clampInt returns hits as an int.
func clampInt(hits uint64) int { return int(min(hits, math.MaxInt)) }

// toUint32 returns n, or the nearest number that the protocol has room for.
func toUint32(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }
