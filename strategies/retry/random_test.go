package retry_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
)

// The jitter comes from the random numbers of the context, so that package simulate can repeat an execution.
func TestRetry_RandomOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, backoff := range []retry.Backoff{retry.Constant, retry.Exponential} {
			waits := func(seed uint64) (all []time.Duration) {
				p := with(&retry.Options{Jitter: true, Backoff: backoff, MaxRetries: 5, OnRetry: func(_ context.Context, a pipeline.Event) {
					all = append(all, a.Duration)
				}})
				ctx := deterministic.WithRandom(t.Context(), &deterministic.Source{Rand: rand.New(rand.NewPCG(seed, 0))})
				assert.ErrorIs(t, p.Execute(ctx, func(context.Context) error { return errBoom }), errBoom)
				return all
			}
			first := waits(1)
			assert.Len(t, first, 5)
			assert.Equal(t, first, waits(1))
			assert.NotEqual(t, first, waits(2))
		}
	})
}
