package chaos_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/chaos"
)

// injects reports whether o lets something be injected.
func injects(t *testing.T, o chaos.Options) bool {
	t.Helper()
	injected := false
	o.OnInjected = func(context.Context, pipeline.Event) { injected = true }
	err := with(makers["Chaos.Fault"](o)).Execute(t.Context(), func(context.Context) error { return nil })
	assert.Equal(t, injected, err != nil)
	return injected
}

func TestOptions_WhenSomethingIsInjected(t *testing.T) {
	yes, no := func(context.Context) bool { return true }, func(context.Context) bool { return false }
	rate := func(r float64) func(context.Context) float64 { return func(context.Context) float64 { return r } }
	random := func(r float64) func() float64 { return func() float64 { return r } }
	tests := []struct {
		name    string
		options chaos.Options
		want    bool
	}{
		{"off unless enabled", chaos.Options{Rate: 1}, false},
		{"enabled", chaos.Options{Enabled: true, Rate: 1}, true},
		{"the function alone", chaos.Options{EnabledFunc: yes, Rate: 1}, true},
		{"the function in place of Enabled", chaos.Options{Enabled: true, EnabledFunc: no, Rate: 1}, false},
		{"the usual rate", chaos.Options{Enabled: true, Rand: random(0.0009)}, true},
		{"above the usual rate", chaos.Options{Enabled: true, Rand: random(0.001)}, false},
		{"below the rate", chaos.Options{Enabled: true, Rate: 0.5, Rand: random(0.49)}, true},
		{"at the rate", chaos.Options{Enabled: true, Rate: 0.5, Rand: random(0.5)}, false},
		{"never", chaos.Options{Enabled: true, Rate: -1, Rand: random(0)}, false},
		{"never, with a function", chaos.Options{EnabledFunc: yes, Rate: -1, Rand: random(0)}, false},
		{"the rate's function in place of Rate", chaos.Options{Enabled: true, Rate: -1, RateFunc: rate(1)}, true},
		{"a rate of 0", chaos.Options{Enabled: true, Rate: 1, RateFunc: rate(0), Rand: random(0)}, false},
		{"a rate below 0", chaos.Options{Enabled: true, RateFunc: rate(-7), Rand: random(0)}, false},
		{"a rate above 1", chaos.Options{Enabled: true, RateFunc: rate(7), Rand: random(0.99)}, true},
		{"no more than 1", chaos.Options{Enabled: true, RateFunc: rate(7), Rand: random(1)}, false},
		{"a rate that is none", chaos.Options{Enabled: true, RateFunc: rate(math.NaN()), Rand: random(0)}, false},
		{"an infinite rate", chaos.Options{Enabled: true, RateFunc: rate(math.Inf(1)), Rand: random(0.99)}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, injects(t, tt.options)) })
	}
}

func TestStrategies_Zero(t *testing.T) {
	for _, s := range []pipeline.Strategy{
		new(chaos.Fault), new(chaos.Latency), new(chaos.Outcome), new(chaos.Behavior),
		chaos.NewFault(nil), chaos.NewLatency(nil),
	} {
		v, err := pipeline.ExecuteValue(t.Context(), with(s), func(context.Context) (string, error) { return "fresh", nil })
		assert.NoError(t, err)
		assert.Equal(t, "fresh", v)
	}
}

func TestAllocations(t *testing.T) {
	ctx := t.Context()
	succeed := func(context.Context) error { return nil }
	chances := map[string]chaos.Options{
		"off":                   {Rate: 1},
		"off for the execution": {EnabledFunc: func(context.Context) bool { return false }, Rate: 1},
		"on, but not this time": {Enabled: true, Rand: func() float64 { return 0.5 }},
		"on, by chance":         {Enabled: true, Rate: 1e-12},
	}
	for kind, build := range makers {
		for name, o := range chances {
			p := with(build(o))
			if got := testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, succeed) }); got != 0 {
				t.Errorf("%s, %s: %v allocations, want 0", kind, name, got)
			}
		}
	}
	p := with(makers["Chaos.Fault"](always))
	if got := testing.AllocsPerRun(200, func() { _ = p.Execute(ctx, succeed) }); got != 0 {
		t.Errorf("a fault: %v allocations, want 0", got)
	}
}
