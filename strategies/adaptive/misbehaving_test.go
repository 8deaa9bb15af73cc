package adaptive_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// misbehaving is a Measurer that does not return from the first measurement of a name.
type misbehaving struct {
	name  string
	leave func()
}

func (*misbehaving) OnEvent(context.Context, pipeline.Event) {}

func (m *misbehaving) OnMeasurement(_ context.Context, e pipeline.Event) {
	if leave := m.leave; e.Name == m.name && leave != nil {
		m.leave = nil
		leave()
	}
}

func TestStrategy_MeasurerThatDoesNotReturn(t *testing.T) {
	for how, leave := range map[string]func(){"panic": func() { panic("measurer") }, "goexit": runtime.Goexit} {
		for _, name := range []string{ratelimit.MeasureRequest, ratelimit.MeasureLease} {
			slots, err := adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: 1, InitialLimit: 1, MaxLimit: 1})
			require.NoError(t, err)
			p := weir.Must(pipeline.Config{
				Strategies: []pipeline.Strategy{adaptive.New(slots, nil)},
				Listener:   &misbehaving{name, leave},
			}.Build())
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_ = p.Execute(context.Background(), func(context.Context) error { return nil })
				t.Error("it returned")
			}()
			<-done
			assert.EqualValues(t, 1, slots.Statistics().AvailablePermits, how+" "+name)
			require.NoError(t, p.Execute(t.Context(), func(context.Context) error { return nil }))
		}
	}
}

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
