package reload_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

var errBoom = errors.New("boom")

// failing counts calls, which all fail.
type failing struct{ calls int }

func (f *failing) call(context.Context) error {
	f.calls++
	return errBoom
}

// A following is a registry that is taken from one file to the next.
type following struct {
	*registry.Registry
	t    *testing.T
	last *reload.File
}

func follow(t *testing.T) *following {
	t.Helper()
	return &following{Registry: newRegistry(t), t: t}
}

// apply puts a file in force and returns its pipeline a.
func (f *following) apply(text string, k *reload.Kinds) *pipeline.Pipeline {
	f.t.Helper()
	file := parse(f.t, text, k)
	require.NoError(f.t, f.Apply(f.t.Context(), file.Change(f.last)))
	f.last = file
	p, err := f.Get("a")
	require.NoError(f.t, err)
	return p
}

func TestCircuitBreaker_KeptByReload(t *testing.T) {
	const file = "pipelines: {a: {strategies: [timeout: {timeout: 1s}, circuit_breaker: {break_duration: 1h, consecutive_failures: 2, handle: all}]}}"
	handles := func() *reload.Kinds {
		k := reload.NewKinds()
		k.RegisterHandle("all", func(_ any, err error) bool { return err != nil })
		k.RegisterHandle("any", func(_ any, err error) bool { return err != nil })
		return k
	}
	k := handles()
	r := follow(t)
	p := r.apply(file, k)
	var f failing
	require.ErrorIs(t, p.Execute(t.Context(), f.call), errBoom)

	// Something else about the pipeline changes: the failure is not forgotten.
	p = r.apply(strings.Replace(file, "timeout: 1s", "timeout: 2s", 1), k)
	require.ErrorIs(t, p.Execute(t.Context(), f.call), errBoom)
	open := &circuitbreaker.OpenError{}
	require.ErrorAs(t, p.Execute(t.Context(), f.call), &open)
	p = r.apply(file, k)
	require.ErrorAs(t, p.Execute(t.Context(), f.call), &open)

	// Whatever changes about the strategy makes another one.
	for name, c := range map[string]struct {
		old, new string
		kinds    *reload.Kinds
	}{
		"an option":       {old: "failures: 2", new: "failures: 1", kinds: k},
		"its function":    {old: "handle: all", new: "handle: any", kinds: k},
		"its name":        {old: "handle: all", new: "handle: all, name: B", kinds: k},
		"other functions": {kinds: handles()},
	} {
		r := follow(t)
		p := r.apply(file, k)
		for range 2 {
			require.ErrorIs(t, p.Execute(t.Context(), f.call), errBoom)
		}
		require.ErrorAs(t, p.Execute(t.Context(), f.call), &open)
		p = r.apply(strings.Replace(file, c.old, c.new, 1), c.kinds)
		assert.ErrorIs(t, p.Execute(t.Context(), f.call), errBoom, name)
	}
}

func TestBudget_KeptByReload(t *testing.T) { synctest.Test(t, testBudgetSurvivesAReload) }

func testBudgetSurvivesAReload(t *testing.T) {
	const file = `
budgets: {extra: {ratio: off, min_per_second: 1, window: 3s}}
pipelines: {a: {strategies: [retry: {max_retries: 2, delay: off, budget: extra}, hedging: {name: H, delay: off, budget: extra}]}}`
	r := follow(t)
	p := r.apply(file, nil)
	var f failing
	err := p.Execute(t.Context(), f.call)
	require.ErrorIs(t, err, errBoom)
	require.ErrorIs(t, err, budget.ErrExhausted)
	assert.Equal(t, 4, f.calls, "a first attempt, and three that come on top")

	// One more a second are three more, and the budget is not a new one.
	p = r.apply(strings.Replace(file, "min_per_second: 1", "min_per_second: 2", 1), nil)
	f = failing{}
	require.ErrorIs(t, p.Execute(t.Context(), f.call), budget.ErrExhausted)
	assert.Equal(t, 4, f.calls)
}

func TestChain_NamesTheMemberThatRejects(t *testing.T) {
	p := follow(t).apply("{limiters: {requests: {unlimited: {}}, slots: {fixed_window: {permit_limit: 1, window: 1h}}, both: {chain: [requests, slots]}}, "+
		"pipelines: {a: {strategies: [rate_limiter: {limiter: both}]}}}", nil)
	nothing := func(context.Context) error { return nil }
	require.NoError(t, p.Execute(t.Context(), nothing))
	assert.ErrorContains(t, p.Execute(t.Context(), nothing), "rejected by limiter slots of the chain: no permit free")
}

func TestBudget_Change(t *testing.T) {
	const file = `
budgets: {extra: {}, idle: {}}
pipelines:
  a: {strategies: [retry: {budget: extra}]}
  b: {strategies: [hedging: {budget: extra}]}
  c: {strategies: [retry: {}]}`
	previous := parse(t, file, nil)
	assert.Equal(t, []string{"extra", "idle"}, previous.Budgets())
	changed := parse(t, strings.Replace(file, "extra: {}", "extra: {ratio: 0.5}", 1), nil)
	assert.Equal(t, []string{"a", "b"}, defined(changed.Change(previous)))
	changed = parse(t, strings.Replace(file, "idle: {}", "idle: {ratio: 0.5}", 1), nil)
	assert.Empty(t, defined(changed.Change(previous)))
}
