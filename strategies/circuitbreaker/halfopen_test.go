package circuitbreaker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// atOnce opens at the first failure.
func atOnce(probes int) circuitbreaker.Options {
	return circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 1, HalfOpenProbes: probes}
}

// While it is asked for the length, the circuit is open.
func TestOptions_BreakDurationFuncIsCalledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *circuit
		var during func()
		asked := 0
		o := atOnce(1)
		o.BreakDurationFunc = func(context.Context, circuitbreaker.Transition) time.Duration {
			asked++
			during()
			return 0
		}
		c = newCircuit(t, o)
		during = func() { c.rejects(t, circuitbreaker.Open, 5*time.Second) }
		c.times(t, 1, fail)
		assert.Equal(t, 1, asked)

		time.Sleep(5 * time.Second)
		slow := c.start(t.Context())
		time.Sleep(5 * time.Second)
		next := c.start(t.Context())
		during = func() { require.NoError(t, next.finish(succeed)) }
		require.Equal(t, errBoom, slow.finish(fail))
		assert.Equal(t, 2, asked)
		assert.Equal(t, circuitbreaker.Open, c.State())
	})
}

func TestOptions_BreakDurationFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []circuitbreaker.Transition
		var opened []time.Duration
		o := circuitbreaker.Options{
			FailureRatio: 0.5, MinimumThroughput: 4,
			BreakDurationFunc: func(_ context.Context, tr circuitbreaker.Transition) time.Duration {
				told = append(told, tr)
				return time.Duration(tr.HalfOpenAttempts) * time.Minute // none for the first
			},
			OnOpened: func(_ context.Context, tr circuitbreaker.Transition) { opened = append(opened, tr.BreakDuration) },
		}
		s := circuitbreaker.New(&o)
		p := weir.Must(pipeline.New("orders", s))
		for _, fn := range []func(context.Context) error{succeed, succeed, fail, fail} {
			_ = p.Execute(t.Context(), fn)
		}
		for range 2 {
			time.Sleep(s.Statistics().RetryAfter)
			_ = p.Execute(t.Context(), fail)
		}
		assert.Equal(t, []time.Duration{5 * time.Second, time.Minute, 2 * time.Minute}, opened)
		first := circuitbreaker.Transition{
			To: circuitbreaker.Open, Source: source, BreakDuration: 5 * time.Second, Throughput: 4, Failures: 2, Err: errBoom,
		}
		second := circuitbreaker.Transition{
			From: circuitbreaker.HalfOpen, To: circuitbreaker.Open, Source: source, BreakDuration: 5 * time.Second,
			HalfOpenAttempts: 1, Err: errBoom,
		}
		assert.Equal(t, []circuitbreaker.Transition{first, second}, told[:2])
		assert.Equal(t, 2, told[2].HalfOpenAttempts)
		time.Sleep(2 * time.Minute)
		require.NoError(t, p.Execute(t.Context(), succeed))
		for range 4 {
			_ = p.Execute(t.Context(), fail)
		}
		assert.Zero(t, told[3].HalfOpenAttempts, "closing resets the number")
	})
}
