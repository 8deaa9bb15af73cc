package weirrls

import (
	"math"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A descriptorStatus is the status of a descriptor with all that it points to, so that the statuses of a request take one
// allocation.
type descriptorStatus struct {
	status ratelimitv3.RateLimitResponse_DescriptorStatus
	limit  ratelimitv3.RateLimitResponse_RateLimit
	reset  durationpb.Duration
}

// outageRetry is when it is worth coming back if the counters could not count.
const outageRetry = time.Second

// response makes the answer.
func (d *decision) response() *ratelimitv3.RateLimitResponse {
	r := &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK,
		Statuses:    make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(d.checks)),
	}
	if d.over {
		r.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	all := make([]descriptorStatus, len(d.checks))
	for i := range d.checks {
		d.fill(&all[i], &d.checks[i])
		r.Statuses[i] = &all[i].status
	}
	d.addHeaders(r)
	if d.service.options.DynamicMetadata {
		r.DynamicMetadata = d.metadata()
	}
	return r
}

// fill makes the status of a descriptor.
func (d *decision) fill(s *descriptorStatus, c *check) {
	s.status.Code = ratelimitv3.RateLimitResponse_OK
	if c.over() && !c.limit.Shadow {
		s.status.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	switch c.kind {
	case noLimit:
	case unlimited:
		s.status.LimitRemaining = math.MaxUint32
	case exact:
		d.fillExact(s, c)
	case window, override:
		d.fillWindow(s, c)
	}
}

// fillExact adds what is known about an exact limit. Without a number of permits that are left there is no current_limit:
// Envoy would tell the client that nothing is left.
func (d *decision) fillExact(s *descriptorStatus, c *check) {
	reset, known := c.lease.RetryAfter()
	if !c.over() || !known {
		d.findLevel(c)
	}
	switch {
	case c.over() && known:
		s.setReset(reset)
	case c.over() && c.limit.OnOverrun == OverrunNothing && c.lease.Reason() == reasonTooMany: // it can never be granted
	case c.leveled:
		s.setReset(c.level.Full)
	}
	if c.leveled && !c.over() {
		s.status.LimitRemaining = toUint32(c.level.Remaining)
	}
	limits, known := c.limit.limits(c.key)
	if !known || !c.leveled && !c.over() {
		return
	}
	requests, per := limits.Quota()
	s.limit.Name, s.limit.RequestsPerUnit = c.limit.Name, toUint32(requests)
	if per%time.Second == 0 {
		u, _ := unitOf(int64(per / time.Second))
		s.limit.Unit = protoUnits[u]
	}
	s.status.CurrentLimit = &s.limit
}

// fillWindow adds what envoyproxy/ratelimit says about a window.
func (d *decision) fillWindow(s *descriptorStatus, c *check) {
	s.limit.Name, s.limit.RequestsPerUnit, s.limit.Unit = c.limit.Name, c.allowed, c.unit
	if c.multiplier > 0 {
		s.limit.UnitMultiplier = wrapperspb.UInt32(c.multiplier)
	}
	s.status.CurrentLimit = &s.limit
	if !c.over() && c.err == nil {
		s.status.LimitRemaining = toUint32(int64(c.allowed) - c.sum)
	}
	s.setReset(d.windowReset(c))
}

func (s *descriptorStatus) setReset(after time.Duration) {
	s.reset.Seconds, s.reset.Nanos = int64(after/time.Second), int32(after%time.Second) //nolint:gosec // below a second
	s.status.DurationUntilReset = &s.reset
}

// windowReset returns when a window or an override begins again. If it could not be counted, it is worth coming back
// earlier.
func (d *decision) windowReset(c *check) time.Duration {
	rest := time.Duration(c.span.rest(d.time())) * time.Second
	if c.err != nil {
		return min(rest, outageRetry)
	}
	return rest
}
