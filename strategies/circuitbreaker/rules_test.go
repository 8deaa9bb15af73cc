package circuitbreaker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
)

func TestStrategy_WhatCounts(t *testing.T) {
	notFound := errors.New("not found")
	result := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	handle := func(_ any, err error) bool { return err != nil && !errors.Is(err, notFound) }
	never := func(any, error) bool { return false }
	tests := []struct {
		name   string
		handle func(any, error) bool
		err    error
		want   circuitbreaker.Statistics
	}{
		{"a success", nil, nil, circuitbreaker.Statistics{Throughput: 1}},
		{"an error", nil, errBoom, circuitbreaker.Statistics{Throughput: 1, Failures: 1, ConsecutiveFailures: 3}},
		{"a cancellation", nil, context.Canceled, circuitbreaker.Statistics{ConsecutiveFailures: 2}},
		{"a deadline of its own", nil, context.DeadlineExceeded, circuitbreaker.Statistics{Throughput: 1, Failures: 1, ConsecutiveFailures: 3}},
		{"a limiter's rejection", nil, &ratelimit.RejectedError{}, circuitbreaker.Statistics{ConsecutiveFailures: 2}},
		{"a rejection that is wrapped", nil, fmt.Errorf("attempt: %w", &ratelimit.RejectedError{}), circuitbreaker.Statistics{ConsecutiveFailures: 2}},
		{"an inner circuit that is open", nil, &circuitbreaker.OpenError{}, circuitbreaker.Statistics{ConsecutiveFailures: 2}},
		{"an inner timeout", nil, &timeout.Error{After: 1}, circuitbreaker.Statistics{Throughput: 1, Failures: 1, ConsecutiveFailures: 3}},
		{"a rejection that Handle does not want", never, &ratelimit.RejectedError{}, circuitbreaker.Statistics{ConsecutiveFailures: 2}},
		{"a rejection that it wants", handle, &ratelimit.RejectedError{}, circuitbreaker.Statistics{Throughput: 1, Failures: 1, ConsecutiveFailures: 3}},
		{"an error that Handle does not want", handle, notFound, circuitbreaker.Statistics{Throughput: 1}},
		{"an error that it wants", handle, errBoom, circuitbreaker.Statistics{Throughput: 1, Failures: 1, ConsecutiveFailures: 3}},
		{"a cancellation that it wants", handle, context.Canceled, circuitbreaker.Statistics{Throughput: 1, Failures: 1, ConsecutiveFailures: 3}},
		{"a cancellation that it does not", never, context.Canceled, circuitbreaker.Statistics{ConsecutiveFailures: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				o := circuitbreaker.Options{ConsecutiveFailures: 9, Handle: func(r any, err error) bool {
					if first {
						return errors.Is(err, errBoom)
					}
					return tt.handle(r, err)
				}}
				if tt.handle == nil {
					o.Handle = nil
				}
				c := newCircuit(t, o)
				c.times(t, 2, fail)
				first = false
				time.Sleep(time.Minute) // the window forgets them, the row does not
				assert.Equal(t, tt.err, c.run(t, result(tt.err)))
				assert.Equal(t, tt.want, c.Statistics())
			})
		})
	}
}

func TestOptions_HandleResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := circuitbreaker.New(&circuitbreaker.Options{
			ConsecutiveFailures: 1, Handle: func(r any, _ error) bool { return r == 503 },
			OnOpened: func(_ context.Context, tr circuitbreaker.Transition) { assert.Equal(t, 503, tr.Result) },
		})
		p := weir.Must(pipeline.New("orders", s))
		for _, status := range []int{200, 503} {
			got, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (int, error) { return status, nil })
			require.NoError(t, err)
			assert.Equal(t, status, got)
		}
		assert.Equal(t, circuitbreaker.Open, s.State())
	})
}

func TestStrategy_DoneContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircuit(t, circuitbreaker.Options{ConsecutiveFailures: 1})
		done, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, c.p.Execute(done, fail), context.Canceled)
		assert.Equal(t, circuitbreaker.Statistics{}, c.Statistics())
		c.times(t, 1, fail)
		require.ErrorIs(t, c.p.Execute(done, fail), context.Canceled, "not a rejection")
		time.Sleep(5 * time.Second)
		require.ErrorIs(t, c.p.Execute(done, fail), context.Canceled)
		s := c.Strategy
		late := weir.Must(pipeline.New("late", pipeline.StrategyFunc(func(_ context.Context, next pipeline.Next) (any, error) {
			return next.Run(done) // it ended on the way here
		}), s))
		require.ErrorIs(t, late.Execute(t.Context(), fail), context.Canceled)
		assert.NotContains(t, strings.Join(c.log, "\n"), circuitbreaker.EventHalfOpened, "no probe of an execution that cannot run")
	})
}

func TestOptions_ExtremeDurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircuit(t, circuitbreaker.Options{
			MinimumThroughput: 2, SamplingDuration: math.MaxInt64, BreakDuration: math.MaxInt64, HalfOpenProbes: math.MaxInt,
		})
		c.times(t, 2, fail)
		assert.Equal(t, circuitbreaker.Open, c.State())
		assert.Positive(t, c.Statistics().RetryAfter)
		time.Sleep(time.Hour)
		assert.Equal(t, circuitbreaker.Open, c.State())

		c = newCircuit(t, circuitbreaker.Options{MinimumThroughput: 2, SamplingDuration: 1, BreakDuration: 1})
		c.times(t, 2, fail)
		c.rejects(t, circuitbreaker.Open, 1)
		time.Sleep(time.Nanosecond)
		c.times(t, 1, succeed)
		assert.Equal(t, circuitbreaker.Closed, c.State())
	})
}
