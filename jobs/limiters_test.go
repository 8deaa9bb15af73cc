package jobs

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func wrong(o definition) []string {
	var p problems
	o.check(&p)
	return p.list
}

func TestOptions_ThatAreRight(t *testing.T) {
	const s = time.Second
	for _, o := range []definition{
		SemaphoreOptions{MaxCount: 1}, SemaphoreOptions{MaxCount: maxCount},
		FixedWindowOptions{Limit: 1, Interval: s}, FixedWindowOptions{Limit: maxCount, Interval: maxWindow},
		FixedWindowOptions{Limit: 1, Interval: 1001 * time.Millisecond},
		SlidingWindowOptions{Limit: 4, Interval: time.Hour, Buckets: 3}, SlidingWindowOptions{Limit: 1, Interval: s, Buckets: 1},
		SlidingWindowOptions{Limit: 1, Interval: 1000 * s, Buckets: 1000}, SlidingWindowOptions{Limit: maxCount, Interval: maxWindow, Buckets: 1000},
		DynamicWindowOptions{Limit: 1, Interval: s}, DynamicWindowOptions{Limit: 1, Interval: s, Buckets: 1},
		DynamicWindowOptions{Capacity: 1, Interval: s}, DynamicWindowOptions{Capacity: 20, Limit: 4, Interval: s},
		DynamicWindowOptions{Capacity: 20, MinLimit: 2, MaxLimit: 20, Interval: s}, DynamicWindowOptions{Capacity: 20, MinLimit: 20, Interval: s},
		DynamicWindowOptions{Capacity: 20, MaxLimit: 1, Interval: s}, DynamicWindowOptions{Capacity: 20, Limit: 20, Interval: s, AtOnce: true},
		DynamicWindowOptions{Limit: 1, Interval: 1000 * s, Buckets: 1000, MaxKeys: mostMaxKeys},
		DynamicWindowOptions{Capacity: maxCount, MinLimit: maxCount, MaxLimit: maxCount, Interval: maxWindow},
	} {
		assert.Empty(t, wrong(o), "%T%+v", o, o)
	}
}

