package adaptive_test

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
	"github.com/weir-go/weir/strategies/adaptive"
)

// OnLimitChanged runs when the permit of the lease that changed the limit is back, so that it can use the
// limiter, and the other limiters of a chain get theirs back even if it panics.
func TestLimiterOptions_OnLimitChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *adaptive.Limiter
		available, changes := int64(0), 0
		l, err := adaptive.NewLimiter(&adaptive.LimiterOptions{
			InitialLimit: 4, MinSamples: 1, MinWindow: time.Millisecond, MaxWindow: time.Millisecond,
			OnLimitChanged: func(_, current int) {
				changes++
				lease, err := l.TryAcquire(context.Background(), current)
				assert.NoError(t, err)
				if assert.True(t, lease.Acquired(), "all permits are there") {
					lease.Release()
				}
				available = l.Statistics().AvailablePermits
				panic("hook")
			},
		})
		require.NoError(t, err)
		slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
		both, err := limiter.Chain(slots, l)
		require.NoError(t, err)
		p := weir.Must(pipeline.New("p", adaptive.New(both, nil)))
		for range 200 {
			func() {
				defer func() { _ = recover() }()
				_ = p.Execute(t.Context(), func(context.Context) error { time.Sleep(5 * time.Millisecond); return nil })
			}()
			require.EqualValues(t, 1, slots.Statistics().AvailablePermits)
			require.EqualValues(t, l.Limit(), l.Statistics().AvailablePermits)
		}
		assert.Positive(t, changes)
		assert.Positive(t, available)
	})
}
