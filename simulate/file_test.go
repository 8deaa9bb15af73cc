package simulate_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"
)

// simulated runs one second of 100 requests/s through the pipeline a of a file.
func simulated(text string, instances int, register func(*simulate.Setup, *reload.Kinds)) (*simulate.Result, error) {
	return simulate.Run(context.Background(), simulate.Scenario{
		Config:    simulate.File("x.yaml", []byte(text), register),
		Pipeline:  "a",
		Instances: instances,
		Load:      simulate.Load{For: time.Second, Open: &simulate.Open{Rate: simulate.ConstantRate{Rate: 100}}},
	})
}

func TestFile_Assumed(t *testing.T) {
	r, err := simulated(`
limiters:
  shared: {fixed_window: {permit_limit: 60, window: 1h}, store: {name: redis}}
  own: {unlimited: {}}
  both: {chain: [shared, own]}
pipelines:
  a:
    strategies:
      - fallback: {action: cached, handle: transient}
      - pipeline: {name: b}
  b:
    strategies:
      - circuit_breaker: {control: ops}
      - rate_limiter: {limiter: both, permits: weight}
      - rate_limiter: {name: each, partitioned: {key: ip, each: {fixed_window: {permit_limit: 1000, window: 1h}}}}
      - chaos_fault: {error: boom}
      - chaos_outcome: {outcome: stale}
      - chaos_behavior: {behavior: flush, enabled: true, rate: 1}
  other:
    strategies: [strange: {}, retry: {handle: of_other}]
`, 2, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{
		`The behavior "flush" does nothing.`,
		`The control "ops" isolates no circuit.`,
		`The error "boom" is that of any injected fault.`,
		`The fallback "cached" succeeds.`,
		`The handle "transient" is the default of the strategy.`,
		`The key "ip" is the key of the request.`,
		`The limiter "shared" is in the store "redis".`,
		`The outcome "stale" is an injected fault.`,
		`The permits "weight" are the cost of the request.`,
		`The store "redis" is simulated in memory, and a call of it takes about a millisecond.`,
	}, r.Assumed)
	assert.EqualValues(t, 60, r.Total.Admitted, "the instances share the limiter")
	assert.Equal(t, r.Total.Offered, r.Total.Succeeded, "the fallback succeeds")
}

func TestFile_Registered(t *testing.T) {
	keys, asked := 0, 0
	r, err := simulated(`pipelines: {a: {strategies: [rate_limiter: {permits: two, fixed_window: {permit_limit: 60, window: 1h}},
		rate_limiter: {name: each, partitioned: {key: ip, each: {fixed_window: {permit_limit: 1000, window: 1h}}}}]}}`, 1,
		func(s *simulate.Setup, k *reload.Kinds) {
			assert.Zero(t, s.Instance)
			k.RegisterPermits("two", func(context.Context) int { asked++; return 2 })
			k.RegisterKey("ip", func(context.Context) string { keys++; return "x" })
		})
	require.NoError(t, err)
	assert.Empty(t, r.Assumed)
	assert.EqualValues(t, 30, r.Total.Admitted)
	assert.Equal(t, 30, keys)
	assert.Equal(t, 100, asked, "once for each execution, as in a program")
}

func TestFile_Invalid(t *testing.T) {
	for text, want := range map[string]string{
		"pipelines: {a: {strategies: [retyr: {}]}}":                       `x.yaml:1:30: pipelines.a.strategies[0]: unknown kind of strategy "retyr", did you mean "retry"?`,
		"pipelines: {a: {strategies: [strange: {}]}}":                     "there is no such kind of strategy",
		"pipelines: {a: {strategies: [rate_limiter: {strange: {a: 1}}]}}": `there is no limiter kind "strange"`,
		"pipelines: {b: {strategies: []}, c: {strategies: []}}":           "Pipeline must be one of b, c",
	} {
		_, err := simulated(text, 1, nil)
		assert.ErrorContains(t, err, want, text)
	}
}
