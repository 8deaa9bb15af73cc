package circuitbreaker_test

import (
	"context"
	"runtime"
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

// afterTheBreak makes a circuit whose next execution is a probe.
func afterTheBreak(t *testing.T, o circuitbreaker.Options) *circuit {
	t.Helper()
	c := newCircuit(t, o)
	c.times(t, 1, fail)
	c.rejects(t, circuitbreaker.Open, 5*time.Second)
	time.Sleep(5*time.Second - 1)
	c.rejects(t, circuitbreaker.Open, 1)
	time.Sleep(time.Nanosecond)
	assert.Equal(t, circuitbreaker.Statistics{State: circuitbreaker.HalfOpen}, c.Statistics(), "also if no execution comes")
	return c
}

func TestStrategy_ProbeSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := afterTheBreak(t, atOnce(1))
		c.times(t, 1, succeed)
		assert.Equal(t, circuitbreaker.Statistics{}, c.Statistics())
		c.times(t, 1, succeed)
		assert.Equal(t, []string{
			"OnCircuitOpened Error 5s boom", "opened closed>open boom",
			"OnCircuitHalfOpened Warning 0s <nil>", "half-opened open>half_open <nil>",
			"OnCircuitClosed Information 0s <nil>", "closed half_open>closed <nil>",
		}, c.log)
	})
}

func TestStrategy_ProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := afterTheBreak(t, atOnce(1))
		probe := c.start(t.Context())
		time.Sleep(time.Second)
		require.Equal(t, errBoom, probe.finish(fail))
		c.rejects(t, circuitbreaker.Open, 5*time.Second)
		assert.Equal(t, []string{"OnCircuitOpened Error 5s boom", "opened half_open>open boom"}, c.log[4:])
	})
}

func TestStrategy_RejectsWhileProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := afterTheBreak(t, atOnce(1))
		probe := c.start(t.Context())
		open := c.rejects(t, circuitbreaker.HalfOpen, 0)
		require.EqualError(t, open, "circuitbreaker: orders/CircuitBreaker: the circuit is half open, and being probed")
		time.Sleep(time.Second)
		c.rejects(t, circuitbreaker.HalfOpen, 0)
		assert.Equal(t, circuitbreaker.Statistics{State: circuitbreaker.HalfOpen, Probes: 1, RetryAfter: 4 * time.Second}, c.Statistics())
		require.NoError(t, probe.finish(succeed))
	})
}

func TestOptions_HalfOpenProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := afterTheBreak(t, atOnce(3))
		a, b := c.start(t.Context()), c.start(t.Context())
		require.NoError(t, a.finish(succeed))
		d := c.start(t.Context())
		c.rejects(t, circuitbreaker.HalfOpen, 0) // one has succeeded, two run: that may be enough
		require.NoError(t, b.finish(succeed))
		assert.Equal(t, circuitbreaker.HalfOpen, c.State())
		require.NoError(t, d.finish(succeed))
		assert.Equal(t, circuitbreaker.Closed, c.State())
	})
}

func TestStrategy_FirstFailedProbeDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := afterTheBreak(t, atOnce(3))
		c.times(t, 2, succeed)
		slow := c.start(t.Context())
		require.Equal(t, errBoom, slow.finish(fail))
		assert.Equal(t, circuitbreaker.Open, c.State())

		time.Sleep(5 * time.Second)
		all := []started{c.start(t.Context()), c.start(t.Context()), c.start(t.Context())}
		require.Equal(t, errBoom, all[0].finish(fail))
		require.NoError(t, all[1].finish(succeed))
		require.Equal(t, errBoom, all[2].finish(fail))
		c.rejects(t, circuitbreaker.Open, 5*time.Second)
	})
}

// A probe whose caller has gone away does not count, and frees its place for another.
func TestStrategy_CancelledProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := afterTheBreak(t, atOnce(1))
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			probe := c.start(ctx)
			c.rejects(t, circuitbreaker.HalfOpen, 0)
			cancel()
			require.ErrorIs(t, <-probe.done, context.Canceled)
			assert.Equal(t, circuitbreaker.Statistics{State: circuitbreaker.HalfOpen}, c.Statistics())
		}
		assert.Len(t, c.log, 4, "it half-opened once")
		c.times(t, 1, succeed)
		assert.Equal(t, circuitbreaker.Closed, c.State())
	})
}

