package ratelimit_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
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
			slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
			p := weir.Must(pipeline.Config{
				Strategies: []pipeline.Strategy{ratelimit.New(slots, nil)},
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
