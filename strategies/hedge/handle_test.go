package hedge_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/hedge"
)

func TestOptions_HandlePanics(t *testing.T) {
	for _, delay := range []time.Duration{0, -1} {
		var disposed []any
		p := with(&hedge.Options{
			Delay:   delay,
			Handle:  func(any, error) bool { panic("oh") },
			Dispose: func(result any, _ error) { disposed = append(disposed, result) },
		})
		assert.PanicsWithValue(t, "oh", func() {
			_, _ = pipeline.ExecuteValue(t.Context(), p, func(context.Context) (string, error) { return "body", nil })
		})
		assert.Equal(t, []any{"body"}, disposed)
	}
}

// One attempt that listens is enough for the execution to end with the context.
func TestStrategy_SuccessAfterAContextError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*s)
		defer cancel()
		disposed := make(chan any, 1)
		p := with(&hedge.Options{Delay: s, Dispose: func(result any, _ error) { disposed <- result }})
		_, err := pipeline.ExecuteValue(ctx, p, func(ctx context.Context) (string, error) {
			if hedge.AttemptNumber(ctx) == 0 {
				time.Sleep(4 * s)
				return "late", nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		})
		assert.Equal(t, context.DeadlineExceeded, err)
		assert.Equal(t, any("late"), <-disposed)
	})
}

// A deadline that is not the execution's own does not win: the next attempt may answer.
func TestOptions_HandleByDefault(t *testing.T) {
	for _, delay := range []time.Duration{time.Hour, -1} {
		p := with(&hedge.Options{Delay: delay})
		v, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (string, error) {
			if hedge.AttemptNumber(ctx) == 0 {
				return "", fmt.Errorf("query: %w", context.DeadlineExceeded)
			}
			return "fine", nil
		})
		assert.NoError(t, err)
		assert.Equal(t, "fine", v)
	}
}
