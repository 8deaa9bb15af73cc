package rate_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rate"
)

func TestLimits_Validate(t *testing.T) {
	for _, l := range []rate.Limits{
		{Kind: rate.TokenBucket, Permits: 1, Refill: 1, Period: 1},
		{Kind: rate.FixedWindow, Permits: 1, Period: 1},
		{Kind: rate.SlidingWindow, Permits: 1, Period: 1000, Segments: 1000, QueueLimit: 1, QueueOrder: rate.NewestFirst},
		{Kind: rate.Concurrency, Permits: math.MaxInt},
		{Kind: rate.Calendar, Permits: 1, Every: rate.MonthFrom(31), Zone: "Europe/Berlin", QueueLimit: 1},
	} {
		assert.NoError(t, l.Validate(), "%+v", l)
	}
	for want, l := range map[string]rate.Limits{
		"limiter: Options must be set":                  {},
		"limiter: Kind must be a kind of limits, got 9": {Kind: 9},
		"limiter: TokenLimit must be at least 1, got 0; TokensPerPeriod must be at least 1, got -1; ReplenishmentPeriod must be more than 0, got 0s":                                                 {Kind: rate.TokenBucket, Refill: -1},
		"limiter: PermitLimit must be at least 1, got 0; Refill must be 0 for the kind fixed_window, got 2; Window must be more than 0, got 0s; Segments must be 0 for the kind fixed_window, got 3": {Kind: rate.FixedWindow, Refill: 2, Segments: 3},
		"limiter: Window must be divisible by SegmentsPerWindow, which is 3, got 1s":                                                                                                                 {Kind: rate.SlidingWindow, Permits: 1, Period: time.Second, Segments: 3},
		"limiter: Period must be 0 for the kind concurrency, got 1s; QueueLimit must be at least 0, got -1; QueueOrder must be OldestFirst, NewestFirst or Fair, got QueueOrder(7)":                  {Kind: rate.Concurrency, Permits: 1, Period: time.Second, QueueLimit: -1, QueueOrder: 7},
		"limiter: SegmentsPerWindow must be at most 1000, got 1001":                                                                                                                                  {Kind: rate.SlidingWindow, Permits: 1, Period: time.Second, Segments: 1001},
		"limiter: Every must be day, week, month or year, or one such as week from sunday or month from 15, got \"Cycle(255)\"; Zone must be the name of a time zone that this machine knows, such as \"Europe/Berlin\", or empty for UTC; if it has no time zone database, import _ \"time/tzdata\", got \"Local\"": {Kind: rate.Calendar, Permits: 1, Every: rate.MonthFrom(0), Zone: "Local"},
		"limiter: Every must be empty, and Zone too, for the kind fixed_window, got \"day\"": {Kind: rate.FixedWindow, Permits: 1, Period: 1, Every: rate.Day},
	} {
		err := l.Validate()
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, weir.ErrInvalidOptions)
	}
}

func TestOf(t *testing.T) {
	l := rate.Example(rate.SlidingWindow)
	assert.Equal(t, l, rate.Of(l))
	assert.Equal(t, l, rate.Of(&l))
	assert.Zero(t, rate.Of(nil))
	assert.Zero(t, rate.Of((*rate.Limits)(nil)))
	for k := rate.TokenBucket; k <= rate.Calendar; k++ {
		assert.NoError(t, rate.Example(k).Validate())
		assert.Equal(t, k, rate.Example(k).Kind)
	}
	assert.NoError(t, rate.Example(0).Validate())
}

func TestLimits_Quota(t *testing.T) {
	quota := func(l rate.Limits) [2]int64 {
		permits, window := l.Quota()
		return [2]int64{permits, int64(window)}
	}
	assert.Equal(t, [2]int64{10, 4}, quota(rate.Limits{Kind: rate.TokenBucket, Permits: 10, Refill: 3, Period: 1}))
	assert.Equal(t, [2]int64{10, math.MaxInt64}, quota(rate.Limits{Kind: rate.TokenBucket, Permits: 10, Refill: 1, Period: math.MaxInt64 / 2}))
	assert.Equal(t, [2]int64{10, 60}, quota(rate.Limits{Kind: rate.FixedWindow, Permits: 10, Period: 60}))
	assert.Equal(t, [2]int64{10, 60}, quota(rate.Limits{Kind: rate.SlidingWindow, Permits: 10, Period: 60, Segments: 6}))
	assert.Equal(t, [2]int64{10, 0}, quota(rate.Limits{Kind: rate.Concurrency, Permits: 10}))
	assert.Equal(t, [2]int64{10, int64(31 * 24 * time.Hour)}, quota(rate.Limits{Kind: rate.Calendar, Permits: 10, Every: rate.MonthFrom(15)}))
	assert.Equal(t, [2]int64{}, quota(rate.Limits{}))
}

func TestLimits_Share(t *testing.T) {
	bucket := rate.Limits{Kind: rate.TokenBucket, Permits: 10, Refill: 4, Period: time.Second}
	assert.Equal(t, rate.Limits{Kind: rate.TokenBucket, Permits: 5, Refill: 2, Period: time.Second}, bucket.Share(0.5))
	assert.Equal(t, rate.Limits{Kind: rate.TokenBucket, Permits: 1, Refill: 1, Period: 2500 * time.Millisecond}, bucket.Share(0.1))
	assert.Equal(t, rate.Limits{Kind: rate.FixedWindow, Permits: 1, Period: 60}, rate.Limits{Kind: rate.FixedWindow, Permits: 10, Period: 60}.Share(0.01))
}

func TestLimits_String(t *testing.T) {
	for want, l := range map[string]rate.Limits{
		"no limits": {},
		"token bucket: bursts of 20, then 1 every 100ms (10 a second); up to 5 wait": {Kind: rate.TokenBucket, Permits: 20, Refill: 1, Period: 100 * time.Millisecond, QueueLimit: 5},
		"fixed window: 100 a minute; no queue":                                       {Kind: rate.FixedWindow, Permits: 100, Period: time.Minute},
		"sliding window: 7 in any 1m, in steps of 10s; no queue":                     {Kind: rate.SlidingWindow, Permits: 7, Period: time.Minute, Segments: 6},
		"concurrency limiter: 3 at once; up to 2 wait, the newest first":             {Kind: rate.Concurrency, Permits: 3, QueueLimit: 2, QueueOrder: rate.NewestFirst},
		"calendar: 9 each month from 15, in Europe/Berlin; no queue":                 {Kind: rate.Calendar, Permits: 9, Every: rate.MonthFrom(15), Zone: "Europe/Berlin"},
		"token bucket: bursts of 1, then 7 every 3s (140 a minute); no queue":        {Kind: rate.TokenBucket, Permits: 1, Refill: 7, Period: 3 * time.Second},
	} {
		assert.Equal(t, want, l.String())
	}
}

func TestLimits_JSON(t *testing.T) {
	l := rate.Limits{Kind: rate.SlidingWindow, Permits: 7, Period: time.Minute, Segments: 6, QueueOrder: rate.NewestFirst}
	text, err := json.Marshal(l)
	require.NoError(t, err)
	assert.JSONEq(t, `{"kind": "sliding_window", "permits": 7, "period": 60000000000, "segments": 6, "queue_order": "newest_first"}`, string(text))
	var back rate.Limits
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, l, back.Limits())
}

func TestLimits_ShareOfAll(t *testing.T) {
	l := rate.Limits{Kind: rate.TokenBucket, Permits: math.MaxInt, Refill: math.MaxInt, Period: time.Second}
	assert.Equal(t, l, l.Share(1))
}
