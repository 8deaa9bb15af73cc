package adaptive_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/strategies/adaptive"
)

func TestLimiterOptions_OnLimitChangedPanics(t *testing.T) {
	panics := 0
	l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{
		InitialLimit: 10, MaxLimit: 20, MinWindow: 1, MinSamples: 1,
		OnLimitChanged: func(int, int) { panics++; panic("oh") },
	}))
	for range 200 {
		lease, err := l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, lease.Acquired())
		func() {
			defer func() { _ = recover() }()
			lease.Release()
		}()
	}
	require.NotZero(t, panics)
	assert.EqualValues(t, l.Limit(), l.Statistics().AvailablePermits)
}
