package weirfailsafe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
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
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/strategies/weirfailsafe"
)

func bucket(permits int) *limiter.FixedWindow {
	return weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: permits, Window: time.Minute}))
}

func TestFromPipeline(t *testing.T) {
	for name, p := range map[string]*pipeline.Pipeline{
		"nil": nil, "zero": new(pipeline.Pipeline), "empty": weir.Must(pipeline.New("orders")),
		"timeout": weir.Must(pipeline.New("orders", timeout.New(time.Minute, nil))),
	} {
		done := make(map[string]int)
		executor := failsafe.With(weirfailsafe.FromPipeline[string](p, nil)).
			OnSuccess(func(failsafe.ExecutionDoneEvent[string]) { done["success"]++ }).
			OnFailure(func(failsafe.ExecutionDoneEvent[string]) { done["failure"]++ })
		got, err := executor.Get(func() (string, error) { return "value", nil })
		require.NoError(t, err, name)
		assert.Equal(t, "value", got)
		got, err = executor.Get(func() (string, error) { return "half", errBoom })
		assert.Equal(t, errBoom, err)
		assert.Equal(t, "half", got)
		assert.Equal(t, map[string]int{"success": 1, "failure": 1}, done)
		assert.PanicsWithValue(t, "boom", func() { _ = executor.Run(func() error { panic("boom") }) })
	}
}

func TestFromPipeline_Retries(t *testing.T) {
	p := weir.Must(pipeline.New("orders", retry.New(&retry.Options{Delay: -1})))
	var attempts []int
	inner := bulkhead.New[string](1)
	got, err := failsafe.With(weirfailsafe.FromPipeline[string](p, nil), inner).
		GetWithExecution(func(exec failsafe.Execution[string]) (string, error) {
			attempts = append(attempts, exec.Attempts())
			if len(attempts) < 3 {
				return "", errBoom
			}
			return "value", nil
		})
	require.NoError(t, err)
	assert.Equal(t, "value", got)
	assert.Equal(t, []int{1, 2, 3}, attempts, "failsafe-go counts them")
}

func TestFromPipeline_CancelsTheCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := weir.Must(pipeline.New("orders", retry.New(&retry.Options{Delay: -1, MaxRetries: 1}), timeout.New(time.Second, nil)))
		began := time.Now()
		_, err := failsafe.With(weirfailsafe.FromPipeline[string](p, nil), retrypolicy.NewWithDefaults[string]()).
			GetWithExecution(func(exec failsafe.Execution[string]) (string, error) {
				<-exec.Canceled()
				return "", exec.Context().Err()
			})
		assert.Equal(t, 2*time.Second, time.Since(began))
		require.ErrorIs(t, err, failsafetimeout.ErrExceeded)
		require.ErrorIs(t, err, pipeline.ErrRejected)
		require.NotErrorIs(t, err, ratelimiter.ErrExceeded)
		_, ok := errors.AsType[*timeout.Error](err)
		assert.True(t, ok)
	})
}

func TestFromPipeline_OuterPolicyCancels(t *testing.T) {
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
	require.NotErrorIs(t, err, failsafetimeout.ErrExceeded)
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

// The place where a gRPC status is made: status.FromError wants a type of its own.
func TestPolicyOptions_MapError(t *testing.T) {
	mapped := errors.New("UNAVAILABLE")
	toStatus := func(err error) error {
		if errors.Is(err, ratelimiter.ErrExceeded) || errors.Is(err, failsafetimeout.ErrExceeded) {
			return mapped
		}
		return err
	}
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	_, err := l.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	rejecting := weir.Must(weirfailsafe.FromLimiter[any](l, &weirfailsafe.FromLimiterOptions{MapError: toStatus}))
	assert.Equal(t, mapped, failsafe.With[any](rejecting).Run(func() error { return nil }))

	options := &weirfailsafe.PolicyOptions{MapError: toStatus}
	slow := weirfailsafe.FromPipeline[any](weir.Must(pipeline.New("orders", timeout.New(1, nil))), options)
	assert.Equal(t, mapped, failsafe.With(slow).Run(func() error { return context.DeadlineExceeded }))
	assert.Equal(t, errBoom, failsafe.With(weirfailsafe.FromPipeline[any](nil, options)).Run(func() error { return errBoom }))
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
