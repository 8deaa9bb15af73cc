package reload_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

const storedFile = `
limiters:
  logins: {token_bucket: {token_limit: 5, tokens_per_period: 1, replenishment_period: 1h}, store: redis}
  per_user:
    partitioned: {key: tenant, each: {fixed_window: {permit_limit: 2, window: 1h}}}
    store: {name: redis, cache_rejections: true}
  both: {chain: [logins, per_user]}
pipelines:
  login: {strategies: [rate_limiter: {limiter: both}]}
  user: {strategies: [rate_limiter: {limiter: per_user}]}
  own: {strategies: [rate_limiter: {sliding_window: {permit_limit: 1, window: 1h, segments_per_window: 2}, store: redis}]}
  each: {strategies: [rate_limiter: {name: Each, store: redis, partitioned: {key: tenant, each: {concurrency: {permit_limit: 1}}}}]}
`

// An instance is one of several of a program, with its registry and store.
type instance struct {
	*registry.Registry
	kinds *reload.Kinds
	file  *reload.File
}

func newInstance(t *testing.T, m *storetest.Memory) *instance {
	t.Helper()
	s, err := store.New(m, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	k := reload.NewKinds()
	k.RegisterKey("tenant", clientIP)
	k.RegisterStore("redis", s)
	return &instance{Registry: newRegistry(t), kinds: k}
}

// load has the file applied with some of its text replaced, and waits until that is told to
// all.
func (i *instance) load(t *testing.T, replacements ...string) {
	t.Helper()
	f := parse(t, strings.NewReplacer(replacements...).Replace(storedFile), i.kinds)
	require.NoError(t, i.Apply(t.Context(), f.Change(i.file)))
	i.file = f
	synctest.Wait()
}

// granted is how many of n executions are let in one after the other.
func (i *instance) granted(t *testing.T, name, user string, n int) (granted int) {
	t.Helper()
	p, err := i.Get(name)
	require.NoError(t, err)
	for range n {
		err := p.Execute(context.WithValue(t.Context(), clientKey{}, user), func(context.Context) error { return nil })
		if err == nil {
			granted++
		} else {
			assert.ErrorIs(t, err, pipeline.ErrRejected)
		}
	}
	return granted
}

func TestStore_SharedByInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a, b := newInstance(t, m), newInstance(t, m)
		a.load(t)
		b.load(t)
		assert.Equal(t, 1, a.granted(t, "login", "ann", 1))
		assert.Equal(t, 1, b.granted(t, "login", "ann", 2))
		assert.Equal(t, 2, b.granted(t, "login", "bob", 2))
		assert.Equal(t, 1, a.granted(t, "login", "eve", 5), "five in all")
		assert.Equal(t, 1, b.granted(t, "user", "eve", 5))
		assert.Equal(t, 1, a.granted(t, "own", "", 2)+b.granted(t, "own", "", 2))

		each, err := b.Get("each")
		require.NoError(t, err)
		as := func(user string) context.Context { return context.WithValue(t.Context(), clientKey{}, user) }
		require.NoError(t, each.Execute(as("ann"), func(context.Context) error {
			assert.Zero(t, a.granted(t, "each", "ann", 1), "b has it")
			assert.Equal(t, 1, a.granted(t, "each", "bob", 1))
			return nil
		}))
	})
}

func TestStore_NotRegistered(t *testing.T) {
	text := "limiters: {l: {concurrency: {permit_limit: 1}, store: redis}, p: {partitioned: {key: tenant, each: {concurrency: {permit_limit: 1}}}, store: redis}}\n" +
		"pipelines: {a: {strategies: [rate_limiter: {limiter: l}]}, b: {strategies: [rate_limiter: {limiter: p}]}}"
	_, err := reload.Parse("f", []byte(text), nil)
	assert.ErrorContains(t, err, `f:1:55: limiters.l.store: there is no store "redis", there are none`)

	lenient, assuming := reload.NewKinds(), reload.NewKinds()
	lenient.AcceptUnknown()
	lenient.RegisterKey("tenant", clientIP)
	assuming.Assume("store", "redis")
	assuming.RegisterKey("tenant", clientIP)
	for _, k := range []*reload.Kinds{lenient, assuming} {
		f := parse(t, text, k)
		err := newRegistry(t).Apply(t.Context(), f.Change(nil))
		assert.ErrorContains(t, err, `limiter "l": there is no store "redis"`)
		assert.ErrorContains(t, err, `limiter "p": there is no store "redis"`)
	}

	_, err = reload.Parse("f", []byte("pipelines: {a: {strategies: [rate_limiter: {concurrency: {permit_limit: 1}, stroe: redis}]}}"), lenient)
	assert.ErrorContains(t, err, `unknown field "stroe", did you mean "store"?`)
	_, err = reload.Parse("f", []byte("allow_empty: true\nlimiters: {l: {faraway: {}, store: redis}}"), lenient)
	assert.ErrorContains(t, err, "store cannot be beside faraway")
}

// What an instance is called shows only when it is built.
func TestStore_NameOfAnInstance(t *testing.T) {
	i := newInstance(t, storetest.NewMemory())
	require.NoError(t, i.Apply(t.Context(), parse(t, storedFile, i.kinds).Change(nil)))
	_, err := i.GetInstance("own", "eu-1")
	require.NoError(t, err)
	_, err = i.GetInstance("own", "münchen")
	assert.ErrorContains(t, err, `limiter "own/münchen/RateLimiter"`)
	assert.ErrorContains(t, err, "must be of ASCII letters")
}

func TestStore_Change(t *testing.T) {
	i := newInstance(t, storetest.NewMemory())
	previous := parse(t, storedFile, i.kinds)
	for name, c := range map[string]struct {
		old, new string
		define   []string
	}{
		"another way":  {old: "store: redis}\n  per_user", new: "store: {name: redis}}\n  per_user"},
		"a default":    {old: "cache_rejections: true", new: "cache_rejections: true, outage: fail_closed, block: 0"},
		"an option":    {old: "cache_rejections: true", new: "block: 5", define: []string{"login", "user"}},
		"no store":     {old: ", store: redis}]}\n  each", new: "}]}\n  each", define: []string{"own"}},
		"inside of it": {old: "{name: Each, store: redis", new: "{name: Each, store: {name: redis, lease_ttl: 1s}", define: []string{"each"}},
	} {
		require.Contains(t, storedFile, c.old)
		f := parse(t, strings.Replace(storedFile, c.old, c.new, 1), i.kinds)
		assert.Equal(t, c.define, defined(f.Change(previous)), name)
	}
}
