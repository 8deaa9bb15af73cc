//go:build !js

package rlsoracle

import (
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// An exception is what weirrls does otherwise than the other server, on purpose, also for its windows. The answers are as in
// a scenario.
type exception struct {
	name, why    string
	rules        string
	steps        []exceptional
	newerIsEqual bool // newer versions of the other server do as weirrls does
}

// exceptional is a request and the answers to it. "error" stands for a gRPC error, "panic" for a panic.
type exceptional struct {
	after        time.Duration
	ask          string
	change       func(r *ratelimitv3.RateLimitRequest)
	theirs, ours string
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
			{ask: "edge a=x", theirs: "OK 7", ours: "OK 8"},
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
		name: "quota_mode", why: "Older versions of the other server never reject by a quota, and call it OK.",
		rules: quotas, newerIsEqual: true,
		steps: []exceptional{
			{ask: "rl service=service_1 service=service_2+3", theirs: "OK 0 0", ours: "OK 0 over"},
			{ask: "rl service=service_1 service=service_2", theirs: "OK 0 0", ours: "OVER_LIMIT over over"},
		},
	},
	{
		name: "middle wildcards", why: "For older versions of the other server, a * that is not the last character is one like any other.",
		newerIsEqual: true,
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
	addr, flush := onMiniredis(t)
	other := newOtherServer(t, addr, flush, switches{})
	for _, e := range exceptions {
		t.Run(e.name, func(t *testing.T) {
			rules := parseRules(t, e.rules)
			require.NoError(t, other.use(rules))
			inBubble(t, func(t *testing.T) {
				service := ours(t, rules, switches{})
				for i, s := range e.steps {
					time.Sleep(s.after)
					r := parseRequest(t, s.ask)
					if s.change != nil {
						s.change(r)
					}
					want := s.theirs
					if e.newerIsEqual && other.newer() {
						want = s.ours
					}
					assert.Equal(t, want, outcomeOf(other.ask(time.Now(), proto.CloneOf(r))), "request %d to the other server", i+1)
					response, err := service.ShouldRateLimit(t.Context(), r)
					assert.Equal(t, s.ours, outcomeOf(answer{response: response, err: err}), "request %d", i+1)
				}
			})
		})
	}
}

func outcomeOf(a answer) string {
	switch {
	case a.panicked != nil:
		return "panic"
	case a.err != nil:
		return "error"
	default:
		return outcome(a.response)
	}
}

// Both return an error for a request that is not one, the other server with a code that says nothing.
func TestException_malformedRequests(t *testing.T) {
	addr, flush := onMiniredis(t)
	other := newOtherServer(t, addr, flush, switches{})
	rules := parseRules(t, tenAMinute)
	require.NoError(t, other.use(rules))
	service := ours(t, rules, switches{})
	for name, r := range map[string]*ratelimitv3.RateLimitRequest{
		"no domain":      {Descriptors: parseRequest(t, "edge a=x").Descriptors},
		"no descriptors": {Domain: "edge"},
	} {
		t.Run(name, func(t *testing.T) {
			theirs := other.ask(time.Now(), r)
			require.Error(t, theirs.err)
			assert.Equal(t, codes.Unknown, status.Code(theirs.err))
			_, err := service.ShouldRateLimit(t.Context(), r)
			require.Error(t, err)
			assert.Equal(t, codes.InvalidArgument, status.Code(err))
		})
	}
	t.Run("no entries", func(t *testing.T) {
		r := &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonv3.RateLimitDescriptor{{}}}
		theirs := other.ask(time.Now(), r)
		require.NoError(t, theirs.err)
		response, err := service.ShouldRateLimit(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, text(theirs.response), text(response))
	})
}

// The other server counts hits of rejected requests against limits that requests bring with them. weirrls does with
// OverridesCountRejected, and else not: see TestOracle for the former.
func TestException_overridesAreExact(t *testing.T) {
	rules := parseRules(t, tenAMinute)
	inBubble(t, func(t *testing.T) {
		service := exact(t, rules)
		ask := func(text string) string {
			r := parseRequest(t, text)
			limitOf(5, typev3.RateLimitUnit_MINUTE, 0)(r)
			response, err := service.ShouldRateLimit(t.Context(), r)
			require.NoError(t, err)
			return outcome(response)
		}
		assert.Equal(t, "OK 2", ask("edge a=x+3"))
		assert.Equal(t, "OVER_LIMIT over", ask("edge a=x+3"))
		assert.Equal(t, "OK 0", ask("edge a=x+2"))
		assert.Equal(t, "OVER_LIMIT over", ask("edge a=x+0"))
	})
}
