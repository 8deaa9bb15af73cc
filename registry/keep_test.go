package registry_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// tally is something with a state: it counts executions.
type tally struct {
	step, total, closed int
	refuse              error
}

func (c *tally) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	c.total += c.step
	return next.Run(ctx)
}

// Close of the strategy would be called with each version; so it is not the
// strategy that is kept.
type counting struct{ *tally }

func (c counting) Close() error {
	c.closed++
	return nil
}

// workshop makes tallies that step as far as step says.
type workshop struct {
	step  int
	made  []*tally
	fails error
}

func (w *workshop) kept() registry.Kept[counting, int] {
	return registry.Kept[counting, int]{
		Kind: "tally",
		Make: func(step int) (counting, error) {
			if w.fails != nil {
				return counting{}, w.fails
			}
			c := counting{&tally{step: step}}
			w.made = append(w.made, c.tally)
			return c, nil
		},
		Reconfigure: func(c counting, step int) error {
			if c.refuse == nil {
				c.step = step
			}
			return c.refuse
		},
	}
}

func (w *workshop) build(b *registry.Builder) error {
	if c := registry.Keep(b, "all", w.step, w.kept()); c.tally != nil {
		b.Add(pipeline.StrategyFunc(c.Execute))
	}
	return nil
}

func TestKeep_StateAndOptions(t *testing.T) {
	r := open(t, nil)
	w := &workshop{step: 1}
	p := define(t, r, "orders", w.build)
	require.NoError(t, p.Execute(t.Context(), nothing))
	w.step = 10
	require.NoError(t, r.Reload(t.Context()))
	require.NoError(t, p.Execute(t.Context(), nothing))
	require.Len(t, w.made, 1)
	assert.Equal(t, 11, w.made[0].total)
	for range r.Limiters() {
		t.Error("it is no limiter")
	}

	w.made[0].refuse = errBoom
	w.step = 100
	require.ErrorIs(t, r.Reload(t.Context()), errBoom)
	require.NoError(t, p.Execute(t.Context(), nothing))
	assert.Equal(t, 21, w.made[0].total)

	w.made[0].refuse = nil
	require.NoError(t, r.Remove(t.Context(), "orders"))
	require.NoError(t, r.Close(t.Context()))
	assert.Equal(t, 1, w.made[0].closed)
}

func TestKeep_NilOfAnInterface(t *testing.T) {
	r := open(t, nil)
	require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
		assert.Nil(t, registry.Keep(b, "none", 1, registry.Kept[io.Closer, int]{
			Kind: "closer",
			Make: func(int) (io.Closer, error) { return nil, nil },
		}))
		return nil
	}))
	require.NoError(t, get(t, r, "orders").Execute(t.Context(), nothing))
	require.NoError(t, r.Close(t.Context()))
}

func TestKeep_WithoutReconfigure(t *testing.T) {
	r := open(t, nil)
	w := &workshop{step: 1}
	var kept []counting
	require.NoError(t, r.Define("orders", func(b *registry.Builder) error {
		k := w.kept()
		k.Reconfigure = nil
		kept = append(kept, registry.Keep(b, "all", w.step, k))
		return nil
	}))
	require.NoError(t, r.Reload(t.Context()))
	w.step = 2
	require.NoError(t, r.Reload(t.Context()))
	require.Len(t, kept, 3)
	assert.Same(t, kept[0].tally, kept[1].tally)
	assert.NotSame(t, kept[0].tally, kept[2].tally)
	require.NoError(t, r.Close(t.Context()))
	assert.Equal(t, 1, kept[0].closed)
	assert.Equal(t, 1, kept[2].closed)
}

func TestKeep_Problems(t *testing.T) {
	w := &workshop{step: 1}
	for want, keep := range map[string]func(b *registry.Builder){
		"registry: Kept.Kind must be set; Kept.Make must be set": func(b *registry.Builder) { registry.Keep(b, "all", 1, registry.Kept[int, int]{}) },
		"a tally of the registry needs a name":                   func(b *registry.Builder) { registry.Keep(b, "", 1, w.kept()) },
		`tally "all": boom`: func(b *registry.Builder) {
			k := w.kept()
			k.Make = func(int) (counting, error) { return counting{}, errors.New("boom") }
			registry.Keep(b, "all", 1, k)
		},
		"limiter options disagree": func(b *registry.Builder) {
			registry.Keep(b, "all", 1, w.kept())
			registry.Keep(b, "all", 2, w.kept())
		},
	} {
		r := open(t, nil)
		require.ErrorContains(t, r.Define("orders", func(b *registry.Builder) error {
			keep(b)
			return nil
		}), want)
	}
	for _, c := range w.made {
		assert.Equal(t, 1, c.closed, "nothing is left of a build that failed")
	}
}

// The options of a kept thing may be the program's secrets.
func TestKeep_ConflictShowsNoOptions(t *testing.T) {
	type options struct{ User, Password string }
	r := open(t, nil)
	password := "hunter2"
	build := func(b *registry.Builder) error {
		registry.Keep(b, "db", options{"me", password}, registry.Kept[*int, options]{
			Kind: "session", Make: func(options) (*int, error) { return new(int), nil },
			Reconfigure: func(*int, options) error { return nil },
		})
		return nil
	}
	require.NoError(t, r.Define("a", build))
	password = "hunter3"
	err := r.Define("b", build)
	require.ErrorIs(t, err, registry.ErrLimiterConflict)
	assert.ErrorContains(t, err, `session "db"`)
	assert.ErrorContains(t, err, "want different options")
	assert.NotContains(t, err.Error(), "hunter")
}

// A limiter and things of each kind have names of their own.
func TestKeep_NamesOfOtherKinds(t *testing.T) {
	r := open(t, nil)
	thing := func(b *registry.Builder, kind, name string) {
		registry.Keep(b, name, 1, registry.Kept[*int, int]{Kind: kind, Make: func(int) (*int, error) { return new(int), nil }})
	}
	require.NoError(t, r.Define("a", func(b *registry.Builder) error {
		b.Concurrency("budget db", one(1))
		b.Concurrency("db", one(1))
		thing(b, "budget", "db")
		thing(b, "budget db", "x")
		thing(b, "budget", "db x")
		thing(b, "circuit breaker", "db")
		return nil
	}))
	require.NoError(t, r.Reload(t.Context()))
	assert.Equal(t, 6, r.OwnedLimiters())
}

func TestKeep_OptionsThatCannotBeCompared(t *testing.T) {
	type options struct {
		F float64
		X any
	}
	nan := func() float64 { zero := 0.0; return zero / zero }()
	r := open(t, nil)
	for name, o := range map[string]options{"slice": {1, []int{1}}, "function": {1, func() {}}, "NaN": {nan, 1}} {
		require.ErrorContains(t, r.Define(name, func(b *registry.Builder) error {
			registry.Keep(b, "x", o, registry.Kept[*int, options]{
				Kind: "thing", Make: func(options) (*int, error) { return new(int), nil },
				Reconfigure: func(*int, options) error { return nil },
			})
			return nil
		}), `thing "x": its options cannot be compared`, name)
	}
	assert.Zero(t, r.OwnedLimiters())
}
