//go:build !js

package rlsoracle

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/utils"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

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
		service := ours(t, c.rules, o.switches)
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

func (o *otherServer) differenceOf(service *weirrls.Service, r *ratelimitv3.RateLimitRequest) string {
	got, err := service.ShouldRateLimit(context.Background(), proto.CloneOf(r))
	theirs := o.ask(time.Now(), proto.CloneOf(r))
	switch {
	case err != nil:
		return fmt.Sprintf("weir returned the error %v", err)
	case theirs.err != nil || theirs.panicked != nil:
		return fmt.Sprintf("the other server failed: %v %v", theirs.err, theirs.panicked)
	}
	got, want := o.comparable(got), o.comparable(o.expected(time.Now(), r, theirs.response))
	if proto.Equal(got, want) {
		return ""
	}
	return sideBySide(text(want), text(got))
}

// comparable returns an answer without what cannot be equal, or need not:
//
//   - HTTP/2 has no upper case in names of headers.
//   - weir tells the exact time of the reset, the other server the next second.
func (o *otherServer) comparable(r *ratelimitv3.RateLimitResponse) *ratelimitv3.RateLimitResponse {
	r = proto.CloneOf(r)
	for _, h := range r.ResponseHeadersToAdd {
		h.Key = strings.ToLower(h.Key)
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
	rules, _, quota := o.service.GetCurrentConfig()
	over, quotas := 0, 0
	for i, s := range a.Statuses {
		if s.CurrentLimit == nil {
			continue
		}
		if quota || rules.GetLimit(context.Background(), r.Domain, r.Descriptors[i]).QuotaMode {
			quotas++
		}
		if s.DurationUntilReset == nil { // as only a quota that is used up
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

// text returns a message with the same text for equal messages. protojson adds a blank at random, so that programs do not
// rely on its text.
func text(m proto.Message) string {
	return strings.ReplaceAll(protojson.MarshalOptions{Multiline: true, EmitUnpopulated: true}.Format(m), ":  ", ": ")
}

// sideBySide returns the lines of both texts, marking those that differ.
func sideBySide(theirs, ours string) string {
	a, b := strings.Split(theirs, "\n"), strings.Split(ours, "\n")
	var out strings.Builder
	fmt.Fprintf(&out, "   %-60s %s\n", "envoyproxy/ratelimit", "weir")
	for i := range max(len(a), len(b)) {
		var left, right string
		if i < len(a) {
			left = a[i]
		}
		if i < len(b) {
			right = b[i]
		}
		mark := " "
		if left != right {
			mark = "!"
		}
		fmt.Fprintf(&out, "%s  %-60s %s\n", mark, left, right)
	}
	return out.String()
}
