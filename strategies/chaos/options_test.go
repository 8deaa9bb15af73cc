package chaos_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/chaos"
)

func TestOptions_Validate(t *testing.T) {
	bad := chaos.Options{Rate: 1.5}
	for _, tt := range []struct {
		s    interface{ Validate() error }
		want string
	}{
		{
			chaos.NewFault(&chaos.FaultOptions{Options: bad, Err: errBoom, ErrFunc: func(context.Context) error { return nil }}),
			"Rate must be from 0 to 1, or -1 for never, got 1.5; must have at most one of Err and ErrFunc",
		},
		{
			chaos.NewLatency(&chaos.LatencyOptions{Options: chaos.Options{Rate: math.NaN()}, Latency: -2}),
			"Rate must be from 0 to 1, or -1 for never, got NaN; Latency must be at least 0, or -1 for none, got -2ns",
		},
		{chaos.NewOutcome(&chaos.OutcomeOptions{Options: chaos.Options{Rate: -0.5}}), "Rate must be from 0 to 1, or -1 for never, got -0.5"},
		{chaos.NewBehavior(nil), "Behavior must be set"},
		{chaos.NewBehavior(&chaos.BehaviorOptions{Options: bad}), "Rate must be from 0 to 1, or -1 for never, got 1.5; Behavior must be set"},
	} {
		assert.EqualError(t, tt.s.Validate(), "chaos: "+tt.want)
	}
	for kind, build := range makers {
		for _, rate := range []float64{-1, 0, 1} {
			_, err := pipeline.New("orders", build(chaos.Options{Rate: rate}))
			assert.NoError(t, err)
		}
		_, err := pipeline.New("orders", build(bad))
		assert.ErrorIs(t, err, weir.ErrInvalidOptions, kind)
	}
	assert.NoError(t, (*chaos.FaultOptions)(nil).Validate())
	assert.NoError(t, (*chaos.LatencyOptions)(nil).Validate())
}

func TestOptions_Defaults(t *testing.T) {
	assert.Equal(t, chaos.FaultOptions{Options: chaos.Options{Name: "Chaos.Fault", Rate: 0.001}}, chaos.NewFault(nil).Options())
	assert.Equal(t,
		chaos.LatencyOptions{Options: chaos.Options{Name: "Chaos.Latency", Rate: 0.001}, Latency: 30 * time.Second},
		chaos.NewLatency(nil).Options())
	assert.Equal(t, chaos.Options{Name: "Chaos.Outcome", Rate: 0.001}, chaos.NewOutcome(nil).Options().Options)
	assert.Equal(t, chaos.Options{Name: "Chaos.Behavior", Rate: 0.001}, chaos.NewBehavior(nil).Options().Options)

	set := chaos.LatencyOptions{Options: chaos.Options{Name: "Slow", Enabled: true, Rate: -1}, Latency: -1}
	assert.Equal(t, set, chaos.NewLatency(&set).Options(), "what is set stays as it is")
}

func TestStrategies_Describe(t *testing.T) {
	for kind, build := range makers {
		d := with(build(chaos.Options{})).Describe().Strategies[0]
		assert.Equal(t, kind, d.Name)
		assert.Equal(t, "chaos", d.Kind)
		assert.NotNil(t, d.Options)
		text, err := json.Marshal(d)
		require.NoError(t, err)
		assert.Contains(t, string(text), `"rate":0.001`)
	}
}
