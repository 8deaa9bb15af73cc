//go:build !js

package rlsoracle

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/utils"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
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

// difference asks both services the same and returns what the answers differ in, or "".
func (o *otherServer) difference(t *testing.T, c testCase) (diff string) {
	if err := o.use(c.rules); err != nil {
		return "the other server does not load the rules: " + err.Error()
	}
	inBubble(t, func(t *testing.T) {
		service := asking(ours(t, c.rules, o.switches))
		for i, s := range c.steps {
			time.Sleep(s.after)
			if diff = o.differenceOf(service, s.request); diff != "" {
				diff = fmt.Sprintf("answers to request %d at %s:\n%s", i+1, time.Now().UTC().Format(time.RFC3339Nano), diff)
				return
			}
		}
	})
	return diff
}

// An asker is a service of ours.
type asker func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error)

func asking(s *weirrls.Service) asker {
	return func(r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
		return s.ShouldRateLimit(context.Background(), r)
	}
}

func (o *otherServer) differenceOf(ask asker, r *ratelimitv3.RateLimitRequest) string {
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
	if problem := o.retryAfter(r, got); problem != "" {
		return problem
	}
	want := comparable(o.expected(time.Now(), r, theirs.response))
	if got = comparable(got); proto.Equal(got, want) {
		return ""
	}
	return "- envoyproxy/ratelimit, + weir\n" + lineDiff(text(want), text(got))
}

// retryAfter takes the header retry-after from a rejection, which the other server does not send, and returns what is
// wrong with it. The request can pass when all ordinary limits have been reset and, if it was rejected by all of its
// quotas, one of these.
func (o *otherServer) retryAfter(request *ratelimitv3.RateLimitRequest, r *ratelimitv3.RateLimitResponse) string {
	var after time.Duration
	quota, quotas, over := time.Duration(math.MaxInt64), 0, 0
	for i, s := range r.Statuses {
		isOver, reset := s.Code == ratelimitv3.RateLimitResponse_OVER_LIMIT, s.DurationUntilReset.AsDuration()
		switch {
		case o.isQuota(request, i, s):
			quotas++
			if isOver {
				over++
				quota = min(quota, reset)
			}
		case isOver:
			after = max(after, reset)
		}
	}
	if over > 0 && over == quotas {
		after = max(after, quota)
	}
	want, got := "", ""
	if r.OverallCode == ratelimitv3.RateLimitResponse_OVER_LIMIT {
		want = strconv.Itoa(int((after + time.Second - 1) / time.Second))
	}
	r.ResponseHeadersToAdd = slices.DeleteFunc(r.ResponseHeadersToAdd, func(h *corev3.HeaderValue) bool {
		if h.Key == "retry-after" {
			got += h.Value
		}
		return h.Key == "retry-after"
	})
	if got != want {
		return fmt.Sprintf("retry-after is %q, and not %q, in the answer %s", got, want, text(r))
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

// expected returns what the newest version of the other server answers, by the answer of an older one. Since January
// 2026 it has changed quota_mode: a request is rejected if all of its quotas are used up, and their statuses are
// OVER_LIMIT. They were OK before, and never rejected.
func (o *otherServer) expected(now time.Time, r *ratelimitv3.RateLimitRequest, a *ratelimitv3.RateLimitResponse) *ratelimitv3.RateLimitResponse {
	if o.newer() {
		return a
	}
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

// text returns a message with the same text for equal messages. protojson has one blank or two behind a name, so that
// programs do not rely on its text.
func text(m proto.Message) string {
	return oneBlank(protojson.MarshalOptions{Multiline: true, EmitUnpopulated: true}.Format(m))
}

func oneBlank(json string) string { return strings.ReplaceAll(json, "\":  ", "\": ") }

// lineDiff returns the lines of both texts, those of only the first behind "-", and those of only the second behind "+".
func lineDiff(first, second string) string {
	a, b := strings.Split(first, "\n"), strings.Split(second, "\n")
	common := make([][]int, len(a)+1) // how many lines a[i:] and b[j:] have in common
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := range slices.Backward(a) {
		for j := range slices.Backward(b) {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out strings.Builder
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out.WriteString("  " + a[i] + "\n")
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out.WriteString("- " + a[i] + "\n")
			i++
		default:
			out.WriteString("+ " + b[j] + "\n")
			j++
		}
	}
	return out.String()
}

func TestLineDiff(t *testing.T) {
	require.Equal(t, "  a\n- b\n+ x\n  c\n+ d\n", lineDiff("a\nb\nc", "a\nx\nc\nd"))
	require.Equal(t, "  a\n", lineDiff("a", "a"))
}
