package hedge_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A busyError is that of a server that says when to come back, as a 429 does.
type busyError time.Duration

func (e busyError) Error() string                     { return "busy" }
func (e busyError) RetryAfter() (time.Duration, bool) { return time.Duration(e), true }

func TestStrategy_RefusalStartsNoHedge(t *testing.T) {
	busy, shed := busyError(s), &ratelimit.RejectedError{}
	everything := func(_ any, err error) bool { return err != nil }
	cases := []struct {
		name    string
		options hedge.Options
		script  script
		began   []time.Duration
		took    time.Duration
		value   int
		errs    []error // nil: a success
	}{
		{"a RetryAfter", hedge.Options{}, script{{takes: s, err: busy}}, []time.Duration{0}, s, 0, []error{busy}},
		{"nothing was called", hedge.Options{}, script{{takes: s, err: shed}}, []time.Duration{0}, s, 0, []error{shed}},
		{"in turn", hedge.Options{Delay: -1}, script{{takes: s, err: busy}}, []time.Duration{0}, s, 0, []error{busy}},
		{"whatever Handle returns", hedge.Options{Handle: everything}, script{{takes: s, err: busy}}, []time.Duration{0}, s, 0, []error{busy}},
		{"AfterRefusal", hedge.Options{AfterRefusal: true}, script{{takes: s, err: busy}, {takes: s}}, []time.Duration{0, s}, 2 * s, 1, nil},
		{
			"the first still wins, and the delay starts no third", hedge.Options{MaxHedges: 2}, script{{takes: 9 * s}, {takes: s, err: busy}},
			[]time.Duration{0, 2 * s}, 9 * s, 0, nil,
		},
		{
			"the first fails after the hedge was refused", hedge.Options{MaxHedges: 2}, script{{takes: 9 * s, err: errBoom}, {takes: s, err: busy}},
			[]time.Duration{0, 2 * s}, 9 * s, 0, []error{errBoom, busy},
		},
		{
			"the hedge of a failure is refused", hedge.Options{MaxHedges: 2}, script{{takes: s, err: errBoom}, {takes: s, err: busy}},
			[]time.Duration{0, s}, 2 * s, 0, []error{errBoom, busy},
		},
		{
			"all at once", hedge.Options{AtOnce: true, MaxHedges: 2}, script{{takes: s, err: busy}, {takes: 2 * s, err: busy}, {takes: 3 * s}},
			[]time.Duration{0, 0, 0}, 3 * s, 2, nil,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var began []time.Duration
				start := time.Now()
				value, err := pipeline.ExecuteValue(t.Context(), with(&c.options), c.script.run(&began))
				assert.Equal(t, c.took, time.Since(start))
				assert.Equal(t, c.value, value)
				assert.Equal(t, c.began, began)
				for _, want := range c.errs {
					require.ErrorIs(t, err, want)
				}
				assert.Equal(t, len(c.errs) == 0, err == nil)
				_, asks := pipeline.RetryAfter(err)
				assert.Equal(t, errors.Is(err, busy), asks, "a retry outside waits")
				assert.Equal(t, errors.Is(err, shed), pipeline.NotCalled(err))
			})
		})
	}
}

// The result that Handle refuses to take is the execution's, and stays without an error.
func TestStrategy_RefusedHedgeOfAResult(t *testing.T) {
	p := with(&hedge.Options{Delay: -1, Handle: func(result any, err error) bool { return result == 503 || err != nil }})
	calls := 0
	value, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (int, error) {
		if calls++; calls == 1 {
			return 503, nil
		}
		return 0, busyError(s)
	})
	assert.NoError(t, err)
	assert.Equal(t, 503, value)
}
