package weirrls

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir/transport/internal/status"
)

// addHeaders adds the headers and the body that Envoy sends to the client.
func (d *decision) addHeaders(r *ratelimitv3.RateLimitResponse) {
	if d.service.options.Headers {
		d.addQuota(r)
	}
	if !d.over {
		return
	}
	after, known := d.retryAfter(r)
	if known && !d.service.options.NoRetryAfter {
		addHeader(r, "retry-after", strconv.FormatInt(max(status.WholeSeconds(after), 1), 10))
	}
	if d.service.options.Problem {
		addHeader(r, "content-type", "application/problem+json")
		r.RawBody = d.problem(after)
	}
}

func addHeader(r *ratelimitv3.RateLimitResponse, key, value string) {
	r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, &core.HeaderValue{Key: key, Value: value})
}

// retryAfter returns when it is worth coming back after a rejection: when all ordinary limits have permits again, and one
// of the quotas if they have rejected the request. ok is false if that is not known.
func (d *decision) retryAfter(r *ratelimitv3.RateLimitResponse) (after time.Duration, ok bool) {
	quota := time.Duration(math.MaxInt64)
	quotas, quotasOver := 0, 0
	for i := range d.checks {
		c := &d.checks[i]
		isOver := r.Statuses[i].Code == ratelimitv3.RateLimitResponse_OVER_LIMIT
		if d.isQuota(c) {
			quotas++
			if isOver {
				quotasOver++
			}
		}
		reset, known := resetOf(c, r.Statuses[i])
		switch {
		case !isOver || !known:
		case d.isQuota(c):
			quota, ok = min(quota, reset), true
		default:
			after, ok = max(after, reset), true
		}
	}
	if quotas > 0 && quotas == quotasOver && quota < math.MaxInt64 {
		after = max(after, quota)
	}
	return after, ok
}

// resetOf returns when it is worth coming back to one limit.
func resetOf(c *check, s *ratelimitv3.RateLimitResponse_DescriptorStatus) (after time.Duration, ok bool) {
	switch {
	case s.DurationUntilReset != nil:
		return s.DurationUntilReset.AsDuration(), true
	case c.answer == failed:
		return outageRetry, true
	default:
		return 0, false
	}
}

// addQuota adds the headers about the tightest limit: the last ordinary one that rejects, else the first one that has the
// least left.
func (d *decision) addQuota(r *ratelimitv3.RateLimitResponse) {
	var tightest *ratelimitv3.RateLimitResponse_DescriptorStatus
	least := uint32(math.MaxUint32)
	for i, s := range r.Statuses {
		if s.CurrentLimit == nil {
			continue
		}
		if s.Code == ratelimitv3.RateLimitResponse_OVER_LIMIT && !d.isQuota(&d.checks[i]) {
			tightest, least = s, 0
		} else if s.LimitRemaining < least {
			tightest, least = s, s.LimitRemaining
		}
	}
	if tightest == nil {
		return
	}
	addHeader(r, "RateLimit-Limit", strconv.FormatUint(uint64(tightest.CurrentLimit.RequestsPerUnit), 10))
	addHeader(r, "RateLimit-Remaining", strconv.FormatUint(uint64(tightest.LimitRemaining), 10))
	addHeader(r, "RateLimit-Reset", strconv.FormatInt(secondsUntil(tightest.DurationUntilReset), 10))
}

// secondsUntil rounds up, and returns 0 for nil.
func secondsUntil(reset *durationpb.Duration) int64 {
	if reset.GetNanos() > 0 {
		return reset.GetSeconds() + 1
	}
	return reset.GetSeconds()
}

// problem returns the body of a rejected request. It has the names of the limits that rejected it, if they have a Name. It
// has no status, because Envoy chooses the status of the response.
func (d *decision) problem(after time.Duration) []byte {
	cause := status.OverCapacity
	var names []string
	for i := range d.checks {
		c := &d.checks[i]
		if !c.over() || c.limit.Shadow {
			continue
		}
		if c.answer == overLimit {
			cause = status.OverQuota
		}
		if c.limit.Name != "" {
			names = append(names, c.limit.Name)
		}
	}
	p := status.ProblemOf(cause.HTTP(), names, after)
	p.Status = 0
	return p.JSON()
}
