package reload_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/strategies/ratelimit"
)

const before = `
limiters:
  upstream: {token_bucket: {token_limit: 2, tokens_per_period: 1, replenishment_period: 1h}}
  chained: {chain: [upstream]}
pipelines:
  orders: {strategies: [retry: {max_retries: off}, rate_limiter: {limiter: upstream}]}
  chain: {strategies: [rate_limiter: {limiter: chained}]}
  own: {strategies: [rate_limiter: {concurrency: {permit_limit: 1}}, timeout: {timeout: 60s}]}
  outer: {strategies: [pipeline: {name: orders}]}
`

func TestChange(t *testing.T) {
	k := reload.NewKinds()
	previous := parse(t, before, k)
	all := []string{"chain", "orders", "outer", "own"}
	assert.Equal(t, all, defined(previous.Change(nil)))

	for name, c := range map[string]struct {
		old, new        string
		define, removed []string
	}{
		"nothing":          {},
		"a comment":        {old: "pipelines:", new: "# all of them\npipelines:"},
		"another way":      {old: "60s", new: `"1m"`},
		"order":            {old: "{token_limit: 2, tokens_per_period: 1,", new: "{tokens_per_period: 1, token_limit: 2,"},
		"a default":        {old: "max_retries: off", new: "max_retries: -1, jitter: false"},
		"an option":        {old: "60s", new: "61s", define: []string{"own"}},
		"own limiter":      {old: "permit_limit: 1", new: "permit_limit: 2", define: []string{"own"}},
		"shared limiter":   {old: "token_limit: 2", new: "token_limit: 3", define: []string{"chain", "orders"}},
		"unused limiter":   {old: "limiters:", new: "limiters:\n  unused: {unlimited: {}}"},
		"a strategy":       {old: "[retry: {max_retries: off}, ", new: "[", define: []string{"orders"}},
		"new pipeline":     {old: "pipelines:", new: "pipelines:\n  new: {strategies: []}", define: []string{"new"}},
		"removed pipeline": {old: "  outer: {strategies: [pipeline: {name: orders}]}\n", removed: []string{"outer"}},
		"renamed pipeline": {old: "outer:", new: "renamed:", define: []string{"renamed"}, removed: []string{"outer"}},
		"empty":            {old: before, new: "allow_empty: true", removed: []string{"orders", "chain", "own", "outer"}},
	} {
		change := parse(t, strings.Replace(before, c.old, c.new, 1), k).Change(previous)
		assert.Equal(t, c.define, defined(change), name)
		assert.Equal(t, c.removed, change.Remove, name)
	}

	assert.Equal(t, all, defined(parse(t, before, reload.NewKinds()).Change(previous)), "other functions")
	assert.Empty(t, defined(parse(t, before, nil).Change(parse(t, before, nil))), "weir's own")
}

func parse(t *testing.T, text string, k *reload.Kinds) *reload.File {
	t.Helper()
	f, err := reload.Parse("weir.yaml", []byte(text), k)
	require.NoError(t, err)
	return f
}

func defined(c registry.Change) []string { return slices.Sorted(maps.Keys(c.Define)) }

func TestApply(t *testing.T) {
	k := reload.NewKinds()
	r := newRegistry(t)
	first := parse(t, before, k)
	require.NoError(t, r.Apply(t.Context(), first.Change(nil)))
	orders, err := r.Get("orders")
	require.NoError(t, err)
	outer, err := r.Get("outer")
	require.NoError(t, err)
	require.NoError(t, run(t, orders))
	require.NoError(t, run(t, outer))
	rejected := &ratelimit.RejectedError{}
	require.ErrorAs(t, run(t, orders), &rejected)

	// One token more, and no full bucket; the pipeline that embeds the other goes.
	second := parse(t, strings.NewReplacer("token_limit: 2", "token_limit: 3", "outer:", "renamed:").Replace(before), k)
	require.NoError(t, r.Apply(t.Context(), second.Change(first)))
	require.NoError(t, run(t, orders))
	require.ErrorAs(t, run(t, orders), &rejected)
	err = run(t, outer)
	require.ErrorIs(t, err, pipeline.ErrClosed)
	require.ErrorIs(t, err, registry.ErrRemoved)

	// Nothing of it is done if one pipeline fails.
	k.AcceptUnknown()
	third := parse(t, strings.Replace(before, "60s}", "60s}, caching: {}", 1), k)
	assert.ErrorContains(t, r.Apply(t.Context(), third.Change(second)),
		"weir.yaml:8:95: pipelines.own.strategies[2].caching: there is no such kind of strategy")
	require.ErrorIs(t, run(t, outer), registry.ErrRemoved)
}

func run(t *testing.T, p *pipeline.Pipeline) error {
	t.Helper()
	return p.Execute(t.Context(), func(context.Context) error { return nil })
}

func TestApply_PartitionsAndChains(t *testing.T) {
	r := newRegistry(t)
	f := parse(t, `
limiters:
  tenants: {partitioned: {key: tenant, each: {concurrency: {permit_limit: 1}}}}
  both: {chain: [all, tenants]}
  all: {token_bucket: {token_limit: 3, tokens_per_period: 1, replenishment_period: 1h}}
pipelines:
  a: {strategies: [rate_limiter: {limiter: both}]}
  b: {strategies: [rate_limiter: {limiter: tenants}]}
  shadow: {strategies: [rate_limiter: {limiter: both, shadow: true}]}
`, functions())
	require.NoError(t, r.Apply(t.Context(), f.Change(nil)))
	a, err := r.Get("a")
	require.NoError(t, err)
	b, err := r.Get("b")
	require.NoError(t, err)

	as := func(tenant string, p *pipeline.Pipeline, inside func() error) error {
		ctx := context.WithValue(t.Context(), clientKey{}, tenant)
		return p.Execute(ctx, func(context.Context) error { return inside() })
	}
	nothing := func() error { return nil }
	require.NoError(t, as("x", b, func() error {
		assert.ErrorIs(t, as("x", a, nothing), pipeline.ErrRejected, "b has its only permit")
		assert.ErrorIs(t, as("x", b, nothing), pipeline.ErrRejected)
		return as("y", a, nothing)
	}))
	require.NoError(t, as("x", a, nothing))
	require.NoError(t, as("x", a, nothing))
	assert.ErrorIs(t, as("x", a, nothing), pipeline.ErrRejected, "the bucket is empty, the rejection cost nothing")
	assert.NoError(t, as("x", b, nothing))
	shadow, err := r.Get("shadow")
	require.NoError(t, err)
	assert.NoError(t, as("x", shadow, nothing))
}
