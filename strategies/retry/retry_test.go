package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
)

var errBoom = errors.New("boom")

func with(o *retry.Options) *pipeline.Pipeline {
	return weir.Must(pipeline.New("orders", retry.New(o)))
}

// failing is a callback that fails with err n times, and counts.
func failing(n int, err error, calls *int) func(context.Context) error {
	return func(context.Context) error {
		*calls++
		if *calls <= n {
			return err
		}
		return nil
	}
}

func TestStrategy_Defaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, began := 0, time.Now()
		err := with(nil).Execute(t.Context(), failing(math.MaxInt, errBoom, &calls))
		assert.Same(t, errBoom, err, "used up: the last failure as it is")
		assert.Equal(t, 4, calls)
		assert.Equal(t, 6*time.Second, time.Since(began))
	})
}

func TestStrategy_RetriesUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, began := 0, time.Now()
		p := with(&retry.Options{MaxRetries: retry.Forever, Delay: time.Second, Backoff: retry.Exponential, MaxDelay: time.Minute})
		require.NoError(t, p.Execute(t.Context(), failing(10, errBoom, &calls)))
		assert.Equal(t, 11, calls)
		assert.Equal(t, (1+2+4+8+16+32+4*60)*time.Second, time.Since(began))
	})
}

func TestOptions_Off(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, began := 0, time.Now()
		assert.Same(t, errBoom, with(&retry.Options{MaxRetries: -1}).Execute(t.Context(), failing(9, errBoom, &calls)))
		assert.Equal(t, 1, calls)
		calls = 0
		assert.Same(t, errBoom, with(&retry.Options{Delay: -1, Backoff: retry.Exponential, Jitter: true}).Execute(t.Context(), failing(9, errBoom, &calls)))
		assert.Equal(t, 4, calls)
		assert.Zero(t, time.Since(began))
	})
}

// A deadline that is not the execution's own is a failure: http.Client.Timeout, a dial, a deadline that the
// callback sets.
func TestOptions_HandleByDefault(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	for _, err := range []error{context.DeadlineExceeded, fmt.Errorf("query: %w", context.DeadlineExceeded), dial, os.ErrDeadlineExceeded} {
		calls := 0
		assert.NoError(t, with(&retry.Options{Delay: -1}).Execute(t.Context(), failing(2, err, &calls)))
		assert.Equal(t, 3, calls)
	}
	calls := 0
	assert.Equal(t, context.Canceled, with(nil).Execute(t.Context(), failing(9, context.Canceled, &calls)))
	assert.Equal(t, 1, calls)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := 0
		err := with(&retry.Options{Delay: -1}).Execute(ctx, func(ctx context.Context) error {
			calls++
			<-ctx.Done()
			return fmt.Errorf("query: %w", ctx.Err())
		})
		assert.EqualError(t, err, "query: context deadline exceeded", "as it is")
		assert.Equal(t, 1, calls)
	})
}

func TestOptions_HandleResults(t *testing.T) {
	p := with(&retry.Options{Delay: -1, Handle: pipeline.HandleResult(func(n int, err error) bool { return n < 3 && err == nil })})
	calls := 0
	n, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (int, error) { calls++; return calls, nil })
	require.NoError(t, err)
	assert.Equal(t, 3, n)

	calls = -10
	n, err = pipeline.ExecuteValue(t.Context(), p, func(context.Context) (int, error) { calls++; return calls, nil })
	require.NoError(t, err, "used up: the last outcome as it is")
	assert.Equal(t, -6, n)
}

// failsafe-go throws it away.
func TestStrategy_LateSuccess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	v, err := pipeline.ExecuteValue(ctx, with(nil), func(context.Context) (string, error) {
		cancel()
		return "late", nil
	})
	require.NoError(t, err)
	assert.Equal(t, "late", v)
}

func TestStrategy_ContextEndsDuringAnAttempt(t *testing.T) {
	cause := errors.New("the user went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	err := with(&retry.Options{Delay: -1}).Execute(ctx, func(context.Context) error {
		calls++
		cancel(cause)
		return errBoom
	})
	assert.Equal(t, 1, calls)
	for _, target := range []error{errBoom, context.Canceled, cause} {
		assert.ErrorIs(t, err, target)
	}
	assert.EqualError(t, err, "boom; retry: gave up after attempt 1: context canceled: the user went away")
}

func TestStrategy_ContextEndsDuringAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began, calls := time.Now(), 0
		err := with(nil).Execute(ctx, failing(9, errBoom, &calls))
		assert.Equal(t, time.Second, time.Since(began))
		assert.Equal(t, 1, calls)
		assert.ErrorIs(t, err, errBoom)
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// failsafe-go waits although the deadline comes first.
func TestStrategy_WaitBeyondTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []time.Duration{2 * time.Second, time.Second} { // just as long is too short, too
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			began, calls := time.Now(), 0
			err := with(nil).Execute(ctx, failing(9, errBoom, &calls))
			assert.Zero(t, time.Since(began))
			assert.Equal(t, 1, calls)
			assert.ErrorIs(t, err, errBoom)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.NoError(t, ctx.Err())
			cancel()
		}
	})
}

