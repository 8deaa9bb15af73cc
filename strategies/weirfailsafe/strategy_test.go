package weirfailsafe_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/weirfailsafe"
)

func TestStrategy_OneExecutor(t *testing.T) {
	attempts := 0
	var seen int
	p := with(weirfailsafe.New(nil,
		fallback.NewWithFunc(func(exec failsafe.Execution[any]) (any, error) {
			seen = exec.Attempts()
			return "instead", nil
		}),
		retrypolicy.NewBuilder[any]().WithMaxRetries(2).Build(),
	), nil)
	got, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (string, error) {
		attempts++
		return "", errBoom
	})
	require.NoError(t, err)
	assert.Equal(t, "instead", got)
	assert.Equal(t, 3, attempts)
	assert.Equal(t, 3, seen, "the fallback is in the executor of the retry policy")
}

//nolint:bodyclose // policies and pipelines for responses, which are closed by those who get them
func TestStrategy_TypedPolicies(t *testing.T) {
	retrying := retrypolicy.NewBuilder[*http.Response]().
		HandleIf(func(r *http.Response, _ error) bool { return r != nil && r.StatusCode == http.StatusBadGateway }).
		ReturnLastFailure().Build()
	p := with(weirfailsafe.New(nil, retrying), nil)
	attempts := 0
	got, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (*http.Response, error) {
		attempts++
		if attempts < 3 {
			return &http.Response{StatusCode: http.StatusBadGateway}, nil
		}
		return &http.Response{StatusCode: http.StatusOK}, nil
	})
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, got.StatusCode)

	require.NoError(t, p.Execute(t.Context(), func(context.Context) error { return nil }), "no value is fine")

	_, err = pipeline.ExecuteValue(t.Context(), p, func(context.Context) (int, error) { return 7, nil })
	require.ErrorIs(t, err, pipeline.ErrResultType)
	assert.ErrorContains(t, err, "orders/Failsafe: policies for *http.Response, got int")

	_, err = pipeline.ExecuteValue(t.Context(), p, func(context.Context) (int, error) { return 7, errBoom })
	assert.Equal(t, errBoom, err)
}

func TestRejectedError(t *testing.T) {
	opened := circuitbreaker.NewBuilder[any]().WithDelay(time.Minute).Build()
	opened.Open()
	full := bulkhead.New[any](1)
	require.True(t, full.TryAcquirePermit())
	spent := ratelimiter.NewSmooth[any](1, time.Hour)
	require.True(t, spent.TryAcquirePermit())
	for _, c := range []struct {
		policy failsafe.Policy[any]
		err    error
		text   string
	}{
		{opened, circuitbreaker.ErrOpen, "weirfailsafe: orders/Failsafe: rejected: circuit breaker open"},
		{full, bulkhead.ErrFull, "weirfailsafe: orders/Failsafe: rejected: bulkhead full"},
		{spent, ratelimiter.ErrExceeded, "weirfailsafe: orders/Failsafe: rejected: rate limit exceeded"},
	} {
		r := new(recorder)
		err := with(weirfailsafe.New(nil, c.policy), r).Execute(t.Context(), func(context.Context) error {
			t.Error("it ran")
			return nil
		})
		assert.EqualError(t, err, c.text)
		assert.ErrorIs(t, err, pipeline.ErrRejected)
		assert.ErrorIs(t, err, c.err)
		require.Len(t, r.events, 1)
		assert.Equal(t, weirfailsafe.EventRejected, r.events[0].Name)
		assert.Equal(t, pipeline.SeverityError, r.events[0].Severity)
		assert.Equal(t, err, r.events[0].Err)
		after, known := pipeline.RetryAfter(err)
		assert.Equal(t, c.err == circuitbreaker.ErrOpen, known)
		retryable, _ := pipeline.Retryable(err)
		assert.Equal(t, c.err != circuitbreaker.ErrOpen, retryable, "a retry outside returns the rejection of an open circuit at once")
		if known {
			assert.InDelta(t, time.Minute, after, float64(10*time.Second))
		}
	}
}

func TestStrategy_OtherErrors(t *testing.T) {
	r := new(recorder)
	p := with(weirfailsafe.New(nil, retrypolicy.NewBuilder[any]().WithMaxRetries(1).Build()), r)
	err := p.Execute(t.Context(), func(context.Context) error { return errBoom })
	require.ErrorIs(t, err, retrypolicy.ErrExceeded)
	require.ErrorIs(t, err, errBoom)
	require.NotErrorIs(t, err, pipeline.ErrRejected)

	inner := weir.Must(pipeline.New("inner"))
	require.NoError(t, inner.Close())
	rejected := &weirfailsafe.PolicyError{Err: bulkhead.ErrFull} // from further in
	got := with(weirfailsafe.New(nil, bulkhead.New[any](1)), r).Execute(t.Context(), func(context.Context) error { return rejected })
	assert.Same(t, rejected, got)
	assert.Empty(t, r.events)
}

