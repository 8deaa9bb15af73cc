package limiter

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
)

func TestOptions_JSON(t *testing.T) {
	want := TokenBucketOptions{
		TokenLimit: 5, TokensPerPeriod: 2, ReplenishmentPeriod: time.Second,
		QueueLimit: 3, QueueOrder: NewestFirst,
	}
	text, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, `{"token_limit":5,"tokens_per_period":2,"replenishment_period":1000000000,
		"queue_limit":3,"queue_order":"newest_first"}`, string(text))
	var got TokenBucketOptions
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, want, got)

	text, err = json.Marshal(ConcurrencyOptions{PermitLimit: 1})
	require.NoError(t, err)
	require.JSONEq(t, `{"permit_limit":1}`, string(text))
	require.ErrorIs(t, json.Unmarshal([]byte(`{"queue_order":"fairest"}`), new(ConcurrencyOptions)), ErrInvalidOptions)
}

// The least that is valid, of each.
func TestOptions_ValidateValid(t *testing.T) {
	for _, o := range []interface{ Validate() error }{
		ConcurrencyOptions{PermitLimit: 1},
		ConcurrencyOptions{PermitLimit: math.MaxInt, QueueLimit: math.MaxInt, QueueOrder: NewestFirst},
		FixedWindowOptions{PermitLimit: 1, Window: 1},
		FixedWindowOptions{PermitLimit: math.MaxInt, Window: math.MaxInt64, QueueLimit: math.MaxInt},
		SlidingWindowOptions{PermitLimit: 1, Window: 1, SegmentsPerWindow: 1},
		SlidingWindowOptions{PermitLimit: 1, Window: rate.MaxSegments, SegmentsPerWindow: rate.MaxSegments},
		TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: 1},
		TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: math.MaxInt, ReplenishmentPeriod: math.MaxInt64},
	} {
		require.NoError(t, o.Validate(), "%+v", o)
	}
}

// Every field that is wrong is named, all in one error.
func TestOptions_ValidateErrors(t *testing.T) {
	const queue = "QueueLimit must be at least 0, got -1; QueueOrder must be OldestFirst, NewestFirst or Fair, got QueueOrder(7)"
	for _, test := range []struct {
		options interface{ Validate() error }
		want    string
	}{
		{
			ConcurrencyOptions{QueueLimit: -1, QueueOrder: 7},
			"PermitLimit must be at least 1, got 0; " + queue,
		},
		{
			FixedWindowOptions{PermitLimit: -3, QueueLimit: -1, QueueOrder: 7},
			"PermitLimit must be at least 1, got -3; Window must be more than 0, got 0s; " + queue,
		},
		{
			SlidingWindowOptions{Window: -time.Second, QueueLimit: -1, QueueOrder: 7},
			"PermitLimit must be at least 1, got 0; Window must be more than 0, got -1s; " +
				"SegmentsPerWindow must be at least 1, got 0; " + queue,
		},
		{
			SlidingWindowOptions{PermitLimit: 1, Window: 10, SegmentsPerWindow: 3},
			"Window must be divisible by SegmentsPerWindow, which is 3, got 10ns",
		},
		{
			SlidingWindowOptions{PermitLimit: 1, Window: 1, SegmentsPerWindow: 2},
			"Window must be divisible by SegmentsPerWindow, which is 2, got 1ns",
		},
		{
			SlidingWindowOptions{PermitLimit: 1, Window: time.Hour, SegmentsPerWindow: rate.MaxSegments + 1},
			"SegmentsPerWindow must be at most 1000, got 1001",
		},
		{
			SlidingWindowOptions{PermitLimit: 1, Window: time.Hour, SegmentsPerWindow: math.MinInt},
			"SegmentsPerWindow must be at least 1, got " + strconv.Itoa(math.MinInt),
		},
		{
			TokenBucketOptions{QueueLimit: -1, QueueOrder: 7},
			"TokenLimit must be at least 1, got 0; TokensPerPeriod must be at least 1, got 0; " +
				"ReplenishmentPeriod must be more than 0, got 0s; " + queue,
		},
	} {
		err := test.options.Validate()
		require.ErrorIs(t, err, ErrInvalidOptions)
		require.EqualError(t, err, "limiter: "+test.want)
	}
}

func TestConstructors_Validate(t *testing.T) {
	for name, make := range map[string]func() (Limiter, error){
		"ConcurrencyOptions":   func() (Limiter, error) { return NewConcurrency(ConcurrencyOptions{}) },
		"FixedWindowOptions":   func() (Limiter, error) { return NewFixedWindow(FixedWindowOptions{}) },
		"SlidingWindowOptions": func() (Limiter, error) { return NewSlidingWindow(SlidingWindowOptions{}) },
		"TokenBucketOptions":   func() (Limiter, error) { return NewTokenBucket(TokenBucketOptions{}) },
	} {
		l, err := make()
		require.ErrorIs(t, err, ErrInvalidOptions)
		require.ErrorContains(t, err, "must be", name)
		require.Nil(t, l, name)
	}
}
