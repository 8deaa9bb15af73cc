package reload_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

// shedding are the options of a strategy of a program.
type shedding struct {
	Name      string             `yaml:"name,omitempty"`
	Threshold float64            `yaml:"threshold"`
	Wait      time.Duration      `yaml:"wait,omitempty" reload:"off"`
	Classes   []string           `yaml:"classes,omitempty"`
	Weights   map[string]uint8   `yaml:"weights,omitempty"`
	Order     limiter.QueueOrder `yaml:"order,omitempty"`
	Inner     *inner             `json:"inner,omitempty"`
	OnShed    func()             `yaml:"-"`
}

type inner struct {
	MaxAge int `yaml:",omitempty"`
}

func (s shedding) Validate() error {
	if s.Threshold > 1 {
		return &weir.OptionsError{Package: "shedding", Fields: []weir.FieldError{{Path: "Threshold", Problem: "must be at most 1", Value: s.Threshold}}}
	}
	return nil
}

type remote struct {
	Address string `yaml:"address"`
}

func registerEverything(k *reload.Kinds) {
	reload.RegisterStrategy(k, "shedding", buildShedding)
	reload.RegisterStrategy(k, "noop", func(*registry.Builder, struct{}) (pipeline.Strategy, error) {
		return pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) { return next.Run(ctx) }), nil
	})
	reload.RegisterLimiter(k, "remote", func(_ *registry.Builder, name string, o remote) (limiter.Limiter, error) {
		return limiter.NewUnlimited(), nil
	})
	k.RegisterKey("client_ip", clientIP)
	k.RegisterHandle("transient", func(_ any, err error) bool { return errors.Is(err, errTransient) })
	k.RegisterPermits("cost", func(ctx context.Context) int { return 2 })
}

func buildShedding(_ *registry.Builder, o shedding) (pipeline.Strategy, error) {
	if o.Threshold == 0.25 {
		return nil, errors.New("cannot shed a quarter")
	}
	return pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) {
		return nil, fmt.Errorf("shed at %v", o.Threshold)
	}), nil
}

var errTransient = errors.New("transient")

type clientKey struct{}

func clientIP(ctx context.Context) string {
	ip, _ := ctx.Value(clientKey{}).(string)
	return ip
}

const ownKindsFile = `
limiters:
  elsewhere:
    remote: {address: "redis:6379"}
  per-client:
    partitioned: {key: client_ip, each: {concurrency: {permit_limit: 1}}}
pipelines:
  orders:
    strategies:
      - shedding:
          threshold: 0.5
          wait: off
          classes: [a, b]
          weights: {a: 1, b: 255}
          order: newest_first
          inner: {max_age: 3}
      - noop: {}
      - noop: {}
      - retry: {handle: transient}
      - rate_limiter: {limiter: elsewhere, permits: cost}
      - rate_limiter: {remote: {address: x}, name: Second, shadow: true}
`

func TestRegisterStrategy(t *testing.T) {
	k := reload.NewKinds()
	registerEverything(k)
	f, err := reload.Parse("own.yaml", []byte(ownKindsFile), k)
	require.NoError(t, err)
	assert.Equal(t, "own.yaml", f.Name())
	assert.Equal(t, []string{"elsewhere", "per-client"}, f.Limiters())

	r := newRegistry(t)
	require.NoError(t, r.Apply(t.Context(), f.Change(nil)))
	p, err := r.Get("orders")
	require.NoError(t, err)
	assert.EqualError(t, p.Execute(t.Context(), func(context.Context) error { return nil }), "shed at 0.5")
}

func TestRegisterLimiter_OptionsOfAnotherKind(t *testing.T) {
	k := reload.NewKinds()
	built := ""
	reload.RegisterLimiter(k, "mine", func(_ *registry.Builder, name string, o limiter.ConcurrencyOptions) (limiter.Limiter, error) {
		built = fmt.Sprint(name, " ", o.PermitLimit)
		return limiter.NewUnlimited(), nil
	})
	f := parse(t, "limiters: {a: {mine: {permit_limit: 3}}}\npipelines: {p: {strategies: [rate_limiter: {limiter: a}]}}", k)
	require.NoError(t, newRegistry(t).Apply(t.Context(), f.Change(nil)))
	assert.Equal(t, "a 3", built)
}

