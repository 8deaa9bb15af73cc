package chaos_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/chaos"
)

func TestFault(t *testing.T) {
	var log []string
	p := listened(&log, always, makers["Chaos.Fault"])
	v, err := pipeline.ExecuteValue(t.Context(), p, noting(&log))
	assert.Same(t, errBoom, err, "as it is")
	assert.Empty(t, v)
	assert.Equal(t, []string{
		"Chaos.OnFault Information <nil> boom 0s",
		"callback <nil> boom 0s p/Chaos.Fault",
	}, log)
}

func TestFault_DefaultError(t *testing.T) {
	err := with(chaos.NewFault(&chaos.FaultOptions{Options: always})).Execute(t.Context(), func(context.Context) error { return nil })
	assert.ErrorIs(t, err, chaos.ErrInjected)
	assert.NotErrorIs(t, err, pipeline.ErrRejected)
	assert.EqualError(t, err, "chaos: orders/Chaos.Fault: injected fault")
}

func TestFaultOptions_ErrFunc(t *testing.T) {
	var log []string
	fault := errBoom
	p := listened(&log, always, func(o chaos.Options) pipeline.Strategy {
		return chaos.NewFault(&chaos.FaultOptions{Options: o, ErrFunc: func(context.Context) error { return fault }})
	})
	_, err := pipeline.ExecuteValue(t.Context(), p, noting(&log))
	assert.Same(t, errBoom, err)
	assert.Len(t, log, 2)

	log, fault = nil, nil
	_, err = pipeline.ExecuteValue(t.Context(), p, noting(&log))
	assert.NoError(t, err)
	assert.Equal(t, []string{"ran"}, log, "nil: no injection")
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		o := &chaos.LatencyOptions{}
		build := func(c chaos.Options) pipeline.Strategy { o.Options = c; return chaos.NewLatency(o) }
		for _, tt := range []struct {
			options chaos.LatencyOptions
			want    time.Duration
		}{
			{chaos.LatencyOptions{}, 30 * time.Second},
			{chaos.LatencyOptions{Latency: time.Minute}, time.Minute},
			{chaos.LatencyOptions{Latency: -1, LatencyFunc: lasting(time.Hour)}, time.Hour},
		} {
			*o, log = tt.options, nil
			began := time.Now()
			v, err := pipeline.ExecuteValue(t.Context(), listened(&log, always, build), noting(&log))
			assert.NoError(t, err)
			assert.Equal(t, "fresh", v)
			assert.Equal(t, tt.want, time.Since(began))
			assert.Equal(t, []string{
				"Chaos.OnLatency Information <nil> <nil> " + tt.want.String(),
				"callback <nil> <nil> " + tt.want.String() + " p/Chaos.Latency",
				"ran",
			}, log)
		}
		for _, none := range []chaos.LatencyOptions{{Latency: -1}, {LatencyFunc: lasting(0)}, {LatencyFunc: lasting(-time.Hour)}} {
			*o, log = none, nil
			began := time.Now()
			_, err := pipeline.ExecuteValue(t.Context(), listened(&log, always, build), noting(&log))
			assert.NoError(t, err)
			assert.Zero(t, time.Since(began))
			assert.Equal(t, []string{"ran"}, log)
		}
	})
}

func lasting(d time.Duration) func(context.Context) time.Duration {
	return func(context.Context) time.Duration { return d }
}

func TestLatency_EndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("the user went away")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		var log []string
		began := time.Now()
		_, err := pipeline.ExecuteValue(ctx, listened(&log, always, func(o chaos.Options) pipeline.Strategy {
			return chaos.NewLatency(&chaos.LatencyOptions{Options: o})
		}), noting(&log))
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, cause)
		assert.Equal(t, time.Second, time.Since(began))
		assert.False(t, pipeline.NotCalled(err), "as a slow call")
		assert.Equal(t, []string{"Chaos.OnLatency Information <nil> <nil> 30s"}, log)
	})
}

