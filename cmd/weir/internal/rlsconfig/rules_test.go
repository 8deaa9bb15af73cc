package rlsconfig

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/transport/weirrls"
)

// The name of a rule's limiter is one that limiters in stores can have, and that of no other rule.
func TestLimiterName(t *testing.T) {
	assert.Equal(t, "rls/edge/remote_address", limiterName([]string{"edge", "remote_address"}))
	seen := make(map[string]bool)
	for _, path := range [][]string{
		{"edge", "a", "b"}, {"edge", "a/b"}, {"edge", "a\\b"}, {"edge/a", "b"}, {"edge", "a_b"}, {"edge", "a*b"}, {"edge", "a b"}, {"edge", "a", ""},
		{"edge", strings.Repeat("x", 1000)}, {"edge", strings.Repeat("x", 1001)}, {"\x00\xff", "ä"},
	} {
		name := limiterName(path)
		assert.False(t, seen[name], name)
		seen[name] = true
		require.NoError(t, store.Check(name, limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Second}, nil), name)
	}
}

// A rule for one value has one counter, and little memory is set aside for it.
func TestRules_open(t *testing.T) {
	limit := &RateLimit{Unlimited: true}
	c := RLS{Domains: []Domain{{Domain: "d", Descriptors: []Descriptor{
		{Key: "a", RateLimit: limit, Descriptors: []Descriptor{{Key: "in", Value: "a", RateLimit: limit}}},
		{Key: "b", Value: "1", RateLimit: limit, Descriptors: []Descriptor{{Key: "in", Value: "b", RateLimit: limit}, {Key: "open", RateLimit: limit}}},
		{Key: "c", Value: "1-*", RateLimit: limit},
	}}}}
	open := make(map[string]bool)
	_, err := c.rules(func(path []string, isOpen bool, _ Descriptor) (*weirrls.Limit, error) {
		open[strings.Join(path[1:], "/")] = isOpen
		return &weirrls.Limit{Unlimited: true}, nil
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{"a": true, "a/in_a": true, "b_1": false, "b_1/in_b": false, "b_1/open": true, "c_1-*": true}, open)
}