func TestKinds_InvalidRegistrations(t *testing.T) {
	k := reload.NewKinds()
	strategy := func(*registry.Builder, shedding) (pipeline.Strategy, error) { return nil, nil }
	reload.RegisterStrategy(k, "retry", strategy)
	reload.RegisterStrategy(k, "two words", strategy)
	reload.RegisterStrategy[shedding](k, "nothing", nil)
	reload.RegisterStrategy(k, "number", func(*registry.Builder, int) (pipeline.Strategy, error) { return nil, nil })
	reload.RegisterStrategy(k, "untagged", func(*registry.Builder, struct{ F func() }) (pipeline.Strategy, error) { return nil, nil })
	reload.RegisterStrategy(k, "byNumber", func(*registry.Builder, struct{ M map[int]int }) (pipeline.Strategy, error) { return nil, nil })
	reload.RegisterLimiter(k, "shadow", func(*registry.Builder, string, remote) (limiter.Limiter, error) { return nil, nil })
	k.RegisterKey("", clientIP)
	k.RegisterKey("nil", nil)
	k.RegisterKey("twice", clientIP)
	k.RegisterKey("twice", clientIP)
	k.RegisterHandle("nil", nil)
	k.RegisterPermits("nil", nil)
	k.RegisterFallback("nil", nil)
	k.RegisterControl("nil", nil)
	k.RegisterError("nil", nil)
	k.RegisterOutcome("nil", nil)
	k.RegisterBehavior("nil", nil)
	k.RegisterError("twice", errTransient)
	k.RegisterError("twice", errTransient)
	k.Assume("key", "twice")
	k.Assume("lock", "x")

	_, err := reload.Parse("any.yaml", []byte("nonsense"), k)
	assert.EqualError(t, err, "reload: "+strings.Join([]string{
		`strategy kind "retry": the name is taken`,
		`strategy kind "two words": the name must have only letters, digits, _ and -`,
		`strategy kind "nothing": the function is nil`,
		`strategy kind "number": the options must be a struct, not int`,
		`strategy kind "untagged": field F: func() cannot be written in a file; the tag "-" keeps a field out of files`,
		`strategy kind "byNumber": field M: map[int]int: the keys of a map must be strings; the tag "-" keeps a field out of files`,
		`limiter kind "shadow": the name is taken`,
		`a key function needs a name`,
		`the key function "nil" is nil`,
		`the key function "twice" is registered twice`,
		`the handle function "nil" is nil`,
		`the permits function "nil" is nil`,
		`the fallback action "nil" is nil`,
		`the circuit control "nil" is nil`,
		`the chaos error "nil" is nil`,
		`the chaos outcome "nil" is nil`,
		`the chaos behavior "nil" is nil`,
		`the chaos error "twice" is registered twice`,
		`the key function "twice" is registered twice`,
		`"lock" cannot be registered; must be one of behavior, control, error, fallback, handle, key, outcome, permits, store`,
	}, "; "))
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	_, err = k.Schema()
	assert.Error(t, err)
}

type fragile struct {
	Size int `yaml:"size,omitempty"`
}

func (f fragile) Validate() error { return fmt.Errorf("Size makes %d, must not", 10/f.Size) }

func TestParse_ValidatePanics(t *testing.T) {
	k := reload.NewKinds()
	reload.RegisterStrategy(k, "fragile", func(*registry.Builder, fragile) (pipeline.Strategy, error) { return nil, nil })
	_, err := reload.Parse("f", []byte("pipelines: {a: {strategies: [fragile: {}]}}"), k)
	assert.EqualError(t, err, "f:1:1: reading it panicked: runtime error: integer divide by zero")
	_, err = reload.Parse("f", []byte("pipelines: {a: {strategies: [fragile: {size: 5}]}}"), k)
	assert.EqualError(t, err, "f:1:39: pipelines.a.strategies[0].fragile: Size makes 2, must not")
}