func TestStrategy_ProbeThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := afterTheBreak(t, atOnce(2))
		first := c.start(t.Context())
		time.Sleep(time.Second)
		second := c.start(t.Context())
		c.rejects(t, circuitbreaker.HalfOpen, 0)
		time.Sleep(4*time.Second - 1)
		c.rejects(t, circuitbreaker.HalfOpen, 0)
		time.Sleep(time.Nanosecond)
		third := c.start(t.Context())
		c.rejects(t, circuitbreaker.HalfOpen, 0)
		assert.Equal(t, 2, c.Statistics().Probes)
		require.NoError(t, second.finish(succeed))
		require.NoError(t, third.finish(succeed))
		assert.Equal(t, circuitbreaker.Closed, c.State())
		require.Equal(t, errBoom, first.finish(fail))
		assert.Equal(t, circuitbreaker.Closed, c.State(), "too late")
	})
}

// Else what always takes longer than a break would never close the circuit.
func TestStrategy_SlowProbeCounts(t *testing.T) {
	for _, end := range []func(context.Context) error{succeed, fail} {
		synctest.Test(t, func(t *testing.T) {
			c := afterTheBreak(t, atOnce(1))
			slow := c.start(t.Context())
			time.Sleep(5 * time.Second)
			next := c.start(t.Context())
			assert.Equal(t, circuitbreaker.HalfOpen, c.State())
			want := map[bool]circuitbreaker.State{true: circuitbreaker.Closed, false: circuitbreaker.Open}[slow.finish(end) == nil]
			assert.Equal(t, want, c.State())
			require.NoError(t, next.finish(succeed))
			assert.Equal(t, want, c.State())
		})
	}
}

// A cancelled probe whose place was given away must not free another's.
func TestStrategy_SlowCancelledProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := afterTheBreak(t, atOnce(1))
		ctx, cancel := context.WithCancel(t.Context())
		slow := c.start(ctx)
		time.Sleep(5 * time.Second)
		next := c.start(t.Context())
		cancel()
		require.Error(t, <-slow.done)
		c.rejects(t, circuitbreaker.HalfOpen, 0)
		require.NoError(t, next.finish(succeed))
	})
}

func TestStrategy_PanicAndGoexit(t *testing.T) {
	for name, leave := range map[string]func(context.Context) error{
		"panic":  func(context.Context) error { panic("boom") },
		"Goexit": func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCircuit(t, atOnce(1))
				require.Equal(t, pipeline.ErrAborted, c.start(t.Context()).finish(leave))
				assert.Equal(t, pipeline.ErrAborted, c.rejects(t, circuitbreaker.Open, 5*time.Second).Err)
				time.Sleep(5 * time.Second)
				require.Equal(t, pipeline.ErrAborted, c.start(t.Context()).finish(leave))
				c.rejects(t, circuitbreaker.Open, 5*time.Second)
				time.Sleep(5 * time.Second)
				c.times(t, 1, succeed)
				assert.Equal(t, circuitbreaker.Closed, c.State())
			})
		})
	}
}

// The functions of the Options may panic, too, and wedge nothing.
func TestStrategy_PanicOfAFunction(t *testing.T) {
	boom := func(context.Context, circuitbreaker.Transition) { panic("boom") }
	tests := []struct {
		name string
		set  func(*circuitbreaker.Options)
		want circuitbreaker.State // after a failure, the break, and a success
	}{
		{"OnOpened", func(o *circuitbreaker.Options) { o.OnOpened = boom }, circuitbreaker.Closed},
		{"OnHalfOpened", func(o *circuitbreaker.Options) { o.OnHalfOpened = boom }, circuitbreaker.HalfOpen},
		{"OnClosed", func(o *circuitbreaker.Options) { o.OnClosed = boom }, circuitbreaker.Closed},
		{"BreakDurationFunc", func(o *circuitbreaker.Options) {
			o.BreakDurationFunc = func(context.Context, circuitbreaker.Transition) time.Duration { panic("boom") }
		}, circuitbreaker.Closed},
		{"Handle", func(o *circuitbreaker.Options) { o.Handle = func(any, error) bool { panic("boom") } }, circuitbreaker.Open},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := atOnce(1)
				tt.set(&o)
				s := circuitbreaker.New(&o)
				p := weir.Must(pipeline.New("orders", s))
				run := func(fn func(context.Context) error) {
					defer func() { _ = recover() }()
					_ = p.Execute(t.Context(), fn)
				}
				run(fail)
				assert.Equal(t, circuitbreaker.Statistics{State: circuitbreaker.Open, RetryAfter: 5 * time.Second}, s.Statistics())
				time.Sleep(5 * time.Second)
				run(succeed)
				assert.Equal(t, tt.want, s.State())
				assert.Zero(t, s.Statistics().Probes)
			})
		})
	}
}

// While it is asked for the length, the circuit has made up its mind.
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
		during = func() { c.times(t, 1, fail) }
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
