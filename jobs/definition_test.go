package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/jobs/internal/window"
)

// wrong returns the texts of what is wrong with o.
func wrong(o Definition) (texts []string) {
	var p validate.Problems
	o.check(&p)
	if err, ok := errors.AsType[*weir.OptionsError](p.Err("jobs")); ok {
		for _, f := range err.Fields {
			texts = append(texts, f.Error())
		}
	}
	return texts
}

func TestOptions_ThatAreRight(t *testing.T) {
	const s = time.Second
	for _, o := range []Definition{
		Definition{Semaphore: "x", MaxCount: 1}, Definition{Semaphore: "x", MaxCount: maxCount},
		Definition{FixedWindow: "x", Limit: 1, Interval: s}, Definition{FixedWindow: "x", Limit: maxCount, Interval: maxWindow},
		Definition{FixedWindow: "x", Limit: 1, Interval: 1001 * time.Millisecond},
		Definition{SlidingWindow: "x", Limit: 4, Interval: time.Hour, Buckets: 3}, Definition{SlidingWindow: "x", Limit: 1, Interval: s, Buckets: 1},
		Definition{SlidingWindow: "x", Limit: 1, Interval: 1000 * s, Buckets: 1000}, Definition{SlidingWindow: "x", Limit: maxCount, Interval: maxWindow, Buckets: 1000},
		Definition{DynamicWindow: "x", Capacity: 1, Interval: s}, Definition{DynamicWindow: "x", Capacity: 1, Interval: s, Buckets: 1},
		Definition{DynamicWindow: "x", Capacity: 20, MinLimit: 2, MaxLimit: 20, Interval: s}, Definition{DynamicWindow: "x", Capacity: 20, MinLimit: 20, Interval: s},
		Definition{DynamicWindow: "x", Capacity: 20, MaxLimit: 1, Interval: s},
		Definition{DynamicWindow: "x", Capacity: 1, Interval: 1000 * s, Buckets: 1000, MaxKeys: mostMaxKeys},
		Definition{DynamicWindow: "x", Capacity: maxCount, MinLimit: maxCount, MaxLimit: maxCount, Interval: maxWindow},
	} {
		assert.Empty(t, wrong(o), "%+v", o)
	}
}

func TestOptions_NameEveryWrongField(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		o    Definition
		want []string
	}{
		{Definition{Semaphore: "x"}, []string{"MaxCount must be 1 to 1000000000, got 0"}},
		{Definition{Semaphore: "x", MaxCount: -1}, []string{"MaxCount must be 1 to"}},
		{Definition{Semaphore: "x", MaxCount: maxCount + 1}, []string{"MaxCount must be 1 to 1000000000, got 1000000001"}},

		{Definition{FixedWindow: "x"}, []string{"Limit must be 1 to 1000000000, got 0", "Interval must be 1s to 87600h0m0s, got 0s"}},
		{Definition{FixedWindow: "x", Limit: 1, Interval: s - 1}, []string{"Interval must be 1s to"}},
		{Definition{FixedWindow: "x", Limit: 1, Interval: -s}, []string{"Interval must be 1s to"}},
		{Definition{FixedWindow: "x", Limit: 1, Interval: s + 1}, []string{"Interval must be whole milliseconds when divided by Buckets, got 1.000000001s"}},
		{Definition{FixedWindow: "x", Limit: 1, Interval: maxWindow + time.Millisecond}, []string{"Interval must be 1s to 87600h0m0s, got 87600h0m0.001s"}},
		{Definition{FixedWindow: "x", Limit: 1, Interval: math.MaxInt64}, []string{"Interval must be 1s to 87600h0m0s, got 2562047h47m16.854775807s"}},
		{Definition{FixedWindow: "x", Limit: 1, Interval: math.MinInt64}, []string{"must be 1s to"}},

		{Definition{SlidingWindow: "x"}, []string{"Limit must be 1", "Interval must be 1s", "Buckets must be 1 to 1000, got 0"}},
		{Definition{SlidingWindow: "x", Limit: 1, Interval: 10 * s}, []string{"Buckets must be 1 to 1000, got 0"}},
		{Definition{SlidingWindow: "x", Limit: 1, Interval: 10 * s, Buckets: -1}, []string{"Buckets must be 1 to 1000, got -1"}},
		{Definition{SlidingWindow: "x", Limit: 1, Interval: 1e6 * s, Buckets: 1001}, []string{"Buckets must be 1 to 1000, got 1001"}},
		{Definition{SlidingWindow: "x", Limit: -1, Interval: 0, Buckets: 1001}, []string{"Limit must be 1 to", "Interval must be 1s to", "Buckets must be 1 to 1000, got 1001"}},
		{Definition{SlidingWindow: "x", Limit: 1, Interval: 10 * s, Buckets: 11}, []string{"Buckets must be at most 10, so that Interval, which is 10s, has buckets of at least 1s, got 11"}},
		{Definition{SlidingWindow: "x", Limit: 1, Interval: 10 * s, Buckets: 3}, []string{"Interval must be whole milliseconds when divided by Buckets, got 10s"}},
		{Definition{SlidingWindow: "x", Limit: 1, Interval: 10 * s, Buckets: math.MaxInt}, []string{fmt.Sprintf("Buckets must be 1 to 1000, got %d", math.MaxInt)}},

		{Definition{DynamicWindow: "x"}, []string{"Interval must be 1s to", "Capacity must be 1 to 1000000000, got 0"}},
		{Definition{DynamicWindow: "x", Interval: s, Capacity: -2, MinLimit: -3, MaxLimit: -4, Buckets: -5, MaxKeys: -6}, []string{
			"Capacity must be 1 to", "MinLimit must be 0 to", "MaxLimit must be 0 to", "Buckets must be 0 to 1000, got -5", "MaxKeys must be 0 to 10000, got -6"}},
		{Definition{DynamicWindow: "x", Interval: s, Capacity: 1, MaxKeys: mostMaxKeys + 1}, []string{"MaxKeys must be 0 to 10000, got 10001"}},
		{Definition{DynamicWindow: "x", Interval: 0, Capacity: 1, Buckets: 1001}, []string{"Interval must be 1s to", "Buckets must be 0 to 1000, got 1001"}},
		{Definition{DynamicWindow: "x", Interval: 10 * s, Capacity: 1, Buckets: 11}, []string{"Buckets must be at most 10"}},
		{Definition{DynamicWindow: "x", Interval: s, Limit: 1, Capacity: 9}, []string{"must have only the options of a dynamic window"}},
		{Definition{DynamicWindow: "x", Interval: s, MaxLimit: 10, Capacity: 9}, []string{"MaxLimit must be 0 to Capacity, which is 9, got 10"}},
		{Definition{DynamicWindow: "x", Interval: s, MinLimit: 10, Capacity: 9}, []string{"MinLimit must be 0 to Capacity, which is 9, got 10"}},
		{Definition{DynamicWindow: "x", Interval: s, MinLimit: 3, MaxLimit: 2, Capacity: 9}, []string{"MinLimit must be at most MaxLimit, which is 2, got 3"}},
	} {
		got := wrong(c.o)
		assert.Len(t, got, len(c.want), "%+v: %q", c.o, got)
		for _, want := range c.want {
			assert.Contains(t, strings.Join(got, "\n"), want, "%+v", c.o)
		}
	}
}

