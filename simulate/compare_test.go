package simulate

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCompare(t *testing.T) {
	before := &Result{
		open: true, Total: Counts{Requests: 200, Rejected: 10}, Latency: Quantiles{Count: 1, P99: time.Second}, Rejections: map[string]int64{"a": 1, "b": 2}, Failures: map[string]int64{"a": 3},
		keyed: map[string]*keyCounts{"same": {10, 5, 5}, "loses": {10, 9, 1}, "gone": {3, 3, 0}, "wins": {10, 1, 9}},
	}
	after := &Result{
		open: true, Total: Counts{Requests: 200, Rejected: 4}, Latency: Quantiles{Count: 3, P99: 3 * time.Second}, Rejections: map[string]int64{"b": 5, "c": 1},
		keyed: map[string]*keyCounts{"same": {10, 5, 5}, "loses": {10, 2, 8}, "new": {8, 8, 0}, "wins": {10, 9, 1}},
	}
	for _, i := range []int64{0, 1, 63, 64, 199} {
		before.satisfied.set(i)
	}
	for _, i := range []int64{1, 2, 64} {
		after.satisfied.set(i)
	}
	c := Compare(before, after)
	assert.True(t, c.OneByOne)
	assert.EqualValues(t, 3, c.NewlyRefused) // 0, 63 and 199
	assert.EqualValues(t, 1, c.NoLongerRefused)
	assert.Equal(t, []KeyChange{{"loses", 10, 10, 9, 2}, {"gone", 3, 0, 3, 0}}, c.Losers)
	assert.Equal(t, []KeyChange{{"wins", 10, 10, 1, 9}, {"new", 0, 8, 0, 8}}, c.Winners)
	assert.Contains(t, c.verdict(), "3 requests (1.5%) are newly refused, 1 (0.5%) no longer")

	after.Seed = 2
	assert.Contains(t, Compare(before, after).verdict(), "the loads are different")
	before.open, before.closed = false, true
	c = Compare(before, after)
	assert.False(t, c.OneByOne)
	assert.Zero(t, c.NewlyRefused)
	assert.Contains(t, string(written(t, c.WriteTable)), "requests of a closed load cannot be compared one by one")
}

// A result that was read from JSON has everything but its requests and keys.
func TestCompare_FromJSON(t *testing.T) {
	r := overload(600)
	data, err := json.Marshal(r)
	require.NoError(t, err)
	var read Result
	require.NoError(t, json.Unmarshal(data, &read))
	for _, c := range []*Comparison{Compare(&read, r), Compare(r, &read), Compare(&read, &read)} {
		assert.False(t, c.OneByOne)
		assert.Empty(t, c.Losers)
		assert.Empty(t, c.Winners)
		text := string(written(t, c.WriteTable))
		assert.Contains(t, text, "requests cannot be compared one by one: a result that was read from JSON does not have them")
		assert.NotContains(t, text, "closed load")
		assert.Contains(t, text, "a result that was read from JSON does not have all keys")
		assert.NotContains(t, text, "no key loses anything")
	}
}

// Calls of the service are shown where the pipeline made more of them than one for each execution, in both pictures of a
// comparison.
func TestCompare_Retries(t *testing.T) {
	r, storm := overload(600), overload(600)
	storm.Total.Calls, storm.Total.Retried = 3*storm.Total.Admitted, 2*storm.Total.Admitted
	assert.Len(t, reportOf(r).Charts[0].Series, 4)
	assert.Len(t, reportOf(storm).Charts[0].Series, 5)
	p := Compare(r, storm).report()
	assert.Len(t, p.Charts[0].Series, 5)
	assert.Len(t, p.Charts[1].Series, 5)
}

func TestMerged_SaysHow(t *testing.T) {
	r := overload(600)
	assert.Empty(t, charts(r, false)[2].Note)
	for i := range 200 {
		r.Series = append(r.Series, Point{At: r.Ended + time.Duration(i)*r.Interval})
	}
	assert.Equal(t, "the largest of any 5s in each 10s", charts(r, false)[2].Note)
}

func TestCompare_MostKeys(t *testing.T) {
	before, after := &Result{keyed: map[string]*keyCounts{}}, &Result{keyed: map[string]*keyCounts{}}
	for i := range 40 {
		key := string(rune('A' + i))
		before.keyed[key] = &keyCounts{offered: 100, admitted: 50}
		after.keyed[key] = &keyCounts{offered: 100, admitted: 30 + int64(i)}
	}
	c := Compare(before, after)
	require.Len(t, c.Losers, 10)
	require.Len(t, c.Winners, 10)
	assert.Equal(t, "A", c.Losers[0].Key)
	assert.Equal(t, string(rune('A'+39)), c.Winners[0].Key)
}

// JSON has everything that is exported, by the names that the documentation and expectations use.
func TestJSON(t *testing.T) {
	var check func(of reflect.Type)
	check = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for f := range of.Fields() {
			if !f.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.Anonymous {
				assert.Regexp(t, "^[a-z][a-z0-9]*(_[a-z]+)*$", name, "%s.%s", of, f.Name)
			}
			check(f.Type)
		}
	}
	check(reflect.TypeFor[Comparison]())

	r := overload(600)
	data, err := json.Marshal(r)
	require.NoError(t, err)
	var again Result
	require.NoError(t, json.Unmarshal(data, &again))
	assert.Equal(t, written(t, r.WriteTable), written(t, again.WriteTable))
	assert.Equal(t, written(t, r.WriteSVG), written(t, again.WriteSVG))
	for _, total := range totals {
		assert.Contains(t, string(data)+"unfinished", total.name)
	}
	_, err = json.Marshal(Compare(r, overload(450)))
	require.NoError(t, err)
}

func TestWriteResultsSVG_Errors(t *testing.T) {
	require.ErrorContains(t, WriteResultsSVG(io.Discard, "x"), "needs at least one")
	require.ErrorContains(t, WriteResultsSVG(io.Discard, "x", &Result{}, nil), "none that is nil")
}
