package limits_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/limits"
	"github.com/weir-go/weir/limiter"
)

func TestHasQueue(t *testing.T) {
	for _, with := range []any{
		limiter.TokenBucketOptions{QueueLimit: 1}, limiter.FixedWindowOptions{QueueLimit: 1},
		limiter.SlidingWindowOptions{QueueLimit: 1}, limiter.ConcurrencyOptions{QueueLimit: 1},
	} {
		assert.True(t, limits.HasQueue(with), "%T", with)
	}
	for _, without := range []any{
		limiter.TokenBucketOptions{}, limiter.FixedWindowOptions{}, limiter.SlidingWindowOptions{}, limiter.ConcurrencyOptions{}, nil, 5,
	} {
		assert.False(t, limits.HasQueue(without), "%T", without)
	}
}
