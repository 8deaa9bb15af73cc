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

// outageRetry is when it is worth coming back if a limit was undecided.
const outageRetry = time.Second

// response makes the answer.
func (d *decision) response() *ratelimitv3.RateLimitResponse {
	r := &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK,
		Statuses:    make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(d.checks)),
	}
	statuses := make([]ratelimitv3.RateLimitResponse_DescriptorStatus, len(d.checks))
	for i := range d.checks {
		r.Statuses[i] = &statuses[i]
		d.checks[i].describe(&statuses[i])
	}
	if d.options.Headers {
		d.addQuota(r)
	}
	if d.over {
		r.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
		d.addRejection(r)
	}
	if d.options.DynamicMetadata {
		r.DynamicMetadata = d.metadata()
	}
	return r
}

func (c *check) describe(s *ratelimitv3.RateLimitResponse_DescriptorStatus) {
	s.Code = ratelimitv3.RateLimitResponse_OK
	if c.objects() {
		s.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	switch {
	case c.asked:
		c.hits.describe(s, c.over(), c.verdict != undecided && c.err == nil)
	case c.limit != nil && c.limit.Unlimited:
		s.LimitRemaining = math.MaxUint32
	}
}

// addRejection adds the headers and the body of a rejection, which Envoy sends to the client.
func (d *decision) addRejection(r *ratelimitv3.RateLimitResponse) {
	after, known := d.retryAfter(r)
	if known && !d.options.NoRetryAfter {
		addHeader(r, "retry-after", max(status.WholeSeconds(after), 1))
	}
	if d.options.Problem {
		r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, &core.HeaderValue{Key: "content-type", Value: "application/problem+json"})
		r.RawBody = d.problem(after)
	}
}

func addHeader(r *ratelimitv3.RateLimitResponse, key string, value int64) {
	r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, &core.HeaderValue{Key: key, Value: strconv.FormatInt(value, 10)})
}

// retryAfter returns when it is worth coming back after a rejection: when all ordinary limits have permits again, and one
// of the quotas if they have rejected the request. ok is false if that is not known.
func (d *decision) retryAfter(r *ratelimitv3.RateLimitResponse) (after time.Duration, ok bool) {
	quota := time.Duration(math.MaxInt64)
	for i, s := range r.Statuses {
		c := &d.checks[i]
		reset := s.DurationUntilReset.AsDuration()
		if s.DurationUntilReset == nil {
			reset = outageRetry
		}
		switch known := s.DurationUntilReset != nil || c.failed(); {
		case !c.objects() || !known:
		case d.isQuota(c):
			quota, ok = min(quota, reset), true
		default:
			after, ok = max(after, reset), true
		}
	}
	if d.byQuotas && quota < math.MaxInt64 {
		after = max(after, quota)
	}
	return after, ok
}

// addQuota adds the headers about the tightest limit: the last ordinary one that rejects, else the first one that has the
// least left.
func (d *decision) addQuota(r *ratelimitv3.RateLimitResponse) {
	var tightest *ratelimitv3.RateLimitResponse_DescriptorStatus
	least := uint32(math.MaxUint32)
	for i, s := range r.Statuses {
		c := &d.checks[i]
		switch {
		case s.CurrentLimit == nil:
		case c.objects() && !d.isQuota(c):
			tightest, least = s, 0
		case s.LimitRemaining < least:
			tightest, least = s, s.LimitRemaining
		}
	}
	if tightest == nil {
		return
	}
	addHeader(r, "RateLimit-Limit", int64(tightest.CurrentLimit.RequestsPerUnit))
	addHeader(r, "RateLimit-Remaining", int64(tightest.LimitRemaining))
	addHeader(r, "RateLimit-Reset", secondsUntil(tightest.DurationUntilReset))
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
		if !c.objects() {
			continue
		}
		if c.verdict == refused {
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
