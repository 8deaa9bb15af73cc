package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
)

func share(ratio float64) *budget.Ratio {
	return weir.Must(budget.New(&budget.Options{Ratio: ratio, MinPerSecond: -1}))
}

func TestOptions_Budget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		extra, calls := share(2), 0
		strategy := retry.New(&retry.Options{Budget: extra})
		p := weir.Must(pipeline.New("orders", strategy))
		err := p.Execute(t.Context(), failing(9, errBoom, &calls))
		assert.Equal(t, 3, calls, "two more than one")
		assert.ErrorIs(t, err, errBoom)
		assert.ErrorIs(t, err, budget.ErrExhausted)
		assert.EqualError(t, err, "boom; retry: gave up after attempt 3: budget: exhausted")
		_, state := strategy.Describe()
		assert.Equal(t, budget.Statistics{Executions: 1, Taken: 2, Refused: 1}, state)
	})
}

func TestOptions_SharedBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		extra, calls := share(0.25), 0
		busy, quiet := with(&retry.Options{Budget: extra}), with(&retry.Options{Budget: extra, MaxRetries: -1})
		for range 7 {
			require.NoError(t, quiet.Execute(t.Context(), func(context.Context) error { return nil }))
		}
		assert.Same(t, errBoom, quiet.Execute(t.Context(), failing(9, errBoom, &calls)), "none wanted, none taken")
		assert.NoError(t, busy.Execute(t.Context(), failing(2, errBoom, &calls)), "one retry")
		assert.Equal(t, budget.Statistics{Executions: 9, Taken: 1, Available: 1}, extra.Statistics())
	})
}

func TestOptions_ExhaustedBudgetAndResult(t *testing.T) {
	p := with(&retry.Options{Budget: share(0.1), Handle: func(any, error) bool { return true }})
	v, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (string, error) { return "unwanted", nil })
	assert.Equal(t, "unwanted", v)
	assert.EqualError(t, err, "retry: gave up after attempt 1: budget: exhausted")
}

func TestStrategy_EventOfAnExhaustedBudget(t *testing.T) {
	var log []string
	var exhausted []pipeline.Event
	p := weir.Must(pipeline.Config{Name: "p", Strategies: []pipeline.Strategy{retry.New(&retry.Options{Budget: share(0.1)})},
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			log = append(log, e.Name+" "+e.Severity.String())
			if e.Name == budget.EventExhausted {
				exhausted = append(exhausted, e)
			}
		})}.Build())
	calls := 0
	_ = p.Execute(t.Context(), failing(9, errBoom, &calls))
	assert.Equal(t, []string{"PipelineExecuting Debug", "ExecutionAttempt Error", "OnBudgetExhausted Warning", "PipelineExecuted Information"}, log)
	assert.Equal(t, []pipeline.Event{{
		Name: "OnBudgetExhausted", Severity: pipeline.SeverityWarning, Err: errBoom,
		Source: pipeline.Source{Pipeline: "p", Strategy: "Retry"},
	}}, exhausted)
}

func TestAllocations_Budget(t *testing.T) {
	p, ctx := with(&retry.Options{Delay: -1, Budget: share(1)}), t.Context()
	calls := 0
	if got := testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, func(context.Context) error { return nil }) }); got != 0 {
		t.Errorf("first attempt succeeds: %v allocations, want 0", got)
	}
	if got := testing.AllocsPerRun(200, func() { calls = 0; _ = p.Execute(ctx, failing(1, errBoom, &calls)) }); got > 1 {
		t.Errorf("one failure: %v allocations, want the closure of the test's own", got)
	}
}

// A retry that called nothing has added nothing to the load.
func TestBudget_RetriesThatCallNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		extra := share(9)
		l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
		p := weir.Must(pipeline.New("orders", retry.New(&retry.Options{Budget: extra, Delay: time.Millisecond}), ratelimit.New(l, nil)))
		lease, err := l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.Error(t, p.Execute(t.Context(), func(context.Context) error { return nil }))
		assert.Zero(t, extra.Statistics().Taken)
		lease.Release()
		calls := 0
		require.Error(t, p.Execute(t.Context(), failing(9, errBoom, &calls)))
		assert.EqualValues(t, calls-1, extra.Statistics().Taken)
	})
}