func TestKinds_AcceptUnknown(t *testing.T) {
	k := reload.NewKinds()
	k.AcceptUnknown()
	f, err := reload.Parse("own.yaml", []byte(strings.ReplaceAll(ownKindsFile, "shedding", "brownout")), k)
	require.NoError(t, err)
	assert.Error(t, newRegistry(t).Apply(t.Context(), f.Change(nil)))

	_, err = reload.Parse("x.yaml", []byte("pipelines: {a: {strategies: [retyr: {}]}}"), k)
	assert.EqualError(t, err, `x.yaml:1:30: pipelines.a.strategies[0]: unknown kind of strategy "retyr", did you mean "retry"?`)
}

func TestKinds_AcceptUnknownCannotBeBuilt(t *testing.T) {
	k := reload.NewKinds()
	k.AcceptUnknown()
	for strategy, want := range map[string]string{
		"circuit_breaker: {handle: transient}":                                           `there is no handle function "transient"`,
		"circuit_breaker: {control: ops}":                                                `there is no circuit control "ops"`,
		"fallback: {action: cached}":                                                     `there is no fallback action "cached"`,
		"hedging: {handle: transient}":                                                   `there is no handle function "transient"`,
		"chaos_fault: {error: boom}":                                                     `there is no chaos error "boom"`,
		"chaos_outcome: {outcome: stale}":                                                `there is no chaos outcome "stale"`,
		"chaos_behavior: {behavior: flush}":                                              `there is no chaos behavior "flush"`,
		"retry: {handle: transient}":                                                     `there is no handle function "transient"`,
		"rate_limiter: {permits: cost, unlimited: {}}":                                   `there is no permits function "cost"`,
		"rate_limiter: {partitioned: {key: ip, each: {concurrency: {permit_limit: 1}}}}": `limiter "a/RateLimiter": there is no key function "ip"`,
		"rate_limiter: {faraway: {}}":                                                    `there is no limiter kind "faraway"`,
		"rate_limiter: {chain: [l]}":                                                     `there is no limiter kind "elsewhere"`,
		"pipeline: {name: b}":                                                            `there is no such kind of strategy`,
	} {
		f, err := reload.Parse("", []byte("{limiters: {l: {elsewhere: {}}}, pipelines: {a: {strategies: ["+strategy+"]}, b: {strategies: [caching: {}]}}}"), k)
		require.NoError(t, err)
		assert.ErrorContains(t, newRegistry(t).Apply(t.Context(), f.Change(nil)), want, strategy)
	}
}

func newRegistry(t *testing.T) *registry.Registry {
	t.Helper()
	r := registry.New(nil)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	return r
}

func TestKinds_MaxFileSize(t *testing.T) {
	k := reload.NewKinds()
	k.MaxFileSize(2 << 20)
	of := func(size int) []byte {
		return []byte(emptyPipeline[1:] + "#" + strings.Repeat("x", size-len(emptyPipeline)))
	}
	_, err := reload.Parse("f", of(2<<20), k)
	require.NoError(t, err)
	_, err = reload.Parse("f", of(2<<20+1), k)
	require.EqualError(t, err, "f:1:1: the file has 2097153 bytes, must have at most 2097152")
	for _, wrong := range []int{-1, 0, 8<<20 + 1} {
		k := reload.NewKinds()
		k.MaxFileSize(wrong)
		_, err := reload.Parse("f", of(1000), k)
		require.ErrorIs(t, err, weir.ErrInvalidOptions)
		require.ErrorContains(t, err, fmt.Sprintf("MaxFileSize must be from 1 to 8388608, got %d", wrong))
	}
}
