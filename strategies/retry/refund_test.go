package retry_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/retry"
)

// A retry that is not made costs the budget nothing: mass cancellation must not drain it.
func TestBudget_ChargesOnlyRetriesThatAreMade(t *testing.T) {
	fail := func(context.Context) error { return errBoom }
	cases := []struct {
		name       string
		hooks      func(o *retry.Options, cancel func())
		executions int
		taken      int64
	}{
		{name: "the context ends during the wait", hooks: func(_ *retry.Options, cancel func()) { time.AfterFunc(time.Second, cancel) }, executions: 20},
		{name: "the context ends in OnRetry", hooks: func(o *retry.Options, cancel func()) {
			o.OnRetry = func(context.Context, pipeline.Event) { cancel() }
		}, executions: 1},
		{name: "OnRetry panics", hooks: func(o *retry.Options, _ func()) {
			o.OnRetry = func(context.Context, pipeline.Event) { panic("hook") }
		}, executions: 20},
		{name: "OnRetry leaves the goroutine", hooks: func(o *retry.Options, _ func()) {
			o.OnRetry = func(context.Context, pipeline.Event) { runtime.Goexit() }
		}, executions: 20},
		{name: "the retry is made", hooks: func(o *retry.Options, _ func()) { o.Delay = -1 }, executions: 1, taken: 3},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				extra := weir.Must(budget.New(&budget.Options{MinPerSecond: 5, Ratio: -1}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				o := retry.Options{Delay: time.Minute, Budget: extra}
				c.hooks(&o, cancel)
				p := weir.Must(pipeline.New("p", retry.New(&o)))
				var done sync.WaitGroup
				for range c.executions {
					done.Go(func() {
						defer func() { _ = recover() }()
						_ = p.Execute(ctx, fail)
					})
				}
				done.Wait()
				assert.Equal(t, c.taken, extra.Statistics().Taken)
			})
		})
	}
}

func TestRatio_Refund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		extra := weir.Must(budget.New(&budget.Options{MinPerSecond: 1, Ratio: -1, Window: 2 * time.Second}))
		require.True(t, extra.TryAcquire(t.Context()))
		time.Sleep(time.Second)
		require.True(t, extra.TryAcquire(t.Context()))
		require.False(t, extra.TryAcquire(t.Context()))
		extra.Refund(t.Context())
		assert.EqualValues(t, 1, extra.Statistics().Taken)
		time.Sleep(time.Second)
		assert.EqualValues(t, 1, extra.Statistics().Taken, "the other one is remembered as long as it would have been")
		extra.Refund(t.Context())
		extra.Refund(t.Context())
		assert.Zero(t, extra.Statistics().Taken, "never less than nothing")
	})
}
