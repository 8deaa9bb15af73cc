package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

func TestLimitsOptions_Listener(t *testing.T) {
	heard := &recording{}
	l := weir.Must(NewLimits(&LimitsOptions{
		Name: "shop", Listener: heard,
		Global: Policy{Limit: Of(yes())},
		Policies: map[string]Policy{
			"ok": {Limit: Of(yes())}, "no": {Limit: Of(no())}, "shadow": {Limit: Of(no()), Shadow: true},
			"down": {Limit: Of(&always{err: errStore})}, "open": {Limit: Of(&always{err: errStore}), FailOpen: true},
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

// A Listener that declines a request when it begins gets nothing of it, so that it never sees the end of a lease
// without the beginning.
func TestLimitsOptions_ListenerIsAskedOnceForARequest(t *testing.T) {
	heard := &choosy{}
	l := weir.Must(NewLimits(&LimitsOptions{Listener: heard, Policies: map[string]Policy{"ok": {Limit: Of(yes())}, "no": {Limit: Of(no())}}}))
	get(l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard.enabled = true }), "ok"))
	assert.Empty(t, heard.measurements)
	get(l.Handler(served, "no"))
	assert.Equal(t, []string{"OnRateLimiterRejected no"}, names(heard.events))
	assert.Equal(t, []string{"RateLimiterRequest no"}, names(heard.measurements))
	heard.enabled = false
	get(l.Handler(served, "no"))
	assert.Len(t, heard.events, 1)

	var none *recording
	assert.Equal(t, 200, get(weir.Must(weir.Must(NewLimits(&LimitsOptions{Listener: none, Global: Policy{Limit: Of(yes())}})).Wrap())(served)).Code)
}

// choosy is a Listener that can decline events.
type choosy struct {
	recording
	enabled bool
}

func (c *choosy) Hooks() pipeline.Hooks {
	h := c.recording.Hooks()
	h.Enabled = c.Enabled
	return h
}

func (c *choosy) Enabled(context.Context) bool { return c.enabled }
