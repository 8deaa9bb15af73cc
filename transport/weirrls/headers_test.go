package weirrls

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// rejecting is a limiter that rejects with this wait; 0 is not known.
type rejecting time.Duration

func (r rejecting) TryAcquire(context.Context, int) (limiter.Lease, error) {
	return custom.Rejected(time.Duration(r), ""), nil
}
func (r rejecting) Acquire(context.Context, int) (limiter.Lease, error) {
	panic("the service does not wait")
}

func rejectingRule(key string, after time.Duration, quota bool) Descriptor {
	return Descriptor{Key: key, Limit: &Limit{Name: key, Limiter: rejecting(after), Quota: quota}}
}

func TestHeaders_RetryAfter(t *testing.T) {
	s := newService(t, nil,
		rejectingRule("short", time.Millisecond, false), rejectingRule("long", 1001*time.Millisecond, false),
		rejectingRule("unknown", 0, false),
		rejectingRule("q30", 30*time.Second, true), rejectingRule("q60", time.Minute, true), potRule("ok", newPot(9)),
	)
	for _, tt := range []struct {
		want string
		keys []string
	}{
		{"1", []string{"short"}},
		{"2", []string{"short", "long", "ok"}},
		{"", []string{"unknown"}},
		{"30", []string{"q30", "q60"}}, // one of the quotas is enough
		{"30", []string{"q30", "q60", "long"}},
		{"2", []string{"long", "ok"}},
	} {
		r := request()
		for _, key := range tt.keys {
			r.Descriptors = append(r.Descriptors, describe(key, ""))
		}
		assert.Equal(t, tt.want, headersOf(ask(t, s, r.Descriptors...))["retry-after"], tt.keys)
	}
	s = newService(t, &ServiceOptions{NoRetryAfter: true}, rejectingRule("long", 1001*time.Millisecond, false))
	answer := ask(t, s, describe("long", ""))
	assert.NotContains(t, headersOf(answer), "retry-after")
	assert.NotNil(t, answer.Statuses[0].DurationUntilReset)
}

func TestHeaders_Problem(t *testing.T) {
	away := newPot(1)
	away.failure = limiter.ErrClosed
	s := newService(t, &ServiceOptions{Problem: true},
		rejectingRule("calls", 1500*time.Millisecond, false), potRule("away", away), potRule("ok", newPot(9)))
	assert.Empty(t, ask(t, s, describe("ok", "")).RawBody)
	r := ask(t, s, describe("ok", ""), describe("calls", ""))
	assert.Equal(t, map[string]string{"retry-after": "2", "content-type": "application/problem+json"}, headersOf(r))
	assert.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The quota of requests is exceeded.",`+
		`"detail":"Try again in 2 s.","violated-policies":["calls"]}`, string(r.RawBody))
	r = ask(t, s, describe("away", ""))
	var body map[string]any
	require.NoError(t, json.Unmarshal(r.RawBody, &body))
	assert.Equal(t, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", body["type"])
}

func TestHeaders_Quota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, &ServiceOptions{Headers: true},
			Descriptor{Key: "a", Limit: windowOf(10, Minute)}, Descriptor{Key: "b", Limit: windowOf(3, Hour)},
			Descriptor{Key: "q", Limit: &Limit{Window: &Window{1, Day}, Quota: true}},
			potRule("unsized", newPot(1)), Descriptor{Key: "free", Limit: &Limit{Unlimited: true}},
		)
		assert.Equal(t, map[string]string{"RateLimit-Limit": "3", "RateLimit-Remaining": "2", "RateLimit-Reset": "3600"},
			headersOf(ask(t, s, describe("a", ""), describe("b", ""), describe("unsized", ""), describe("free", ""), describe("none", ""))))
		assert.Equal(t, map[string]string{"RateLimit-Limit": "10", "RateLimit-Remaining": "0", "RateLimit-Reset": "60", "retry-after": "60"},
			headersOf(ask(t, s, withHits(11, describe("a", "")), describe("b", ""))))
		ask(t, s, describe("q", ""), describe("b", ""))
		assert.Equal(t, "0", headersOf(ask(t, s, describe("b", ""), describe("q", ""), describe("none", "")))["RateLimit-Remaining"])
		assert.Empty(t, headersOf(ask(t, s, describe("free", ""), describe("none", ""))))
	})
}

func TestDynamicMetadata(t *testing.T) {
	meta := func(m map[string]any, l *Limit) Descriptor { return Descriptor{Limit: l, Metadata: m} }
	a := meta(map[string]any{"tier": "gold", "deep": map[string]any{"a": 1}}, windowOf(50, Day))
	b := meta(map[string]any{"tier": "later", "deep": map[string]any{"b": []any{true}}}, windowOf(50, Day))
	over := meta(map[string]any{"over": 1}, windowOf(0, Day))
	shadow := meta(map[string]any{"shadow": 1}, &Limit{Window: &Window{0, Day}, Shadow: true})
	free := meta(map[string]any{"free": 1}, &Limit{Unlimited: true})
	a.Key, b.Key, over.Key, shadow.Key, free.Key = "a", "b", "over", "shadow", "free"
	s := newService(t, &ServiceOptions{DynamicMetadata: true}, a, b, over, shadow, free)
	r := request(describe("a", "1", "x", "y"), withHits(2, describe("a", "")), describe("b", ""), describe("over", ""), describe("shadow", ""),
		describe("free", ""), overriding(7, 2, describe("o", "\xff")))
	r.HitsAddend = 3
	for range 2 {
		response, err := s.ShouldRateLimit(t.Context(), r)
		require.NoError(t, err)
		text, err := protojson.Marshal(response.DynamicMetadata)
		require.NoError(t, err)
		assert.JSONEq(t, `{"domain": "edge", "hitsAddend": 3, "descriptors": [
			{"entries": ["a=1", "x=y"]}, {"entries": ["a="], "hitsAddend": 2}, {"entries": ["b="]}, {"entries": ["over="]},
			{"entries": ["shadow="]}, {"entries": ["free="]}, {"entries": ["o=\ufffd"], "limit": "requests_per_unit:7 unit:MINUTE"}
		], "metadata": {"tier": "gold", "deep": {"a": 1, "b": [true]}, "shadow": 1}}`, string(text))
		_, err = proto.Marshal(response)
		require.NoError(t, err)
		r.Descriptors[1] = withHits(2, describe("a", ""))
	}
	alone := ask(t, s, describe("a", "")).DynamicMetadata.AsMap()["metadata"]
	assert.Equal(t, map[string]any{"tier": "gold", "deep": map[string]any{"a": 1.0}}, alone, "the rules are as before")
	assert.Nil(t, ask(t, newService(t, nil, a), describe("a", "")).DynamicMetadata)
}