func TestOptions_MaxDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		p := with(&retry.Options{MaxRetries: retry.Forever, MaxDuration: 5 * time.Second})
		err := p.Execute(t.Context(), failing(99, errBoom, &calls))
		assert.Equal(t, 4*time.Second, time.Since(began), "a wait until 6 s is not started")
		assert.Equal(t, 3, calls)
		assert.ErrorIs(t, err, errBoom)
		assert.ErrorIs(t, err, retry.ErrMaxDuration)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)

		calls = 0
		p = with(&retry.Options{MaxRetries: retry.Forever, MaxDuration: 5 * time.Second, Delay: -1})
		err = p.Execute(t.Context(), func(context.Context) error { calls++; time.Sleep(2 * time.Second); return errBoom })
		assert.Equal(t, 3, calls, "with no waits either")
		assert.ErrorIs(t, err, retry.ErrMaxDuration)
		assert.NoError(t, p.Execute(t.Context(), func(context.Context) error { time.Sleep(time.Minute); return nil }), "a late success is kept")
	})
}

// busy asks to be left alone for a while.
type busy time.Duration

func (b busy) Error() string                     { return "busy" }
func (b busy) RetryAfter() (time.Duration, bool) { return time.Duration(b), true }

func TestStrategy_RetryAfter(t *testing.T) {
	cases := []struct {
		name        string
		options     retry.Options
		asked       time.Duration
		least, most time.Duration
	}{
		{"longer", retry.Options{Delay: time.Second}, time.Minute, time.Minute, time.Minute},
		{"shorter", retry.Options{Delay: time.Second}, time.Millisecond, time.Second, time.Second},
		{"no backoff", retry.Options{Delay: -1}, time.Minute, time.Minute, time.Minute},
		{"MaxDelay does not cap it", retry.Options{Delay: time.Second, MaxDelay: time.Second}, time.Minute, time.Minute, time.Minute},
		{"ignored", retry.Options{Delay: time.Second, IgnoreRetryAfter: true}, time.Minute, time.Second, time.Second},
		{"jitter only adds", retry.Options{Delay: 8 * time.Second, Jitter: true}, time.Minute, time.Minute, 62 * time.Second},
		{"full jitter, too", retry.Options{Delay: 8 * time.Second, Jitter: true, Backoff: retry.Exponential}, 8 * time.Second, 8 * time.Second, 10 * time.Second},
		{"saturates", retry.Options{Delay: math.MaxInt64, Jitter: true, Backoff: retry.Exponential, IgnoreRetryAfter: true, MaxDelay: time.Second}, time.Minute, 0, time.Second},
		{"DelayFunc is not shortened", retry.Options{DelayFunc: always(time.Hour), Jitter: true}, time.Minute, time.Hour, time.Hour},
		{"DelayFunc does not shorten", retry.Options{DelayFunc: always(time.Second), Jitter: true}, time.Minute, time.Minute, time.Minute},
		{"DelayFunc is not capped", retry.Options{DelayFunc: always(time.Hour), MaxDelay: time.Second}, 0, time.Hour, time.Hour},
		{"DelayFunc may say now", retry.Options{DelayFunc: always(0)}, 0, 0, 0},
		{"a negative DelayFunc leaves the backoff", retry.Options{DelayFunc: always(-1)}, 0, 2 * time.Second, 2 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for range 10 {
					began, calls := time.Now(), 0
					require.NoError(t, with(&c.options).Execute(t.Context(), failing(1, fmt.Errorf("call: %w", busy(c.asked)), &calls)))
					assert.GreaterOrEqual(t, time.Since(began), c.least)
					assert.LessOrEqual(t, time.Since(began), c.most)
				}
			})
		})
	}
}

func always(d time.Duration) func(context.Context, int, any, error) (time.Duration, bool) {
	return func(context.Context, int, any, error) (time.Duration, bool) { return d, true }
}

func TestOptions_DelayFunc(t *testing.T) {
	var seen []string
	calls := 0
	p := with(&retry.Options{MaxRetries: 2, Delay: -1, DelayFunc: func(_ context.Context, attempt int, result any, err error) (time.Duration, bool) {
		seen = append(seen, fmt.Sprint(attempt, result, err))
		return 0, false
	}})
	_ = p.Execute(t.Context(), failing(9, errBoom, &calls))
	assert.Equal(t, []string{"0 <nil> boom", "1 <nil> boom"}, seen, "not after the last")
}