func TestOutcome(t *testing.T) {
	var log []string
	p := listened(&log, always, func(o chaos.Options) pipeline.Strategy {
		return chaos.NewOutcome(&chaos.OutcomeOptions{Options: o, Result: chaos.Result{Value: "stale", Err: errBoom}})
	})
	v, err := pipeline.ExecuteValue(t.Context(), p, noting(&log))
	assert.Same(t, errBoom, err)
	assert.Equal(t, "stale", v)
	assert.Equal(t, []string{
		"Chaos.OnOutcome Information stale boom 0s",
		"callback stale boom 0s p/Chaos.Outcome",
	}, log)

	n, err := pipeline.ExecuteValue(t.Context(), with(makers["Chaos.Outcome"](always)), func(context.Context) (int, error) { return 1, nil })
	assert.ErrorIs(t, err, pipeline.ErrResultType)
	assert.ErrorContains(t, err, "want int, got string")
	assert.Zero(t, n)
	assert.NoError(t, with(makers["Chaos.Outcome"](always)).Execute(t.Context(), func(context.Context) error { return errBoom }),
		"Execute has no use for the value")
}

func TestOutcomeOptions_ResultFunc(t *testing.T) {
	result, ok := chaos.Result{Value: "stale"}, true
	p := with(chaos.NewOutcome(&chaos.OutcomeOptions{Options: always, ResultFunc: func(context.Context) (chaos.Result, bool) { return result, ok }}))
	for _, want := range []string{"stale", "fresh"} {
		v, err := pipeline.ExecuteValue(t.Context(), p, noting(new([]string)))
		assert.NoError(t, err)
		assert.Equal(t, want, v)
		ok = false
	}
}

func TestBehavior(t *testing.T) {
	var log []string
	var fails error
	p := listened(&log, always, func(o chaos.Options) pipeline.Strategy {
		return chaos.NewBehavior(&chaos.BehaviorOptions{Options: o, Behavior: func(context.Context) error {
			log = append(log, "behaviour")
			return fails
		}})
	})
	v, err := pipeline.ExecuteValue(t.Context(), p, noting(&log))
	assert.NoError(t, err)
	assert.Equal(t, "fresh", v)
	assert.Equal(t, []string{
		"behaviour",
		"Chaos.OnBehavior Information <nil> <nil> 0s",
		"callback <nil> <nil> 0s p/Chaos.Behavior",
		"ran",
	}, log)

	log, fails = nil, errBoom
	_, err = pipeline.ExecuteValue(t.Context(), p, noting(&log))
	assert.Same(t, errBoom, err)
	assert.Equal(t, []string{
		"behaviour",
		"Chaos.OnBehavior Information <nil> boom 0s",
		"callback <nil> boom 0s p/Chaos.Behavior",
	}, log, "an error of it is the outcome")
}

// A strategy inside might do something although the context has ended.
func TestStrategies_ContextEndsDuringAnInjection(t *testing.T) {
	ended := func(cancel func()) []pipeline.Strategy {
		o := always
		o.OnInjected = func(context.Context, pipeline.Event) { cancel() }
		return []pipeline.Strategy{
			chaos.NewBehavior(&chaos.BehaviorOptions{Options: always, Behavior: func(context.Context) error { cancel(); return nil }}),
			chaos.NewLatency(&chaos.LatencyOptions{Options: o, Latency: 1}),
			chaos.NewFault(&chaos.FaultOptions{Options: always, ErrFunc: func(context.Context) error { cancel(); return nil }}),
			chaos.NewOutcome(&chaos.OutcomeOptions{Options: always, ResultFunc: func(context.Context) (chaos.Result, bool) { cancel(); return chaos.Result{}, false }}),
		}
	}
	inner := pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) { panic("must not run") })
	for i := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		err := with(ended(cancel)[i], inner).Execute(ctx, func(context.Context) error { panic("must not run") })
		assert.ErrorIs(t, err, context.Canceled)
	}
}
