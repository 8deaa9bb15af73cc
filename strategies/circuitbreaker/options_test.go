package circuitbreaker_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

func TestOptions_Defaults(t *testing.T) {
	want := circuitbreaker.Options{
		Name: "CircuitBreaker", FailureRatio: 0.1, MinimumThroughput: 100, SamplingDuration: 30 * time.Second,
		BreakDuration: 5 * time.Second, HalfOpenProbes: 1,
	}
	for _, o := range []*circuitbreaker.Options{nil, {}, &want} {
		s := circuitbreaker.New(o)
		require.NoError(t, s.Validate())
		assert.Equal(t, want, s.Options())
		assert.Equal(t, "CircuitBreaker", s.Name())
		assert.Equal(t, circuitbreaker.Closed, s.State())
	}
}

func TestStrategy_Options(t *testing.T) {
	given := circuitbreaker.Options{
		Name: "db", FailureRatio: -1, MinimumThroughput: 1, SamplingDuration: time.Second, ConsecutiveFailures: 3,
		BreakDuration: time.Minute, HalfOpenProbes: 2, Control: new(circuitbreaker.Control),
	}
	made := circuitbreaker.New(&given).Options()
	assert.Equal(t, given, made)
	assert.Equal(t, given, circuitbreaker.New(&made).Options())
}

func TestOptions_Validate(t *testing.T) {
	all := circuitbreaker.Options{
		FailureRatio: 1.5, MinimumThroughput: -1, SamplingDuration: -1, ConsecutiveFailures: -2, BreakDuration: -3, HalfOpenProbes: -4,
	}
	require.EqualError(t, all.Validate(), "circuitbreaker: "+
		"FailureRatio must be more than 0 and at most 1, or -1 for off, got 1.5; "+
		"MinimumThroughput must be at least 0, got -1; "+
		"SamplingDuration must be at least 0, got -1ns; "+
		"ConsecutiveFailures must be at least 0, got -2; "+
		"BreakDuration must be at least 0, got -3ns; "+
		"HalfOpenProbes must be at least 0, got -4")
	_, err := pipeline.New("orders", circuitbreaker.New(&all))
	require.ErrorContains(t, err, "pipeline orders: Strategies[0].FailureRatio must be more than 0 and at most 1, or -1 for off, got 1.5; "+
		"Strategies[0].MinimumThroughput must be at least 0, got -1; ")
	require.EqualError(t, new(circuitbreaker.Strategy).Validate(), "circuitbreaker: must be made with New")
}

func TestOptions_ValidateFailureRatio(t *testing.T) {
	for ratio, valid := range map[float64]bool{
		0: true, 1: true, 1e-9: true, -1: true,
		-0.5: false, -2: false, 1.0001: false, math.NaN(): false, math.Inf(1): false, math.Inf(-1): false,
	} {
		err := (&circuitbreaker.Options{FailureRatio: ratio, ConsecutiveFailures: 1}).Validate()
		assert.Equal(t, valid, err == nil, "%v: %v", ratio, err)
	}
}

func TestOptions_ValidateNothingOpens(t *testing.T) {
	o := circuitbreaker.Options{FailureRatio: -1}
	require.ErrorContains(t, o.Validate(), "nothing would open the circuit")
	o.Control = new(circuitbreaker.Control)
	require.NoError(t, o.Validate())
}

func TestState_Text(t *testing.T) {
	for state, text := range []string{"closed", "open", "half_open", "isolated"} {
		var back circuitbreaker.State
		require.NoError(t, back.UnmarshalText([]byte(text)))
		assert.Equal(t, circuitbreaker.State(state), back)
		assert.Equal(t, text, back.String())
	}
	_, err := circuitbreaker.State(4).MarshalText()
	require.EqualError(t, err, `circuitbreaker: State must be one of closed, open, half_open, isolated, got "State(4)"`)
}