func TestRules(t *testing.T) {
	const s, us = time.Second, int64(1_000_000)
	for _, c := range []struct {
		o    Definition
		want rules
	}{
		{Definition{Semaphore: "x", MaxCount: 3}, rules{maxCount: 3}},
		{Definition{FixedWindow: "x", Limit: 3, Interval: time.Minute}, rules{window: window.Rules{Bucket: 60 * us, Buckets: 1, Limit: 3}}},
		{Definition{SlidingWindow: "x", Limit: 3, Interval: time.Minute, Buckets: 20}, rules{window: window.Rules{Bucket: 3 * us, Buckets: 20, Limit: 3}}},
		{Definition{SlidingWindow: "x", Limit: maxCount, Interval: maxWindow, Buckets: 1}, rules{window: window.Rules{Bucket: 315_360_000 * us, Buckets: 1, Limit: 1e9}}},
		{Definition{DynamicWindow: "x", Capacity: 20, MinLimit: 4, MaxLimit: 4, MaxKeys: 3, Interval: s}, rules{window: window.Rules{Bucket: us, Buckets: 1, Limit: 4, Shares: &window.Shares{Capacity: 20, Min: 4, Keys: 3}}}},
		{Definition{DynamicWindow: "x", Capacity: 20, MinLimit: 2, MaxLimit: 20, Interval: s}, rules{window: window.Rules{Bucket: us, Buckets: 1, Limit: 20, Shares: &window.Shares{Capacity: 20, Min: 2, Keys: 10}}}},
		{Definition{DynamicWindow: "x", Capacity: 20, MinLimit: 3, Interval: s, Buckets: 1}, rules{window: window.Rules{Bucket: us, Buckets: 1, Limit: 20, Shares: &window.Shares{Capacity: 20, Min: 3, Keys: 6}}}},
		{Definition{DynamicWindow: "x", Capacity: 20, MaxLimit: 5, Interval: time.Hour, Buckets: 60}, rules{window: window.Rules{Bucket: 60 * us, Buckets: 60, Limit: 5, Shares: &window.Shares{Capacity: 20, Min: 1, Keys: 20}}}},
		{Definition{DynamicWindow: "x", Capacity: maxCount, Interval: s}, rules{window: window.Rules{Bucket: us, Buckets: 1, Limit: maxCount, Shares: &window.Shares{Capacity: maxCount, Min: 1, Keys: 1000}}}},
	} {
		require.Empty(t, wrong(c.o))
		text, err := json.Marshal(c.o.options())
		require.NoError(t, err)
		ref, _ := c.o.name(&validate.Problems{})
		got, err := readRules(ref.Type, text)
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
		{DynamicWindow, `null`}, {DynamicWindow, `{"interval": 1000000000, "limit": 4, "capacity": 20}`},
	} {
		_, err := readRules(c.typ, []byte(c.text))
		assert.Error(t, err, "%s %s", c.typ, c.text)
	}
}

// What is stored stays as it is, so that a newer program finds no change in what an older one has set.
func TestDefinition_StoredOptions(t *testing.T) {
	for d, want := range map[Definition]string{
		{Semaphore: "a", MaxCount: 3}:                                         `{"max_count": 3}`,
		{FixedWindow: "a", Limit: 5, Interval: time.Second}:                   `{"limit": 5, "interval": 1000000000}`,
		{SlidingWindow: "a", Limit: 5, Interval: time.Second, Buckets: 1}:     `{"limit": 5, "interval": 1000000000, "buckets": 1}`,
		{DynamicWindow: "a", Capacity: 5, MinLimit: 1, Interval: time.Second}: `{"capacity": 5, "min_limit": 1, "interval": 1000000000}`,
	} {
		text, err := json.Marshal(d.options())
		require.NoError(t, err)
		assert.JSONEq(t, want, string(text))
	}
}
