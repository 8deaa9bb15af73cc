package adaptive_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
)

var errBoom = errors.New("boom")

// counting makes a throttler that shows what it was told: after one execution its
// rejection rate is 0 for a success or nothing, and 0.5 for a failure; a success
// before a failure makes it less.
func counting() *adaptive.Throttler {
	return weir.Must(adaptive.NewThrottler(&adaptive.ThrottlerOptions{MinExecutions: -1, MaxRejectionRate: 0.5}))
}

// told is what th was told: it is told of a failure more, and says how much that
// weighs.
func told(t *testing.T, th *adaptive.Throttler) string {
	t.Helper()
	for {
		_, _ = th.TryAcquire(t.Context(), 0) // decides again, which updates the rate
		before := th.RejectionRate()
		lease, err := th.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		if !lease.Acquired() {
			continue
		}
		adaptive.Fail(lease)
		_, _ = th.TryAcquire(t.Context(), 0)
		switch {
		case before > 0:
			return "failure"
		case th.RejectionRate() < 0.4: // one success, one failure
			return "success"
		default:
			return "nothing"
		}
	}
}

func TestStrategy_Outcomes(t *testing.T) {
	only := func(err error) func(any, error) bool {
		return func(_ any, got error) bool { return errors.Is(got, err) }
	}
	cases := []struct {
		name   string
		err    error
		handle func(any, error) bool
		cancel bool // the caller goes away meanwhile
		want   string
	}{
		{name: "nil", want: "success"},
		{name: "an error", err: errBoom, want: "failure"},
		{name: "a deadline", err: context.DeadlineExceeded, want: "failure"},
		{name: "a rejection of another kind", err: pipeline.ErrRejected, want: "failure"},
		{name: "a limiter's rejection further in", err: &ratelimit.RejectedError{}, want: "nothing"},
		{name: "a limiter's rejection that is handled", err: &ratelimit.RejectedError{}, handle: func(any, error) bool { return true }, want: "failure"},
		{name: "a timeout further in", err: &timeout.Error{After: 1}, want: "failure"},
		{name: "a cancellation", err: fmt.Errorf("query: %w", context.Canceled), want: "nothing"},
		{name: "a success after the caller gave up", cancel: true, want: "nothing"},
		{name: "an error after the caller gave up", err: errBoom, cancel: true, want: "nothing"},
		{name: "handled", err: errBoom, handle: only(errBoom), want: "failure"},
		{name: "not handled", err: errBoom, handle: only(errors.ErrUnsupported), want: "success"},
		{name: "a deadline that is not handled", err: context.DeadlineExceeded, handle: only(errBoom), want: "nothing"},
		{name: "a result", handle: func(v any, _ error) bool { return v == "half" }, want: "failure"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			th := counting()
			p := weir.Must(pipeline.New("orders", adaptive.New(th, &adaptive.Options{Handle: c.handle})))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got, err := pipeline.ExecuteValue(ctx, p, func(context.Context) (string, error) {
				if c.cancel {
					cancel()
				}
				return "half", c.err
			})
			assert.Equal(t, "half", got)
			assert.Equal(t, c.err, err)
			assert.Equal(t, c.want, told(t, th))
		})
	}
}

func TestStrategy_PanicAndGoexit(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			th := counting()
			l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 1}))
			p := weir.Must(pipeline.New("orders", adaptive.New(weir.Must(limiter.Chain(th, l)), nil)))
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() {
					if r := recover(); r != nil {
						assert.Equal(t, "boom", r)
					}
				}()
				_ = p.Execute(context.Background(), func(context.Context) error { leave(); return nil })
			})
			wg.Wait()
			assert.Equal(t, "failure", told(t, th))
			assert.EqualValues(t, 1, l.Statistics().AvailablePermits)
		})
	}
}

func TestStrategy_CloseClosesItsOwnLimiter(t *testing.T) {
	s := adaptive.New(nil, nil)
	p := weir.Must(pipeline.New("orders", s))
	require.NoError(t, p.Execute(t.Context(), func(context.Context) error { return nil }))
	require.NoError(t, p.Close())
	_, err := s.Limiter().TryAcquire(t.Context(), 1)
	assert.ErrorIs(t, err, limiter.ErrClosed)

	passed := counting()
	require.NoError(t, adaptive.New(passed, nil).Close())
	_, err = passed.TryAcquire(t.Context(), 1)
	assert.NoError(t, err)

	var none *adaptive.Limiter
	_, err = pipeline.New("orders", adaptive.New(none, nil))
	assert.ErrorContains(t, err, "Strategies[0].Limiter must not be nil")
	assert.Error(t, new(adaptive.Strategy).Validate())
}

func TestStrategy_Describe(t *testing.T) {
	l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 7}))
	bucket := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 3}))
	p := weir.Must(pipeline.New("orders",
		adaptive.New(l, nil), adaptive.New(counting(), &adaptive.Options{Name: "Throttler"}), adaptive.New(bucket, nil)))
	lease, err := adaptive.New(l, nil).Peek(t.Context())
	require.NoError(t, err)
	assert.True(t, lease.Acquired())
	d := p.Describe().Strategies
	assert.Equal(t, adaptive.State{Statistics: limiter.Statistics{AvailablePermits: 7}, Limit: 7}, d[0].State)
	assert.Equal(t, "adaptive", d[0].Kind)
	options := d[0].Options.(ratelimit.Description)
	assert.Equal(t, "adaptive.Limiter", options.Limiter)
	assert.Equal(t, l.Options(), withoutFunc(options.Limits.(adaptive.LimiterOptions)))
	assert.Equal(t, "Throttler", d[1].Name)
	assert.IsType(t, adaptive.State{}, d[1].State)
	assert.Equal(t, limiter.Statistics{AvailablePermits: 3}, d[2].State)
	_, err = json.Marshal(d)
	assert.NoError(t, err)
}

func withoutFunc(o adaptive.LimiterOptions) adaptive.LimiterOptions {
	o.OnLimitChanged = nil
	return o
}
