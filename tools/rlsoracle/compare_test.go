//go:build !js

package rlsoracle

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/utils"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-go/weir/transport/weirrls"
)

// ours returns our service with the rules and the switches.
func ours(t *testing.T, rules []*domainRules, s switches) *weirrls.Service {
	t.Helper()
	var domains []weirrls.Domain
	for _, d := range rules {
		domains = append(domains, d.ours())
	}
	compiled, err := weirrls.NewRules(domains...)
	require.NoError(t, err)
	service, err := weirrls.NewService(compiled, &weirrls.ServiceOptions{
		Headers: s.Headers, DynamicMetadata: s.Metadata, Shadow: s.Shadow, Quota: s.Quota, OverridesCountRejected: true,
		NoRetryAfter: true, // which the other server does not send
	})
	require.NoError(t, err)
	return service
}

// inBubble runs f in a bubble whose time is not at the beginning of a minute, since the other server's counters of
// different units are one counter there.
func inBubble(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(13*time.Hour + 37*time.Minute + 11*time.Second)
		f(t)
	})
}

// An asker is a service of ours.
type asker func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error)

func asking(s *weirrls.Service) asker {
	return func(r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
		return s.ShouldRateLimit(context.Background(), r)
	}
}

// difference asks both services the same, and returns what the answers differ in, or "". It notes in seen what they had.
func (o *otherServer) difference(ask asker, r *ratelimitv3.RateLimitRequest, seen map[string]int) string {
	began := time.Now()
	got, err := ask(proto.CloneOf(r))
	theirs := o.ask(time.Now(), proto.CloneOf(r))
	switch {
	case err != nil:
		return fmt.Sprintf("weir returned the error %v", err)
	case theirs.err != nil || theirs.panicked != nil:
		return fmt.Sprintf("the other server failed: %v %v", theirs.err, theirs.panicked)
	case began.Unix() != time.Now().Unix():
		return "" // not in a bubble: the times in the answers are those of two seconds
	}
	for i, s := range got.Statuses {
		what := "no limit"
		if s.CurrentLimit != nil {
			what = "limit"
		}
		if r.Descriptors[i].Limit != nil {
			what = "override"
		}
		seen[what]++
		seen[what+" "+s.Code.String()]++
	}
	want := comparable(o.expected(time.Now(), r, theirs.response))
	if diff := cmp.Diff(want, comparable(got), protocmp.Transform()); diff != "" {
		return "- envoyproxy/ratelimit, + weir\n" + diff
	}
	return ""
}

// isQuota reports whether descriptor i of a request counts as a quota. With the switch for all requests also one without a
// limit does.
func (o *otherServer) isQuota(r *ratelimitv3.RateLimitRequest, i int, s *ratelimitv3.RateLimitResponse_DescriptorStatus) bool {
	rules, _, quota := o.service.GetCurrentConfig()
	switch {
	case s.CurrentLimit == nil && s.LimitRemaining == math.MaxUint32: // unlimited
		return false
	case quota:
		return true
	case s.CurrentLimit == nil:
		return false
	default:
		return rules.GetLimit(context.Background(), r.Domain, r.Descriptors[i]).QuotaMode
	}
}

// comparable returns an answer without what need not be equal:
//
//   - HTTP/2 has no upper case in names of headers.
//   - weir tells the exact time of the reset, the other server the next second.
//   - The other server writes the limit that a descriptor brings with it as protobuf's text, which has one blank or two
//     between fields, so that programs do not rely on it.
func comparable(r *ratelimitv3.RateLimitResponse) *ratelimitv3.RateLimitResponse {
	r = proto.CloneOf(r)
	for _, h := range r.ResponseHeadersToAdd {
		h.Key = strings.ToLower(h.Key)
	}
	for _, d := range r.GetDynamicMetadata().GetFields()["descriptors"].GetListValue().GetValues() {
		if limit, ok := d.GetStructValue().Fields["limit"]; ok {
			d.GetStructValue().Fields["limit"] = structpb.NewStringValue(strings.ReplaceAll(limit.GetStringValue(), "  ", " "))
		}
	}
	for _, s := range r.Statuses {
		if d := s.DurationUntilReset; d != nil {
			s.DurationUntilReset = durationpb.New((d.AsDuration() + time.Second - 1).Truncate(time.Second))
		}
	}
	return r
}

// expected returns what the newest version of the other server answers, by the answer of its module. Since January 2026 it
// has changed quota_mode: a request is rejected if all of its quotas are used up, and their statuses are
// OVER_LIMIT. They were OK before, and never rejected.
func (o *otherServer) expected(now time.Time, r *ratelimitv3.RateLimitRequest, a *ratelimitv3.RateLimitResponse) *ratelimitv3.RateLimitResponse {
	a = proto.CloneOf(a)
	if a.DynamicMetadata != nil {
		delete(a.DynamicMetadata.Fields, "quotaModeEnabled")
		delete(a.DynamicMetadata.Fields, "quotaModeViolations")
	}
	over, quotas := 0, 0
	for i, s := range a.Statuses {
		if o.isQuota(r, i, s) {
			quotas++
		}
		if s.CurrentLimit != nil && s.DurationUntilReset == nil { // as only a quota that is used up
			over++
			s.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
			s.DurationUntilReset = utils.CalculateReset(&s.CurrentLimit.Unit, at(now))
		}
	}
	if quotas > 0 && over == quotas && !o.switches.Shadow {
		a.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	return a
}

// at is a TimeSource at a time.
type at time.Time

func (a at) UnixNow() int64 { return time.Time(a).Unix() }
