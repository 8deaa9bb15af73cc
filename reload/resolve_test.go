package reload_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
)

// resolving returns Kinds that accept unknown names, and resolve those in things by "what name".
func resolving(things map[string]any) *reload.Kinds {
	k := reload.NewKinds()
	k.AcceptUnknown()
	k.Resolve(func(what, name string) (any, bool) {
		thing, ok := things[what+" "+name]
		return thing, ok
	})
	return k
}

// built builds the pipeline "a" with one strategy.
func built(t *testing.T, strategy string, k *reload.Kinds) (*pipeline.Pipeline, error) {
	t.Helper()
	f, err := reload.Parse("x.yaml", []byte("pipelines: {a: {strategies: ["+strategy+"]}}"), k)
	require.NoError(t, err)
	r := newRegistry(t)
	if err := r.Apply(t.Context(), f.Change(nil)); err != nil {
		return nil, err
	}
	return r.Get("a")
}

type keyFunc func(context.Context) string // registered functions can have types of their own

func TestKinds_Resolve(t *testing.T) {
	s := weir.Must(store.New(storetest.NewMemory(), nil))
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	control := new(circuitbreaker.Control)
	things := map[string]any{
		"key ip":          keyFunc(func(context.Context) string { return "" }),
		"handle none":     func(any, error) bool { return false },
		"permits two":     func(context.Context) int { return 2 },
		"fallback cached": fallback.Value("cached"),
		"fallback plain":  func(context.Context, any, error) (any, error) { return "plain", nil },
		"control ops":     control,
		"error boom":      errTransient,
		"outcome stale":   func(context.Context) (chaos.Result, bool) { return chaos.Result{Value: "stale"}, true },
		"behavior flush":  func(context.Context) error { return errTransient },
		"store redis":     s,
		"handle default":  nil,
		"error default":   error(nil),
		"permits default": (func(context.Context) int)(nil),
		"store default":   nil,
	}
	k := resolving(things)
	require.Subset(t, reload.Registrations(), []string{"key", "handle", "permits", "fallback", "control", "error", "outcome", "behavior", "store"})
	assert.Len(t, reload.Registrations(), 9, "each is tested here")

	fails := func(context.Context) (string, error) { return "", errTransient }
	succeeds := func(context.Context) (string, error) { return "fresh", nil }
	for strategy, want := range map[string]struct {
		f     func(context.Context) (string, error)
		value string
		err   error
	}{
		"rate_limiter: {partitioned: {key: ip, each: {concurrency: {permit_limit: 1}}}}":                                                {succeeds, "fresh", nil},
		"fallback: {action: cached, handle: none}":                                                                                      {fails, "", errTransient},
		"fallback: {action: cached}":                                                                                                    {fails, "cached", nil},
		"fallback: {action: plain, handle: default}":                                                                                    {fails, "plain", nil},
		"rate_limiter: {permits: two, fixed_window: {permit_limit: 1, window: 1h}}":                                                     {succeeds, "", limiter.ErrPermitCount},
		"rate_limiter: {permits: default, fixed_window: {permit_limit: 1, window: 1h}}":                                                 {succeeds, "fresh", nil},
		"circuit_breaker: {control: ops}":                                                                                               {succeeds, "", pipeline.ErrRejected},
		"chaos_fault: {enabled: true, rate: 1, error: boom}":                                                                            {succeeds, "", errTransient},
		"chaos_fault: {enabled: true, rate: 1, error: default}":                                                                         {succeeds, "", chaos.ErrInjected},
		"chaos_outcome: {enabled: true, rate: 1, outcome: stale}":                                                                       {succeeds, "stale", nil},
		"chaos_behavior: {enabled: true, rate: 1, behavior: flush}":                                                                     {succeeds, "", errTransient},
		"rate_limiter: {fixed_window: {permit_limit: 1, window: 1h}, store: {name: redis}}":                                             {succeeds, "fresh", nil},
		"rate_limiter: {fixed_window: {permit_limit: 1, window: 1h}, store: {name: default}}":                                           {succeeds, "fresh", nil},
		"rate_limiter: {token_bucket: {token_limit: 1, tokens_per_period: 1, replenishment_period: 1h}, name: R, store: {name: redis}}": {succeeds, "fresh", nil},
	} {
		p, err := built(t, strategy, k)
		if !assert.NoError(t, err, strategy) {
			continue
		}
		if strategy == "circuit_breaker: {control: ops}" {
			control.Isolate()
		}
		value, err := pipeline.ExecuteValue(t.Context(), p, want.f)
		assert.ErrorIs(t, err, want.err, strategy)
		assert.Equal(t, want.value, value, strategy)
	}
}

func TestKinds_ResolveFails(t *testing.T) {
	k := resolving(map[string]any{
		"key ip": "10.0.0.1", "error boom": "boom", "store redis": new(storetest.Memory), "behavior none": nil,
		"key none": nil, "limiter elsewhere": limiter.NewUnlimited(),
	})
	for strategy, want := range map[string]string{
		"retry: {handle: transient}": `there is no handle function "transient"`,
		"rate_limiter: {partitioned: {key: ip, each: {concurrency: {permit_limit: 1}}}}":   `the key function "ip" is resolved to a value of the type string, must be a func(context.Context) string`,
		"rate_limiter: {partitioned: {key: none, each: {concurrency: {permit_limit: 1}}}}": `key`,
		"chaos_fault: {error: boom}": `the chaos error "boom" is resolved to a value of the type string, must be a error`,
		"rate_limiter: {concurrency: {permit_limit: 1}, store: {name: redis}}": `the store "redis" is resolved to a value of the type *storetest.Memory, must be a *store.Store`,
		"chaos_behavior: {behavior: none}":                                     `Behavior must be set`,
		"rate_limiter: {elsewhere: {}}":                                        `there is no limiter kind "elsewhere"`,
	} {
		_, err := built(t, strategy, k)
		assert.ErrorContains(t, err, want, strategy)
	}
}
