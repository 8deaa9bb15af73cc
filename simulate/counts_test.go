package simulate

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
)

// checkCounts checks that the numbers of any result add up.
func checkCounts(t *testing.T, r *Result) {
	t.Helper()
	n := r.Total
	assert.Equal(t, n.Requests+n.TriedAgain, n.Offered, "each execution is the first of its request or not")
	assert.Equal(t, n.Offered, n.Succeeded+n.Failed+n.Rejected, "each execution ends in one way")
	assert.Equal(t, n.Calls, n.Admitted+n.Retried, "each call is the first of its execution or not")
	assert.LessOrEqual(t, n.Admitted, n.Offered)
	assert.LessOrEqual(t, n.Queued, n.Offered)
	assert.Equal(t, n.Satisfied, n.Succeeded, "a request that succeeds is not tried again")
	assert.GreaterOrEqual(t, n.Requests, n.Satisfied+n.Unfinished)
	assert.Equal(t, n.Rejected, sumOf(r.Rejections))
	assert.Equal(t, n.Failed, sumOf(r.Failures))
	assert.Equal(t, n.Succeeded, r.Latency.Count)
	satisfied := int64(0)
	for i := range n.Requests {
		if isSet(r.satisfied, i) {
			satisfied++
		}
	}
	assert.Equal(t, n.Satisfied, satisfied)

	sum, latency := Counts{}, Quantiles{}
	for i, p := range r.Series {
		assert.Equal(t, time.Duration(i)*r.Interval, p.At)
		assert.Equal(t, p.Succeeded, p.Latency.Count)
		checkQuantiles(t, p.Latency)
		add(&sum, p.Counts)
		latency.Count += p.Latency.Count
		latency.Max = max(latency.Max, p.Latency.Max)
		for _, m := range r.Most {
			if m.Window >= r.Interval { // the loads of these tests have a cost of 1
				assert.GreaterOrEqual(t, m.Permits, p.Calls)
			}
		}
	}
	assert.Equal(t, n, sum, "the series")
	assert.Equal(t, r.Latency.Count, latency.Count)
	assert.Equal(t, r.Latency.Max, latency.Max)
	assert.EqualValues(t, r.Ended/r.Interval, len(r.Series)-1, "the series ends with the last request")
	checkQuantiles(t, r.Latency)
	checkQuantiles(t, r.Wait)
	checkQuantiles(t, r.Service)

	keys := keyCounts{}
	for _, k := range r.keyed {
		assert.GreaterOrEqual(t, k.offered, k.admitted)
		keys.offered, keys.admitted, keys.rejected = keys.offered+k.offered, keys.admitted+k.admitted, keys.rejected+k.rejected
	}
	assert.Equal(t, keyCounts{n.Offered, n.Admitted, n.Rejected}, keys)
	assert.Equal(t, len(r.keyed), r.Keys.Count)
	if n.Admitted > 0 {
		assert.GreaterOrEqual(t, r.Keys.Jain, 1/float64(max(r.Keys.Count, 1))-1e-9)
	} else {
		assert.Zero(t, r.Keys.Jain)
	}
	assert.LessOrEqual(t, r.Keys.Jain, 1+1e-9)
	for _, m := range r.Most {
		assert.GreaterOrEqual(t, m.Permits, m.KeyPermits)
		assert.LessOrEqual(t, m.Permits, n.Calls)
	}
}

func sumOf(m map[string]int64) (sum int64) {
	for _, n := range m {
		sum += n
	}
	return sum
}

// add adds n to sum, each field.
func add(sum *Counts, n Counts) {
	to, from := reflect.ValueOf(sum).Elem(), reflect.ValueOf(n)
	for i := range from.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + from.Field(i).Int())
	}
}

func checkQuantiles(t *testing.T, q Quantiles) {
	t.Helper()
	for _, pair := range [][2]time.Duration{{0, q.P50}, {q.P50, q.P90}, {q.P90, q.P95}, {q.P95, q.P99}, {q.P99, q.P999}, {q.P999, q.Max}, {q.Mean, q.Max}} {
		assert.LessOrEqual(t, pair[0], pair[1], "%+v", q)
	}
}

// isSet reports whether bit i is set.
func isSet(b bitset, i int64) bool { return i/64 < int64(len(b)) && b[i/64]&(1<<(i%64)) != 0 }

// An execution is rejected only if its error says so of everything that it was tried for.
func TestIsRejection(t *testing.T) {
	rejected, boom := &ratelimit.RejectedError{}, errors.New("boom")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{rejected, true},
		{fmt.Errorf("wrapped: %w", rejected), true},
		{errors.Join(rejected, rejected), true},
		{errors.Join(boom, rejected), false},
		{boom, false},
		{&timeout.Error{Err: rejected}, false},
	} {
		assert.Equal(t, c.want, isRejection(c.err), c.err)
	}
}
