package ratelimit_test

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
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/weirtest"
)

func TestStrategy_Measures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(weirtest.Recorder)
		l := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Second, QueueLimit: 1}))
		p := weir.Must(pipeline.Config{
			Name: "orders", Strategies: []pipeline.Strategy{ratelimit.New(l, nil)}, Listener: m,
		}.Build())
		run := func(ctx context.Context, took time.Duration) error {
			return p.Execute(ctx, func(context.Context) error { time.Sleep(took); return nil })
		}
		source := pipeline.Source{Pipeline: "orders", Strategy: "RateLimiter"}

		require.NoError(t, run(t.Context(), 300*time.Millisecond))
		require.NoError(t, run(t.Context(), 100*time.Millisecond)) // waits for the next window
		assert.Equal(t, []pipeline.Event{
			{Name: ratelimit.MeasureRequest, Source: source},
			{Name: ratelimit.MeasureLease, Source: source, Duration: 300 * time.Millisecond},
			{Name: ratelimit.MeasureRequest, Source: source, Duration: 700 * time.Millisecond},
			{Name: ratelimit.MeasureLease, Source: source, Duration: 100 * time.Millisecond},
		}, m.Measurements())

		m.Reset()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		gaveUp := run(ctx, 0)
		require.ErrorIs(t, gaveUp, context.DeadlineExceeded)
		assert.Equal(t, 50*time.Millisecond, m.Measurements()[0].Duration)
		require.ErrorIs(t, m.Measurements()[0].Err, context.DeadlineExceeded)

		m.Reset()
		require.NoError(t, l.Reconfigure(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Second}))
		require.ErrorIs(t, run(t.Context(), 0), pipeline.ErrRejected)
		require.Len(t, m.Measurements(), 1)
		assert.Equal(t, ratelimit.MeasureRequest, m.Measurements()[0].Name)
		require.ErrorIs(t, m.Measurements()[0].Err, pipeline.ErrRejected)
	})
}

func TestStrategy_MeasuresAPanic(t *testing.T) {
	m := new(weirtest.Recorder)
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	p := weir.Must(pipeline.Config{Strategies: []pipeline.Strategy{ratelimit.New(l, nil)}, Listener: m}.Build())
	assert.Panics(t, func() {
		_ = p.Execute(t.Context(), func(context.Context) error { panic("boom") })
	})
	require.Len(t, m.Measurements(), 2)
	assert.Equal(t, ratelimit.MeasureLease, m.Measurements()[1].Name)
	assert.EqualValues(t, 1, l.Statistics().AvailablePermits)
}
