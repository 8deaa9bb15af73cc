package weirfailsafe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/policy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	failsafetimeout "github.com/failsafe-go/failsafe-go/timeout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/weirfailsafe"
)

func bucket(permits int) *limiter.FixedWindow {
	return weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: permits, Window: time.Minute}))
}

func TestFromLimiter_OuterPolicyCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}))
		_, err := full.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		began := time.Now()
		err = failsafe.With[any](failsafetimeout.New[any](time.Second), weir.Must(weirfailsafe.FromLimiter[any](full, nil))).
			Run(func() error { t.Error("it ran"); return nil })
		assert.Equal(t, failsafetimeout.ErrExceeded, err, "what the outer policy says stands")
		assert.Equal(t, time.Second, time.Since(began))
		assert.Zero(t, full.Statistics().QueuedPermits)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = failsafe.With[any](weir.Must(weirfailsafe.FromLimiter[any](full, nil))).WithContext(ctx).Run(func() error { return nil })
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestFromLimiter(t *testing.T) {
	l := bucket(2)
	var events []string
	cost := 1
	policy, err := weirfailsafe.FromLimiter[any](l, &weirfailsafe.FromLimiterOptions{
		Strategy: ratelimit.Options{Permits: func(context.Context) int { return cost }},
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) { events = append(events, e.Name) }),
	})
	require.NoError(t, err)
	executor := failsafe.WithAny[string](policy)
	got, err := executor.Get(func() (string, error) { return "value", nil })
	require.NoError(t, err)
	assert.Equal(t, "value", got)
	assert.EqualValues(t, 1, l.Statistics().AvailablePermits)
	cost = 2
	_, err = executor.Get(func() (string, error) { t.Error("it ran"); return "", nil })
	require.ErrorIs(t, err, pipeline.ErrRejected)
	require.ErrorIs(t, err, ratelimiter.ErrExceeded)
	rejected, ok := errors.AsType[*ratelimit.RejectedError](err)
	require.True(t, ok)
	assert.Equal(t, rejected.Error(), err.Error())
	after, ok := pipeline.RetryAfter(err)
	assert.True(t, ok)
	assert.Positive(t, after)
	assert.Contains(t, events, ratelimit.EventRejected)

	require.NoError(t, l.Close())
	_, err = executor.Get(func() (string, error) { return "", nil })
	require.ErrorIs(t, err, limiter.ErrClosed)
	require.NotErrorIs(t, err, ratelimiter.ErrExceeded)

	_, err = weirfailsafe.FromLimiter[any](nil, nil)
	assert.EqualError(t, err, "weirfailsafe: Limiter must not be nil")
	var none *limiter.TokenBucket
	_, err = weirfailsafe.FromLimiter[any](none, nil)
	assert.ErrorIs(t, err, weir.ErrInvalidOptions)
}

// A server's tap handle runs on the goroutine that reads the connection.
func TestFromLimiter_TapHandleDoesNotWait(t *testing.T) {
	full := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}))
	held, err := full.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	ctx := context.WithValue(t.Context(), policy.CheckOnlyKey, true) // as failsafegrpc does
	executor := failsafe.With[any](weir.Must(weirfailsafe.FromLimiter[any](full, nil))).WithContext(ctx)
	require.ErrorIs(t, executor.Run(func() error { return nil }), ratelimiter.ErrExceeded)
	held.Release()
	require.NoError(t, executor.Run(func() error { return nil }))
}

// What the callback returns stays as it is, also if it is a rejection.
func TestFromLimiter_Callback(t *testing.T) {
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	done := make(map[string]int)
	executor := failsafe.With[string](weir.Must(weirfailsafe.FromLimiter[string](l, nil))).
		OnSuccess(func(failsafe.ExecutionDoneEvent[string]) { done["success"]++ }).
		OnFailure(func(failsafe.ExecutionDoneEvent[string]) { done["failure"]++ })
	for _, want := range []error{nil, errBoom, &ratelimit.RejectedError{}} {
		got, err := executor.Get(func() (string, error) {
			assert.Zero(t, l.Statistics().AvailablePermits)
			return "value", want
		})
		assert.Equal(t, want, err)
		assert.Equal(t, "value", got)
	}
	assert.Equal(t, map[string]int{"success": 1, "failure": 2}, done)
	assert.PanicsWithValue(t, "boom", func() { _ = executor.Run(func() error { panic("boom") }) })
	assert.EqualValues(t, 1, l.Statistics().AvailablePermits)
}

// The place where a gRPC status is made: status.FromError wants a type of its own.
func TestFromLimiterOptions_MapError(t *testing.T) {
	mapped := errors.New("UNAVAILABLE")
	policy := weir.Must(weirfailsafe.FromLimiter[any](bucket(1), &weirfailsafe.FromLimiterOptions{MapError: func(err error) error {
		if errors.Is(err, ratelimiter.ErrExceeded) {
			return mapped
		}
		return nil // leaves it as it is
	}}))
	assert.Equal(t, errBoom, failsafe.With[any](policy).Run(func() error { return errBoom }))
	assert.Equal(t, mapped, failsafe.With[any](policy).Run(func() error { return nil }))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, failsafe.With[any](policy).WithContext(ended).Run(func() error { return nil }), context.Canceled)
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bucket(1)
		again := retrypolicy.NewBuilder[string]().WithDelay(time.Second).WithDelayFunc(weirfailsafe.RetryAfter).Build()
		executor := failsafe.With[string](again, weir.Must(weirfailsafe.FromLimiter[string](l, nil)))
		began := time.Now()
		for range 2 {
			_, err := executor.Get(func() (string, error) { return "", nil })
			require.NoError(t, err)
		}
		assert.Equal(t, time.Minute, time.Since(began), "the next window")
		began = time.Now()
		_, err := failsafe.With(again).Get(func() (string, error) { return "", errBoom })
		require.Error(t, err)
		assert.Equal(t, 2*time.Second, time.Since(began), "the policy's own delay")
	})
}
