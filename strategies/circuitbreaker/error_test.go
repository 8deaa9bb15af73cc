package circuitbreaker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

func TestOpenErrorIsARejection(t *testing.T) {
	var err error = &circuitbreaker.OpenError{RetryAfter: 4 * time.Second, State: circuitbreaker.Open, Source: source, Err: context.Canceled}
	require.EqualError(t, err, "circuitbreaker: orders/(null)/CircuitBreaker: the circuit is open, retry after 4s")
	wrapped := fmt.Errorf("list: %w", err)
	require.ErrorIs(t, wrapped, pipeline.ErrRejected)
	require.NotErrorIs(t, wrapped, context.Canceled, "that was somebody else's")
	after, ok := pipeline.RetryAfter(wrapped)
	assert.True(t, ok)
	assert.Equal(t, 4*time.Second, after)
	_, ok = (*circuitbreaker.OpenError)(nil).RetryDelay()
	assert.False(t, ok)
}

// A retry outside waits until the break is over, and its attempt is the probe.
func TestRetryOutsideWaitsForTheBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := atOnce(1)
		p := pipeline.Must(pipeline.New("orders",
			retry.New(&retry.Options{MaxRetries: 2, Delay: time.Millisecond}),
			circuitbreaker.New(&o)))
		calls, began := 0, time.Now()
		require.NoError(t, p.Execute(t.Context(), func(context.Context) error {
			calls++
			if calls == 1 {
				return errBoom
			}
			return nil
		}))
		assert.Equal(t, 2, calls)
		assert.Equal(t, 5*time.Second, time.Since(began))
	})
}

// A timeout inside is a failure, the caller's own deadline is none.
func TestTimeoutInsideCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		o := atOnce(1)
		s := circuitbreaker.New(&o)
		p := pipeline.Must(pipeline.New("orders", s, timeout.New(time.Second, nil)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, p.Execute(ctx, hang), context.DeadlineExceeded)
		assert.Equal(t, circuitbreaker.Closed, s.State())
		_, ok := errors.AsType[*timeout.Error](p.Execute(t.Context(), hang))
		assert.True(t, ok)
		assert.Equal(t, circuitbreaker.Open, s.State())
	})
}

func TestPipelinesShareACircuit(t *testing.T) {
	o := atOnce(1)
	s := circuitbreaker.New(&o)
	one, other := pipeline.Must(pipeline.New("one", s)), pipeline.Must(pipeline.New("other", s))
	require.Equal(t, errBoom, one.Execute(t.Context(), fail))
	open, ok := errors.AsType[*circuitbreaker.OpenError](other.Execute(t.Context(), succeed))
	require.True(t, ok)
	assert.Equal(t, "other", open.Source.Pipeline)
}

func TestDescribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircuit(t, circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 2})
		c.times(t, 1, fail)
		d := c.p.Describe().Strategies[0]
		assert.Equal(t, "circuitbreaker", d.Kind)
		assert.Equal(t, 2, d.Options.(circuitbreaker.Options).ConsecutiveFailures)
		assert.Equal(t, circuitbreaker.Statistics{ConsecutiveFailures: 1}, d.State)
	})
}
