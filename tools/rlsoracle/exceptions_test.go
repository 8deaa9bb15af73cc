//go:build !js

package rlsoracle

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/weirrls"
)

// An exception is what weirrls does otherwise than the other server, on purpose: docs/envoy.md has them in a table.
type exception struct {
	name, why string
	rules     string
	steps     []exceptional
}

// exceptional is a request, and the answers of the other server, of windows of weirrls, and of exact limits with the same
// numbers. An answer is the overall code and, for each descriptor, what is left, "over", or "none" where there is no limit; or
// "error" or "panic". In a request, +3 behind a descriptor are its hits.
type exceptional struct {
	after               time.Duration
	ask                 string
	change              func(r *ratelimitv3.RateLimitRequest)
	theirs, ours, exact string // exact is that of ours if it is empty
}

const tenAMinute = `
domain: edge
descriptors:
- {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}
`

// limitOf returns a change that gives the first descriptor a limit of its own.
func limitOf(requests uint32, unit typev3.RateLimitUnit, multiplier uint32) func(*ratelimitv3.RateLimitRequest) {
	return func(r *ratelimitv3.RateLimitRequest) {
		o := &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
		if multiplier > 0 {
			o.UnitMultiplier = wrapperspb.UInt32(multiplier)
		}
		r.Descriptors[0].Limit = o
	}
}

// untilTheHour is from the beginning of a bubble to a time at which a minute, an hour and no day begin.
const untilTheHour = 22*time.Minute + 49*time.Second

var exceptions = []exception{
	{
		name: "joined keys", why: "The other server joins keys and values by _, so different descriptors can have one counter.",
		rules: `
domain: edge
descriptors:
- {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: a_b, rate_limit: {unit: minute, requests_per_unit: 10}}
`,
		steps: []exceptional{
			{ask: "edge a=b_c", theirs: "OK 9", ours: "OK 9"},
			{ask: "edge a_b=c", theirs: "OK 8", ours: "OK 9"},
		},
	},
	{
		name: "shared counters", why: "The other server's key of a counter has when its unit began, and not which unit. " +
			"At the beginning of an hour, a limit by the minute and one by the hour that requests bring with them are one counter.",
		rules: tenAMinute,
		steps: []exceptional{
			{after: untilTheHour, ask: "edge a=x", change: limitOf(5, typev3.RateLimitUnit_MINUTE, 0), theirs: "OK 4", ours: "OK 4"},
			{ask: "edge a=x", change: limitOf(5, typev3.RateLimitUnit_HOUR, 0), theirs: "OK 3", ours: "OK 4"},
			// A rule and a limit that the request brings with it have one counter in one unit, for both.
			{ask: "edge a=x", theirs: "OK 7", ours: "OK 8", exact: "OK 9"},
		},
	},
	{
		name: "negative hits", why: "The other server knows nothing of is_negative_hits: it counts what is given back as hits.",
		rules: tenAMinute,
		steps: []exceptional{
			{ask: "edge a=x+4", theirs: "OK 6", ours: "OK 6"},
			{
				ask: "edge a=x+3", theirs: "OK 3", ours: "OK 9",
				change: func(r *ratelimitv3.RateLimitRequest) { r.Descriptors[0].IsNegativeHits = true },
			},
		},
	},
	{
		name: "huge hits", why: "Redis cannot add them, and the other server returns a gRPC error, by which Envoy admits the request.",
		rules: tenAMinute,
		steps: []exceptional{{ask: "edge a=x+18446744073709551615", theirs: "error", ours: "OVER_LIMIT over"}},
	},
	{
		name: "unknown unit", why: "A limit without a unit makes the other server panic. For weirrls it is no limit, and the rules apply.",
		rules: tenAMinute,
		steps: []exceptional{{ask: "edge a=x", change: limitOf(5, typev3.RateLimitUnit_UNKNOWN, 0), theirs: "panic", ours: "OK 9"}},
	},
	{
		name: "unit_multiplier", why: "The other server is older than the field.",
		rules: tenAMinute,
		steps: []exceptional{
			{ask: "edge a=x", change: limitOf(1, typev3.RateLimitUnit_SECOND, 30), theirs: "OK 0", ours: "OK 0"},
			{after: time.Second, ask: "edge a=x", change: limitOf(1, typev3.RateLimitUnit_SECOND, 30), theirs: "OK 0", ours: "OVER_LIMIT over"},
		},
	},
	{
		name: "a rejected request", why: "Windows count it, as the other server does, and exact limits do not: neither the hits nor those of the other limits.",
		rules: `
domain: edge
descriptors:
- {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: b, rate_limit: {unit: hour, requests_per_unit: 3}}
`,
		steps: []exceptional{
			{ask: "edge a=x+1 b=x+3", theirs: "OK 9 0", ours: "OK 9 0"},
			{ask: "edge a=x+1 b=x+1", theirs: "OVER_LIMIT 8 over", ours: "OVER_LIMIT 8 over", exact: "OVER_LIMIT 9 over"},
			{ask: "edge a=x+10", theirs: "OVER_LIMIT over", ours: "OVER_LIMIT over"},
			{ask: "edge a=x+9", theirs: "OVER_LIMIT over", ours: "OVER_LIMIT over", exact: "OK 0"},
		},
	},
	{
		name: "a look", why: "For windows it passes until more than the limit was counted, so requests that ask with 0 and report 1 are one more than the limit.",
		rules: tenAMinute,
		steps: []exceptional{
			{ask: "edge a=x+10", theirs: "OK 0", ours: "OK 0"},
			{ask: "edge a=x+0", theirs: "OK 0", ours: "OK 0", exact: "OVER_LIMIT over"},
		},
	},
	{
		name: "quota_mode", why: "The module of the other server never rejects by a quota, and calls it OK; newer versions do as weirrls does.",
		rules: `
domain: rl
descriptors:
- {key: service, value: service_1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: service, value: service_2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
`,
		steps: []exceptional{
			{ask: "rl service=service_1 service=service_2+3", theirs: "OK 0 0", ours: "OK 0 over"},
			{ask: "rl service=service_1 service=service_2", theirs: "OK 0 0", ours: "OVER_LIMIT over over", exact: "OK over 1"},
		},
	},
	{
		name: "middle wildcards", why: "For the module of the other server, a * that is not the last character is one like any other; newer versions do as weirrls does.",
		rules: `
domain: edge
descriptors:
- {key: a, value: x*z, rate_limit: {unit: minute, requests_per_unit: 10}}
`,
		steps: []exceptional{
			{ask: "edge a=xyz", theirs: "OK none", ours: "OK 9"},
			{ask: "edge a=x*z", theirs: "OK 9", ours: "OK 9"},
		},
	},
}

