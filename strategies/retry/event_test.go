package retry_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
)

// listened builds a pipeline whose events, and calls of OnRetry, come as text.
func listened(o retry.Options, into *[]string) *pipeline.Pipeline {
	o.OnRetry = func(_ context.Context, r pipeline.Event) {
		*into = append(*into, fmt.Sprintf("callback %d %v %v %v %v", r.Attempt, r.Duration, r.Result, r.Err, r.Source))
	}
	return weir.Must(pipeline.Config{Name: "p", Strategies: []pipeline.Strategy{retry.New(&o)},
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			switch e.Name {
			case pipeline.EventExecutionAttempt:
				*into = append(*into, fmt.Sprintf("attempt %d %v %v %v %v", e.Attempt, e.Severity, e.Handled, e.Duration, e.Err))
			case retry.EventRetry:
				*into = append(*into, fmt.Sprintf("OnRetry %d %v %v", e.Attempt, e.Severity, e.Err))
			}
		})}.Build())
}

func TestStrategy_Events(t *testing.T) {
	retried := []string{"attempt 0 Warning true 1ms boom", "OnRetry 0 Warning boom", "callback 0 2s <nil> boom p/Retry"}
	for name, c := range map[string]struct {
		options retry.Options
		fails   int
		limit   time.Duration
		want    []string
	}{
		"a success":                    {retry.Options{}, 1, time.Hour, append(slices.Clone(retried), "attempt 1 Information false 1ms <nil>")},
		"the last":                     {retry.Options{MaxRetries: 1}, 9, time.Hour, append(slices.Clone(retried), "attempt 1 Error true 1ms boom")},
		"the last before the deadline": {retry.Options{}, 9, time.Second, []string{"attempt 0 Error true 1ms boom"}},
		"not handled":                  {retry.Options{Handle: func(any, error) bool { return false }}, 9, time.Hour, []string{"attempt 0 Information false 1ms boom"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log []string
			calls := 0
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			_ = listened(c.options, &log).Execute(ctx, func(ctx context.Context) error {
				time.Sleep(time.Millisecond)
				return failing(c.fails, errBoom, &calls)(ctx)
			})
			assert.Equal(t, c.want, log, name)
		})
	}
}
