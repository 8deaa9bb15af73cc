package weirfailsafe_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/weirfailsafe"
)

// A hedge policy cancels the losers with the winner's successful result. A loser whose pipeline makes
// another attempt at that moment finds neither an error nor an execution to run.
func TestFromPipeline_LosesUnderAHedgePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := make(chan error, 1)
		// The second run does not notice the cancellation, as one that happens just before it.
		twice := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			if value, err := next.Run(ctx); err == nil {
				return value, nil
			}
			value, err := next.Run(context.WithoutCancel(ctx))
			again <- err
			return value, err
		})
		p := weir.Must(pipeline.New("orders", twice))
		got, err := failsafe.With(hedgepolicy.NewWithDelay[string](time.Millisecond), weirfailsafe.FromPipeline[string](p, nil)).
			GetWithExecution(func(exec failsafe.Execution[string]) (string, error) {
				if exec.IsHedge() {
					return "hedge", nil
				}
				<-exec.Canceled()
				return "", errBoom
			})
		require.NoError(t, err)
		assert.Equal(t, "hedge", got)
		assert.ErrorIs(t, <-again, context.Canceled)
	})
}