func TestExceptions(t *testing.T) {
	other := onMiniredis(t, switches{})
	for _, e := range exceptions {
		t.Run(e.name, func(t *testing.T) {
			rules := parseRules(t, e.rules)
			require.NoError(t, other.use(rules))
			inBubble(t, func(t *testing.T) {
				services := map[string]asker{"other": other.now, "ours": asking(ours(t, rules, switches{})), "exact": asking(exact(t, rules))}
				for i, s := range e.steps {
					time.Sleep(s.after)
					r := parseRequest(t, s.ask)
					if s.change != nil {
						s.change(r)
					}
					for name, want := range map[string]string{"other": s.theirs, "ours": s.ours, "exact": cmp.Or(s.exact, s.ours)} {
						assert.Equal(t, want, outcomeOf(services[name], r), "request %d to %s", i+1, name)
					}
				}
			})
		})
	}
}

// now asks the other server at this moment. A panic is an error.
func (o *otherServer) now(r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	a := o.ask(time.Now(), r)
	if a.panicked != nil {
		return nil, errPanic
	}
	return a.response, a.err
}

var errPanic = errors.New("panic")

// outcomeOf asks, and returns the answer as it stands in an exception.
func outcomeOf(ask asker, r *ratelimitv3.RateLimitRequest) string {
	response, err := ask(proto.CloneOf(r))
	switch {
	case errors.Is(err, errPanic):
		return "panic"
	case err != nil:
		return "error"
	}
	words := []string{response.OverallCode.String()}
	for _, s := range response.Statuses {
		switch {
		case s.Code == ratelimitv3.RateLimitResponse_OVER_LIMIT:
			words = append(words, "over")
		case s.CurrentLimit != nil:
			words = append(words, strconv.FormatUint(uint64(s.LimitRemaining), 10))
		default:
			words = append(words, "none")
		}
	}
	return strings.Join(words, " ")
}

// parseRequest reads the request of an exception.
func parseRequest(t *testing.T, text string) *ratelimitv3.RateLimitRequest {
	t.Helper()
	domain, rest, _ := strings.Cut(text, " ")
	r := &ratelimitv3.RateLimitRequest{Domain: domain}
	for word := range strings.FieldsSeq(rest) {
		pair, hits, ok := strings.Cut(word, "+")
		key, value, _ := strings.Cut(pair, "=")
		d := &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
		if ok {
			n, err := strconv.ParseUint(hits, 10, 64)
			require.NoError(t, err)
			d.HitsAddend = wrapperspb.UInt64(n)
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// exact returns our service with exact limits instead of windows: fixed windows of weir.
func exact(t *testing.T, rules []*domainRules) *weirrls.Service {
	t.Helper()
	domain := rules[0].ours()
	for _, d := range domain.Descriptors {
		lengths := map[weirrls.Unit]time.Duration{weirrls.Minute: time.Minute, weirrls.Hour: time.Hour}
		w := d.Limit.Window
		perKey, err := weirrls.PerKey(limiter.FactoryFor[string](limiter.FixedWindowOptions{
			PermitLimit: int(w.RequestsPerUnit), Window: lengths[w.Unit],
		}), nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, perKey.Close()) })
		d.Limit.Window, d.Limit.Partitioned = nil, perKey
	}
	compiled, err := weirrls.NewRules(domain)
	require.NoError(t, err)
	service, err := weirrls.NewService(compiled, nil)
	require.NoError(t, err)
	return service
}

// TestException_malformedRequests: both return an error, the other server with a code that says nothing.
func TestException_malformedRequests(t *testing.T) {
	other := onMiniredis(t, switches{})
	rules := parseRules(t, tenAMinute)
	require.NoError(t, other.use(rules))
	service := ours(t, rules, switches{})
	for _, r := range []*ratelimitv3.RateLimitRequest{{Descriptors: parseRequest(t, "edge a=x").Descriptors}, {Domain: "edge"}} {
		assert.Equal(t, codes.Unknown, status.Code(other.ask(time.Now(), r).err))
		_, err := service.ShouldRateLimit(t.Context(), r)
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
	}
	noEntries := &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonv3.RateLimitDescriptor{{}}}
	assert.Equal(t, "OK none", outcomeOf(other.now, noEntries))
	assert.Equal(t, "OK none", outcomeOf(asking(service), noEntries))
}