func TestStrategy_TimeoutCancelsTheCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := with(weirfailsafe.New(nil, retrypolicy.NewWithDefaults[any](), timeout.New[any](time.Second)), nil)
		began := time.Now()
		_, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		require.ErrorIs(t, err, timeout.ErrExceeded)
		require.ErrorIs(t, err, pipeline.ErrRejected)
		assert.Equal(t, 3*time.Second, time.Since(began), "three attempts of a second")
		timedOut, ok := errors.AsType[*weirfailsafe.PolicyError](err)
		require.True(t, ok)
		assert.True(t, timedOut.Timeout())
	})
}

func TestStrategy_Context(t *testing.T) {
	cause := errors.New("the user went away")
	for _, policy := range []failsafe.Policy[any]{
		bulkhead.New[any](1), ratelimiter.NewBursty[any](10, time.Hour), retrypolicy.NewWithDefaults[any](), timeout.New[any](time.Hour),
	} {
		p := with(weirfailsafe.New(nil, policy), nil)
		gone, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		for range 20 {
			err := p.Execute(gone, func(context.Context) error { t.Error("it ran"); return nil })
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, cause)
			require.True(t, pipeline.NotCalled(err))
		}
		going, cancel := context.WithCancelCause(context.WithValue(t.Context(), errBoom, "value"))
		err := p.Execute(going, func(ctx context.Context) error {
			assert.Equal(t, "value", ctx.Value(errBoom))
			cancel(cause)
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause)
		require.False(t, pipeline.NotCalled(err))
	}
}

func TestStrategy_WaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := bulkhead.NewBuilder[any](1).WithMaxWaitTime(time.Hour).Build()
		require.True(t, full.TryAcquirePermit())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := with(weirfailsafe.New(nil, full), nil).Execute(ctx, func(context.Context) error { return nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, pipeline.ErrRejected)
		assert.True(t, pipeline.NotCalled(err))
	})
}

func TestStrategy_Hedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := with(weirfailsafe.New[any](nil, hedgepolicy.NewWithDelay[any](time.Second)), nil)
		began, calls := time.Now(), make(chan int, 2)
		calls <- 1
		got, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (string, error) {
			if n := <-calls; n == 1 {
				calls <- 2
				<-ctx.Done() // cancelled when the other has won
				return "", ctx.Err()
			}
			time.Sleep(time.Second)
			return "second", nil
		})
		require.NoError(t, err)
		assert.Equal(t, "second", got)
		assert.Equal(t, 2*time.Second, time.Since(began))
	})
}

func TestStrategy_Validate(t *testing.T) {
	assert.Equal(t, "Failsafe", weirfailsafe.New[any](nil).Name())
	s := weirfailsafe.New(&weirfailsafe.Options{Name: "Circuit"}, circuitbreaker.NewWithDefaults[any](), failsafe.Policy[any](bulkhead.New[any](1)))
	assert.Equal(t, "Circuit", s.Name())
	options, state := s.Describe()
	assert.Equal(t, weirfailsafe.Description{Options: s.Options(), Policies: []string{"circuitbreaker", "bulkhead"}}, options)
	assert.Nil(t, state)
	require.NoError(t, with(weirfailsafe.New[any](nil), nil).Execute(t.Context(), func(context.Context) error { return nil }))
	assert.Error(t, new(weirfailsafe.Strategy[any]).Validate())

	_, err := pipeline.New("orders", weirfailsafe.New(nil, failsafe.Policy[any](nil)))
	require.ErrorContains(t, err, "Strategies[0].Policies[0] must not be nil")
}

// A callback without a result is none for the strategies outside, too.
func TestStrategy_NoResult(t *testing.T) {
	p := weir.Must(pipeline.New("orders",
		weirfailsafe.New(nil, retrypolicy.NewBuilder[int]().Build()),
		weirfailsafe.New(nil, retrypolicy.NewBuilder[string]().Build()),
	))
	ran := 0
	require.NoError(t, p.Execute(t.Context(), func(context.Context) error { ran++; return nil }))
	assert.Equal(t, 1, ran)
}

// A policy that replaces a failure without a result by a zero has a result.
func TestStrategy_FallbackToZero(t *testing.T) {
	for _, s := range []pipeline.Strategy{
		weirfailsafe.New(nil, fallback.NewWithResult(0)), weirfailsafe.New(nil, fallback.NewWithResult[any](0)),
	} {
		failing := pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) { return nil, errBoom })
		_, err := pipeline.ExecuteValue(t.Context(), weir.Must(pipeline.New("orders", s, failing)), func(context.Context) (int, error) { return 1, nil })
		assert.NoError(t, err)
	}
}
