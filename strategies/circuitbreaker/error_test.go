package circuitbreaker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// A retry outside returns the rejection of a circuit at once, whatever its state. It waits until the break is over, and its
// attempt is the probe, if the program asks for it.
func TestOpenError_Retry(t *testing.T) {
	asked := func(_ any, err error) bool { return err != nil }
	cases := []struct {
		name       string
		rejections bool
		handle     func(any, error) bool
		waits      bool
	}{
		{name: "by default"},
		{name: "RetryRejections", rejections: true, waits: true},
		{name: "Handle", handle: asked, waits: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := atOnce(1)
				o.RetryRejections = c.rejections
				p := weir.Must(pipeline.New("orders",
					retry.New(&retry.Options{MaxRetries: 2, Delay: time.Millisecond, Handle: c.handle}),
					circuitbreaker.New(&o)))
				calls, began := 0, time.Now()
				err := p.Execute(t.Context(), func(context.Context) error {
					calls++
					if calls == 1 {
						return errBoom
					}
					return nil
				})
				if c.waits {
					require.NoError(t, err)
					assert.Equal(t, 2, calls)
					assert.Equal(t, 5*time.Second, time.Since(began))
					return
				}
				open, ok := errors.AsType[*circuitbreaker.OpenError](err)
				require.True(t, ok)
				require.Equal(t, errBoom, open.Err, "why it is open")
				require.NotErrorIs(t, err, errBoom, "it is another execution's")
				require.EqualError(t, err, "circuitbreaker: orders/CircuitBreaker: the circuit is open, retry after 4.999s")
				assert.Equal(t, 1, calls)
				assert.Equal(t, time.Millisecond, time.Since(began), "the retry of the first failure")

				began = time.Now()
				require.ErrorIs(t, p.Execute(t.Context(), fail), pipeline.ErrRejected)
				assert.Zero(t, time.Since(began))
			})
		})
	}
}

// Callers that wait for the break do not wait for a second one if another of them is the probe.
func TestOpenError_RetryWhileProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := atOnce(1)
		o.RetryRejections = true
		breaker := circuitbreaker.New(&o)
		require.ErrorIs(t, weir.Must(pipeline.New("orders", breaker)).Execute(t.Context(), fail), errBoom)
		p := weir.Must(pipeline.New("orders", retry.New(&retry.Options{MaxRetries: 3, Delay: 100 * time.Millisecond}), breaker))
		began := time.Now()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				assert.NoError(t, p.Execute(t.Context(), func(context.Context) error {
					time.Sleep(50 * time.Millisecond)
					return nil
				}))
				assert.Less(t, time.Since(began), 6*time.Second, "the break took 5s")
			})
		}
		callers.Wait()
	})
}

// A call that hangs is a failure when a timeout inside or the caller's deadline ends it. A caller that
// cancels says nothing about the call.
func TestStrategy_CountsCallsThatHang(t *testing.T) {
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	second := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Second)
	}
	cases := []struct {
		name    string
		context func(context.Context) (context.Context, context.CancelFunc)
		outer   time.Duration // a timeout around the circuit
		inner   time.Duration // a timeout inside the circuit
		want    circuitbreaker.State
	}{
		{name: "a timeout inside", context: context.WithCancel, inner: time.Second, want: circuitbreaker.Open},
		{name: "the caller's deadline", context: second, want: circuitbreaker.Open},
		{name: "a timeout around it", context: context.WithCancel, outer: time.Second, want: circuitbreaker.Open},
		{name: "a cancellation", context: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, want: circuitbreaker.Closed},
		{name: "a deadline before the call", context: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Millisecond)
		}, want: circuitbreaker.Closed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := atOnce(1)
				s := circuitbreaker.New(&o)
				// Takes its time before the circuit is asked.
				slow := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
					time.Sleep(10 * time.Millisecond)
					return next.Run(ctx)
				})
				strategies := []pipeline.Strategy{slow, s}
				if c.outer > 0 {
					strategies = []pipeline.Strategy{timeout.New(c.outer, nil), slow, s}
				}
				if c.inner > 0 {
					strategies = append(strategies, timeout.New(c.inner, nil))
				}
				ctx, cancel := c.context(t.Context())
				defer cancel()
				require.Error(t, weir.Must(pipeline.New("orders", strategies...)).Execute(ctx, hang))
				assert.Equal(t, c.want, s.State())
			})
		})
	}
}

func TestStrategy_SharedByPipelines(t *testing.T) {
	o := atOnce(1)
	s := circuitbreaker.New(&o)
	one, other := weir.Must(pipeline.New("one", s)), weir.Must(pipeline.New("other", s))
	require.Equal(t, errBoom, one.Execute(t.Context(), fail))
	open, ok := errors.AsType[*circuitbreaker.OpenError](other.Execute(t.Context(), succeed))
	require.True(t, ok)
	assert.Equal(t, "other", open.Source.Pipeline)
}

func TestStrategy_Describe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircuit(t, circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 2})
		c.times(t, 1, fail)
		d := c.p.Describe().Strategies[0]
		assert.Equal(t, "circuitbreaker", d.Kind)
		assert.Equal(t, 2, d.Options.(circuitbreaker.Options).ConsecutiveFailures)
		assert.Equal(t, circuitbreaker.Statistics{ConsecutiveFailures: 1}, d.State)
	})
}

func TestTransition_Text(t *testing.T) {
	tr := circuitbreaker.Transition{From: circuitbreaker.Closed, To: circuitbreaker.Open, Source: source, Result: "secret", Err: errBoom}
	assert.Equal(t, "orders/CircuitBreaker: closed to open: boom", fmt.Sprint(tr))
	assert.NotContains(t, tr.LogValue().String(), "secret")
	assert.Equal(t, "closed, 3 of 10 failed, 2 failed in a row", fmt.Sprint(circuitbreaker.Statistics{Throughput: 10, Failures: 3, ConsecutiveFailures: 2}))
	assert.Equal(t, "open, retry after 5s", fmt.Sprint(circuitbreaker.Statistics{State: circuitbreaker.Open, RetryAfter: 5 * time.Second}))
	assert.EqualError(t, &circuitbreaker.OpenError{State: circuitbreaker.Open}, "circuitbreaker: the circuit is open")
}