func TestOptions_NameEveryWrongField(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		o    definition
		want []string
	}{
		{SemaphoreOptions{}, []string{"MaxCount is 0, must be 1 to 1000000000"}},
		{SemaphoreOptions{MaxCount: -1}, []string{"MaxCount is -1, must be 1 to"}},
		{SemaphoreOptions{MaxCount: maxCount + 1}, []string{"MaxCount is 1000000001, must be 1 to 1000000000"}},

		{FixedWindowOptions{}, []string{"Limit is 0, must be 1 to 1000000000", "Interval is 0s, must be 1s to 87600h0m0s"}},
		{FixedWindowOptions{Limit: 1, Interval: s - 1}, []string{"Interval is 999.999999ms, must be 1s to"}},
		{FixedWindowOptions{Limit: 1, Interval: -s}, []string{"Interval is -1s, must be 1s to"}},
		{FixedWindowOptions{Limit: 1, Interval: s + 1}, []string{"Interval is 1.000000001s, divided by Buckets it must be whole milliseconds"}},
		{FixedWindowOptions{Limit: 1, Interval: maxWindow + time.Millisecond}, []string{"Interval is 87600h0m0.001s, must be 1s to 87600h0m0s"}},
		{FixedWindowOptions{Limit: 1, Interval: math.MaxInt64}, []string{"Interval is 2562047h47m16.854775807s, must be"}},
		{FixedWindowOptions{Limit: 1, Interval: math.MinInt64}, []string{"must be 1s to"}},

		{SlidingWindowOptions{}, []string{"Limit is 0", "Interval is 0s", "Buckets is 0, must be 1 to 1000"}},
		{SlidingWindowOptions{Limit: 1, Interval: 10 * s}, []string{"Buckets is 0, must be 1 to 1000"}},
		{SlidingWindowOptions{Limit: 1, Interval: 10 * s, Buckets: -1}, []string{"Buckets is -1, must be 1 to 1000"}},
		{SlidingWindowOptions{Limit: 1, Interval: 1e6 * s, Buckets: 1001}, []string{"Buckets is 1001, must be 1 to 1000"}},
		{SlidingWindowOptions{Limit: -1, Interval: 0, Buckets: 1001}, []string{"Limit is -1", "Interval is 0s", "Buckets is 1001, must be 1 to 1000"}},
		{SlidingWindowOptions{Limit: 1, Interval: 10 * s, Buckets: 11}, []string{"Buckets is 11, must be at most 10: a bucket of an interval of 10s must be at least 1s"}},
		{SlidingWindowOptions{Limit: 1, Interval: 10 * s, Buckets: 3}, []string{"Interval is 10s, divided by Buckets it must be whole milliseconds"}},
		{SlidingWindowOptions{Limit: 1, Interval: 10 * s, Buckets: math.MaxInt}, []string{fmt.Sprintf("Buckets is %d, must be 1 to 1000", math.MaxInt)}},

		{DynamicWindowOptions{}, []string{"Interval is 0s", "Limit is 0, must be at least 1 without Capacity"}},
		{DynamicWindowOptions{Interval: s, Limit: -1, Capacity: -2, MinLimit: -3, MaxLimit: -4, Buckets: -5, MaxKeys: -6}, []string{
			"Limit is -1, must be 0 to", "Capacity is -2, must be 0 to", "MinLimit is -3, must be 0 to", "MaxLimit is -4, must be 0 to",
			"Buckets is -5, must be 0 to 1000", "MaxKeys is -6, must be 0 to 10000"}},
		{DynamicWindowOptions{Interval: s, Limit: 1, MaxKeys: mostMaxKeys + 1}, []string{"MaxKeys is 10001, must be 0 to 10000"}},
		{DynamicWindowOptions{Interval: 0, Limit: 1, Buckets: 1001}, []string{"Interval is 0s", "Buckets is 1001, must be 0 to 1000"}},
		{DynamicWindowOptions{Interval: 10 * s, Limit: 1, Buckets: 11}, []string{"Buckets is 11, must be at most 10"}},
		{DynamicWindowOptions{Interval: s, MinLimit: 2}, []string{"MinLimit and MaxLimit need Capacity, which is 0"}},
		{DynamicWindowOptions{Interval: s, MaxLimit: 2}, []string{"MinLimit and MaxLimit need Capacity, which is 0"}},
		{DynamicWindowOptions{Interval: s, Limit: 1, MinLimit: 2, Capacity: 9}, []string{"Limit is 1, must be 0 with MinLimit or MaxLimit"}},
		{DynamicWindowOptions{Interval: s, Limit: 1, MinLimit: 2}, []string{"MinLimit and MaxLimit need Capacity", "Limit is 1, must be 0 with MinLimit or MaxLimit"}},
		{DynamicWindowOptions{Interval: s, MaxLimit: 10, Capacity: 9}, []string{"MaxLimit is 10, must be at most Capacity, 9"}},
		{DynamicWindowOptions{Interval: s, MinLimit: 10, Capacity: 9}, []string{"MinLimit is 10, must be at most Capacity, 9"}},
		{DynamicWindowOptions{Interval: s, Limit: 10, Capacity: 9}, []string{"Limit is 10, must be at most Capacity, 9"}},
		{DynamicWindowOptions{Interval: s, MinLimit: 11, MaxLimit: 10, Capacity: 9}, []string{
			"MinLimit is 11, must be at most Capacity, 9", "MaxLimit is 10, must be at most Capacity, 9"}},
		{DynamicWindowOptions{Interval: s, MinLimit: 3, MaxLimit: 2, Capacity: 9}, []string{"MinLimit is 3, must be at most MaxLimit, 2"}},
		{DynamicWindowOptions{Interval: s, Limit: 10, MinLimit: 10, MaxLimit: 10, Capacity: 9}, []string{
			"Limit is 10, must be 0 with", "Limit is 10, must be at most Capacity, 9", "MinLimit is 10, must be at most Capacity", "MaxLimit is 10, must be at most Capacity"}},
		{DynamicWindowOptions{Interval: s, Limit: 3, AtOnce: true}, []string{"AtOnce needs Capacity, which is 0"}},
	} {
		got := wrong(c.o)
		assert.Len(t, got, len(c.want), "%T%+v: %q", c.o, c.o, got)
		for _, want := range c.want {
			assert.Contains(t, strings.Join(got, "\n"), want, "%T%+v", c.o, c.o)
		}
	}
}

