package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

func TestLimitsOptions_Headers(t *testing.T) {
	one := bucket(t, 2)
	l := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Policies: map[string]Policy{
		"shared":   {Limiter: one},
		"per-user": {Partitioned: keyedBuckets(t, 5), Quota: 5, Window: time.Hour, Key: Header("X-Api-Key")},
		"legacy":   {Limiter: one, Headers: Legacy},
		"capacity": {Limiter: concurrency(t, 1, 0)},
		"by request": {Requests: limiter.Translate(limiter.Partitioned[string](keyedBuckets(t, 5)), func(r *http.Request) string {
			return r.Host
		})},
	}}))
	w := get(l.Handler(served, "per-user", "shared", "capacity", "by request"))
	assert.Equal(t, []string{`"per-user";q=5;w=3600`, `"shared";q=2;w=3600`}, w.Result().Header["Ratelimit-Policy"])
	assert.Equal(t, []string{`"per-user";r=4;t=3600`, `"shared";r=1;t=3600`}, w.Result().Header["Ratelimit"])

	get(l.Handler(served, "shared"))
	w = get(l.Handler(served, "shared"))
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, []string{`"shared";r=0;t=3600`}, w.Result().Header["Ratelimit"])
	assert.Equal(t, "3600", w.Result().Header.Get("Retry-After"))

	w = get(l.Handler(served, "legacy"))
	assert.Equal(t, "2", w.Result().Header.Get("X-RateLimit-Limit"))
	assert.Equal(t, "0", w.Result().Header.Get("X-RateLimit-Remaining"))
}

func TestLimitsOptions_RegistryReload(t *testing.T) {
	limit := 1
	r := registry.New(nil)
	defer r.Close(context.WithoutCancel(t.Context()))
	require.NoError(t, r.Define("per-user", func(b *registry.Builder) error {
		each := limiter.TokenBucketOptions{TokenLimit: limit, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
		perUser := registry.Partitioned(b, "per-user", Header("X-Api-Key"), each, nil)
		b.Add(ratelimit.NewPartitioned(perUser, RequestFrom, nil))
		return nil
	}))
	require.NoError(t, r.Define("broken", func(*registry.Builder) error { return errStore }))
	before := yes()
	var got Rejection
	l := weir.Must(NewLimits(&LimitsOptions{
		Global: Policy{Limiter: before}, Registry: r,
		OnRejected: func(_ http.ResponseWriter, _ *http.Request, r Rejection) { got = r },
	}))
	_, err := l.Wrap("broken")
	require.ErrorIs(t, err, errStore)

	h := l.Handler(served, "per-user")
	assert.Equal(t, 200, get(h).Code)
	w := get(h)
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, "3600", w.Result().Header.Get("Retry-After"))
	assert.Equal(t, "per-user", got.Policy)
	before.check(t, 2, 1, 1)
	limit = 2
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, 200, get(h).Code)
	assert.Equal(t, 429, get(h).Code)
}

func TestLimitsOptions_Listener(t *testing.T) {
	heard := &recording{}
	l := weir.Must(NewLimits(&LimitsOptions{
		Name: "shop", Listener: heard,
		Global: Policy{Limiter: yes()},
		Policies: map[string]Policy{
			"ok": {Limiter: yes()}, "no": {Limiter: no()}, "shadow": {Limiter: no(), Shadow: true},
			"down": {Limiter: &always{err: errStore}}, "open": {Limiter: &always{err: errStore}, FailOpen: true},
		},
	}))
	for _, c := range []struct {
		policy, event, measurements string
	}{
		{"ok", "[]", "[RateLimiterRequest global RateLimiterRequest ok RateLimiterLease ok RateLimiterLease global]"},
		{"no", "[OnRateLimiterRejected no]", "[RateLimiterRequest global RateLimiterRequest no RateLimiterLease global]"},
		{"shadow", "[OnRateLimiterShadowRejected shadow]", "[RateLimiterRequest global RateLimiterRequest shadow RateLimiterLease global]"},
		{"down", "[OnRateLimiterFailed down]", "[RateLimiterRequest global RateLimiterRequest down RateLimiterLease global]"},
		{"open", "[OnRateLimiterFailedOpen open]", "[RateLimiterRequest global RateLimiterRequest open RateLimiterLease global]"},
	} {
		*heard = recording{}
		get(l.Handler(served, c.policy))
		assert.Equal(t, c.event, fmt.Sprint(names(heard.events)), c.policy)
		assert.Equal(t, c.measurements, fmt.Sprint(names(heard.measurements)), c.policy)
		for _, e := range append(heard.events, heard.measurements...) {
			assert.Equal(t, "shop", e.Source.Pipeline)
		}
	}
}

// choosy is a Listener that can decline events.
type choosy struct {
	recording
	enabled bool
}

func (c *choosy) Enabled(context.Context) bool { return c.enabled }

// A Listener that declines a request when it begins gets nothing of it, so that it never sees the end of a lease
// without the beginning.
func TestLimitsOptions_ListenerIsAskedOnceForARequest(t *testing.T) {
	heard := &choosy{}
	l := weir.Must(NewLimits(&LimitsOptions{Listener: heard, Policies: map[string]Policy{"ok": {Limiter: yes()}, "no": {Limiter: no()}}}))
	get(l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard.enabled = true }), "ok"))
	assert.Empty(t, heard.measurements)
	get(l.Handler(served, "no"))
	assert.Equal(t, []string{"OnRateLimiterRejected no"}, names(heard.events))
	assert.Equal(t, []string{"RateLimiterRequest no"}, names(heard.measurements))
	heard.enabled = false
	get(l.Handler(served, "no"))
	assert.Len(t, heard.events, 1)

	var none *recording
	assert.Equal(t, 200, get(weir.Must(NewLimits(&LimitsOptions{Listener: none, Global: Policy{Limiter: yes()}})).MustWrap()(served)).Code)
}

func TestPolicy_Timeout(t *testing.T) {
	heard := &recording{}
	held := yes()
	l := weir.Must(NewLimits(&LimitsOptions{Listener: heard, Policies: map[string]Policy{
		"p": {Limiter: held, Timeout: time.Millisecond}, "longer": {Limiter: yes(), Timeout: time.Hour},
	}}))
	w := get(l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		cause, ok := context.Cause(r.Context()).(*TimeoutError)
		assert.True(t, ok)
		assert.True(t, cause.Timeout())
	}), "longer", "p"))
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, []string{"OnTimeout p"}, names(heard.events))
	assert.ErrorIs(t, heard.events[0].Err, pipeline.ErrRejected)
	assert.EqualError(t, heard.events[0].Err, "weirhttp: policy p: no answer within 1ms")
	held.check(t, 1, 1, 0) // it ran, so it cost
}
