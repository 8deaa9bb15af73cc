package rlsconfig

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
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