func TestRules(t *testing.T) {
	const s, us = time.Second, int64(1_000_000)
	for _, c := range []struct {
		o    definition
		want rules
	}{
		{SemaphoreOptions{MaxCount: 3}, rules{maxCount: 3}},
		{FixedWindowOptions{Limit: 3, Interval: time.Minute}, rules{bucket: 60 * us, buckets: 1, limit: 3}},
		{SlidingWindowOptions{Limit: 3, Interval: time.Minute, Buckets: 20}, rules{bucket: 3 * us, buckets: 20, limit: 3}},
		{SlidingWindowOptions{Limit: maxCount, Interval: maxWindow, Buckets: 1}, rules{bucket: 315_360_000 * us, buckets: 1, limit: 1e9}},
		{DynamicWindowOptions{Limit: 4, Interval: time.Hour}, rules{bucket: 3600 * us, buckets: 1, limit: 4, dynamic: &sharing{min: 4, max: 4, keys: 1000}}},
		{DynamicWindowOptions{Limit: 4, Interval: time.Hour, Buckets: 60, MaxKeys: 7}, rules{bucket: 60 * us, buckets: 60, limit: 4, dynamic: &sharing{min: 4, max: 4, keys: 7}}},
		{DynamicWindowOptions{Capacity: 20, Limit: 4, Interval: s}, rules{bucket: us, buckets: 1, limit: 4, dynamic: &sharing{capacity: 20, min: 4, max: 4, keys: 5}}},
		{DynamicWindowOptions{Capacity: 20, Limit: 4, MaxKeys: 3, Interval: s}, rules{bucket: us, buckets: 1, limit: 4, dynamic: &sharing{capacity: 20, min: 4, max: 4, keys: 3}}},
		{DynamicWindowOptions{Capacity: 20, MinLimit: 2, MaxLimit: 20, Interval: s}, rules{bucket: us, buckets: 1, limit: 20, dynamic: &sharing{capacity: 20, min: 2, max: 20, keys: 10}}},
		{DynamicWindowOptions{Capacity: 20, MinLimit: 3, Interval: s}, rules{bucket: us, buckets: 1, limit: 20, dynamic: &sharing{capacity: 20, min: 3, max: 20, keys: 6}}},
		{DynamicWindowOptions{Capacity: 20, MaxLimit: 5, AtOnce: true, Interval: s}, rules{bucket: us, buckets: 1, limit: 5, dynamic: &sharing{capacity: 20, min: 1, max: 5, keys: 20, atOnce: true}}},
		{DynamicWindowOptions{Capacity: maxCount, Interval: s}, rules{bucket: us, buckets: 1, limit: maxCount, dynamic: &sharing{capacity: maxCount, min: 1, max: maxCount, keys: 1000}}},
	} {
		require.Empty(t, wrong(c.o))
		text, err := json.Marshal(c.o)
		require.NoError(t, err)
		got, err := readRules(c.o.limiterType(), text)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%s", text)
	}
	got, err := readRules(Mutex, []byte(`{}`))
	require.NoError(t, err)
	assert.Equal(t, rules{maxCount: 1}, got)
}

// A row that a newer program or a person has written must be an error: a zero would divide by zero, or throttle nothing.
func TestRules_OfOptionsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		typ  Type
		text string
	}{
		{"queue", `{}`}, {"", `{}`}, {Semaphore, `{}`}, {Semaphore, `{"max_count": 0}`}, {Semaphore, `{"max_count": -1}`}, {Semaphore, `{"max_count": 1e30}`},
		{Semaphore, `[]`}, {Semaphore, ``}, {FixedWindow, `{"limit": 1}`}, {FixedWindow, `{"limit": 1, "interval": 1}`}, {FixedWindow, `{"limit": 1, "interval": -1000000000}`},
		{FixedWindow, `{"limit": 0, "interval": 1000000000}`}, {FixedWindow, `{"limit": -1, "interval": 1000000000}`},
		{SlidingWindow, `{"limit": 1, "interval": 1000000000, "buckets": 2000000000}`}, {SlidingWindow, `{"limit": 1, "interval": "1h", "buckets": 2}`},
		{DynamicWindow, `{}`}, {DynamicWindow, `{"interval": 1000000000, "capacity": -1}`}, {DynamicWindow, `{"interval": 1000000000, "min_limit": -5, "max_limit": -5}`},
		{DynamicWindow, `null`},
	} {
		_, err := readRules(c.typ, []byte(c.text))
		assert.Error(t, err, "%s %s", c.typ, c.text)
	}
}
