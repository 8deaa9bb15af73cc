package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	synctest.Test(t, func(t *testing.T) {
		var log []string
		calls := 0
		err := listened(retry.Options{}, &log).Execute(t.Context(), func(context.Context) error {
			time.Sleep(time.Millisecond)
			calls++
			if calls < 2 {
				return errBoom
			}
			return nil
		})
		require.NoError(t, err)
		assert.Equal(t, []string{
			"attempt 0 Warning true 1ms boom",
			"OnRetry 0 Warning boom",
			"callback 0 2s <nil> boom p/Retry",
			"attempt 1 Information false 1ms <nil>",
		}, log)
	})
}

func TestStrategy_EventOfTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		calls := 0
		_ = listened(retry.Options{MaxRetries: 1}, &log).Execute(t.Context(), failing(9, errBoom, &calls))
		assert.Equal(t, []string{
			"attempt 0 Warning true 0s boom",
			"OnRetry 0 Warning boom",
			"callback 0 2s <nil> boom p/Retry",
			"attempt 1 Error true 0s boom",
		}, log)

		log, calls = nil, 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = listened(retry.Options{}, &log).Execute(ctx, failing(9, errBoom, &calls))
		assert.Equal(t, []string{"attempt 0 Error true 0s boom"}, log, "also where the deadline makes it the last")

		log, calls = nil, 0
		_ = listened(retry.Options{Handle: func(_ any, err error) bool { return !errors.Is(err, errBoom) }}, &log).Execute(t.Context(), failing(9, errBoom, &calls))
		assert.Equal(t, []string{"attempt 0 Information false 0s boom"}, log, "an error that is not handled is none of ours")
	})
}
