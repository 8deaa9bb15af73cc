package hedge_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// listened builds a pipeline whose events, and calls of OnHedge, come as text. It
// needs no lock: they all come in the caller's goroutine.
func listened(o hedge.Options, into *[]string) *pipeline.Pipeline {
	o.OnHedge = func(_ context.Context, h pipeline.Event) {
		*into = append(*into, fmt.Sprintf("callback %d %v %v %v", h.Attempt, h.Result, h.Err, h.Source))
	}
	return weir.Must(pipeline.Config{Name: "p", Strategies: []pipeline.Strategy{hedge.New(&o)},
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			switch e.Name {
			case pipeline.EventExecutionAttempt:
				*into = append(*into, fmt.Sprintf("attempt %d %v %v %v %v", e.Attempt, e.Severity, e.Handled, e.Duration, e.Err))
			case hedge.EventHedging, budget.EventExhausted:
				*into = append(*into, fmt.Sprintf("%s %d %v %v", e.Name, e.Attempt, e.Severity, e.Err))
			}
		})}.Build())
}

func TestStrategy_Events(t *testing.T) {
	none := &budget.Options{Ratio: -1, MinPerSecond: -1}
	cases := []struct {
		name    string
		options hedge.Options
		script  script
		want    []string
	}{
		{"in time", hedge.Options{}, script{{takes: s}}, []string{"attempt 0 Information false 1s <nil>"}},
		{"a slow one", hedge.Options{}, script{{takes: 9 * s}, {takes: s}}, []string{
			"OnHedging 1 Warning <nil>",
			"callback 1 <nil> <nil> p/Hedging",
			"attempt 1 Information false 1s <nil>",
			"attempt 0 Information false 3s hedge: another attempt decided",
		}},
		{"a failed one", hedge.Options{}, script{{takes: s, err: errBoom}, {takes: s}}, []string{
			"attempt 0 Warning true 1s boom",
			"OnHedging 1 Warning boom",
			"callback 1 0 boom p/Hedging",
			"attempt 1 Information false 1s <nil>",
		}},
		{"the last is an error", hedge.Options{}, script{{takes: 5 * s, err: errBoom}, {takes: s, err: errBoom}}, []string{
			"OnHedging 1 Warning <nil>",
			"callback 1 <nil> <nil> p/Hedging",
			"attempt 1 Warning true 1s boom",
			"attempt 0 Error true 5s boom",
		}},
		{"in turn", hedge.Options{Delay: -1}, script{{takes: s, err: errBoom}, {takes: s, err: errBoom}}, []string{
			"attempt 0 Warning true 1s boom",
			"OnHedging 1 Warning boom",
			"callback 1 0 boom p/Hedging",
			"attempt 1 Error true 1s boom",
		}},
		{"a panic", hedge.Options{}, script{{takes: s, panic: "oh"}}, []string{"attempt 0 Information false 1s " + pipeline.ErrAborted.Error()}},
		{"no budget for a slow one", hedge.Options{MaxHedges: 3, Budget: weir.Must(budget.New(none))}, script{{takes: 9 * s}}, []string{
			"OnBudgetExhausted 1 Warning <nil>",
			"attempt 0 Information false 9s <nil>",
		}},
		{"no budget for a failed one", hedge.Options{Budget: weir.Must(budget.New(none))}, script{{takes: s, err: errBoom}}, []string{
			"OnBudgetExhausted 1 Warning boom",
			"attempt 0 Error true 1s boom",
		}},
		{"no budget for all at once", hedge.Options{AtOnce: true, MaxHedges: 3, Budget: weir.Must(budget.New(none))}, script{{takes: s}}, []string{
			"OnBudgetExhausted 1 Warning <nil>",
			"attempt 0 Information false 1s <nil>",
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log []string
				var began []time.Duration
				func() {
					defer func() { _ = recover() }()
					_, _ = pipeline.ExecuteValue(t.Context(), listened(c.options, &log), c.script.run(&began))
				}()
				assert.Equal(t, c.want, log)
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Len(t, log, len(c.want), "nothing is reported after the execution")
			})
		})
	}
}

func TestOptions_Budget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		extra := weir.Must(budget.New(&budget.Options{Ratio: 0.1, MinPerSecond: -1}))
		strategy := hedge.New(&hedge.Options{AtOnce: true, MaxHedges: 2, Budget: extra})
		p := weir.Must(pipeline.New("prices", strategy))
		calls := make(chan int, 1000)
		for range 100 {
			assert.NoError(t, p.Execute(t.Context(), func(ctx context.Context) error {
				calls <- hedge.AttemptNumber(ctx)
				time.Sleep(ms)
				return nil
			}))
		}
		synctest.Wait()
		assert.Len(t, calls, 110)
		_, state := strategy.Describe()
		assert.Equal(t, budget.Statistics{Executions: 100, Taken: 10, Refused: 100}, state)
	})
}

// A hedge that called nothing has added nothing to the load.
func TestBudget_HedgesThatCallNothing(t *testing.T) {
	for name, o := range map[string]hedge.Options{"in turn": {Delay: -1, MaxHedges: 2}, "at once": {AtOnce: true, MaxHedges: 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				extra := weir.Must(budget.New(&budget.Options{Ratio: 9, MinPerSecond: -1}))
				o.Budget = extra
				l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
				lease, err := l.TryAcquire(t.Context(), 1)
				assert.NoError(t, err)
				defer lease.Release()
				p := weir.Must(pipeline.New("prices", hedge.New(&o), ratelimit.New(l, nil)))
				assert.Error(t, p.Execute(t.Context(), func(context.Context) error { return nil }))
				assert.Zero(t, extra.Statistics().Taken)
			})
		})
	}
}
