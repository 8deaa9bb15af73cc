package reload_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

func TestParse_Bounds(t *testing.T) {
	var many strings.Builder
	for i := range 10_001 {
		fmt.Fprintf(&many, "  a%d: {strategies: []}\n", i)
	}
	long := strings.Repeat("x", 257)
	for name, c := range map[string]struct{ file, want string }{
		"names":       {"pipelines:\n" + many.String(), "10002:3: pipelines: there are more than 10000 pipelines"},
		"pipeline":    {"pipelines: {" + long + ": {strategies: []}}", "has 257 bytes, must have at most 256"},
		"limiter":     {"limiters: {" + long + ": {unlimited: {}}}\npipelines: {a: {strategies: []}}", "has 257 bytes"},
		"budget":      {"budgets: {" + long + ": {}}\npipelines: {a: {strategies: []}}", "has 257 bytes"},
		"strategy":    {"pipelines: {a: {strategies: [timeout: {timeout: 1s, name: " + long + "}]}}", "has 257 bytes"},
		"depth":       {"x-a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200), "nested more than 100 deep"},
		"aliases":     {"x-a: &a [" + strings.Repeat("1,", 999) + "1]\nx-b: &b [" + strings.Repeat("*a,", 999) + "*a]\nx-c: *b", "aliases stand for more than 100000 values"},
		"-0":          {"pipelines: {a: {strategies: [timeout: {timeout: '-0'}]}}", `must be a duration with its unit, such as "250ms", found the text "-0"`},
		"+0":          {"pipelines: {a: {strategies: [timeout: {timeout: '+0'}]}}", `found the text "+0"`},
		"1e999":       {"pipelines: {a: {strategies: [timeout: {timeout: 1s, name: 1e999}]}}", `must be text, found the number 1e999; write "1e999", with the quotes`},
		"ratio 1e999": {"budgets: {b: {ratio: 1e999}}\npipelines: {a: {strategies: []}}", "must be"},
	} {
		_, err := reload.Parse("f", []byte(c.file), nil)
		require.ErrorContains(t, err, c.want, name)
	}
	_, err := reload.Parse("f", []byte(`{"$schema": "https://example.com/schema.json", "pipelines": {"a": {"strategies": []}}}`), nil)
	require.NoError(t, err)
	_, err = reload.Parse("f", []byte(`{"$schema": 1, "pipelines": {"a": {"strategies": []}}}`), nil)
	require.ErrorContains(t, err, "$schema")
}

// Each has one permit: one that shared it with another would be rejected.
func TestInstances_DoNotShareWithOtherPipelines(t *testing.T) {
	own := "{strategies: [rate_limiter: {concurrency: {permit_limit: 1}}, circuit_breaker: {}]}"
	r := newRegistry(t)
	require.NoError(t, r.Apply(t.Context(), parse(t, "pipelines: {p: "+own+", eu: "+own+", p-eu: "+own+"}", nil).Change(nil)))
	inside := func(context.Context) error { return nil }
	for _, id := range [][2]string{{"p", ""}, {"p", "eu"}, {"p", "eu/west"}, {"p", "/eu"}, {"p", "/"}, {"eu", "west"}, {"p-eu", ""}} {
		p, err := r.GetInstance(id[0], id[1])
		require.NoError(t, err)
		next := inside
		inside = func(ctx context.Context) error { return p.Execute(ctx, next) }
	}
	require.NoError(t, inside(t.Context()))
}

func TestParse_NamesWithSlashes(t *testing.T) {
	for _, file := range []string{
		"limiters: {a/b: {unlimited: {}}}" + emptyPipeline, "budgets: {a/b: {}}" + emptyPipeline, "pipelines: {a/b: {strategies: []}}",
		"pipelines: {a: {strategies: [timeout: {timeout: 1s, name: a/b}]}}",
	} {
		_, err := reload.Parse("f", []byte(file), nil)
		require.ErrorContains(t, err, `the name "a/b" cannot have a slash, which is between the names of a pipeline and a strategy; write "a-b"`)
	}
	k := reload.NewKinds()
	k.RegisterKey("a/b", func(context.Context) string { return "" })
	_, err := reload.Parse("f", nil, k)
	require.ErrorContains(t, err, `the key function "a/b": a name cannot have a slash`)
}

// Pipelines of two files that share a limiter must mean the same keys.
func TestPartitioned_KeyFunctionsThatDiffer(t *testing.T) {
	kinds := reload.NewKinds()
	kinds.RegisterKey("user", func(context.Context) string { return "u" })
	kinds.RegisterKey("ip", func(context.Context) string { return "i" })
	file := func(pipeline, key string) *reload.File {
		return parse(t, "limiters: {per: {partitioned: {key: "+key+", each: {concurrency: {permit_limit: 1}}}}}\n"+
			"pipelines: {"+pipeline+": {strategies: [rate_limiter: {limiter: per}]}}", kinds)
	}
	r := newRegistry(t)
	require.NoError(t, r.Apply(t.Context(), file("a", "user").Change(nil)))
	require.NoError(t, r.Apply(t.Context(), file("b", "user").Change(nil)))
	err := r.Apply(t.Context(), file("c", "ip").Change(nil))
	require.ErrorIs(t, err, registry.ErrLimiterConflict)
	require.ErrorContains(t, err, `key function of the limiter "per": `)
	both := file("a", "ip").Change(nil)
	both.Define["b"] = file("b", "ip").Change(nil).Define["b"]
	require.NoError(t, r.Apply(t.Context(), both), "all of them can change together")
}

func named(names ...string) string {
	var all []string
	for _, name := range names {
		all = append(all, name+": {strategies: []}")
	}
	return "pipelines:\n  " + strings.Join(all, "\n  ")
}

// A pipeline that is renamed in the file and not in the program does not take calls down.
func TestStart_Require(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{registry: registry.New(nil), path: filepath.Join(t.TempDir(), "weir.yaml")}
		defer func() { assert.NoError(t, w.registry.Close(context.Background())) }()
		o := w.options()
		o.Require = []string{"orders", "payments"}
		w.write(t, named("order", "payments"))
		_, err := reload.Start(t.Context(), w.registry, w.path, o)
		require.EqualError(t, err, w.path+`:1:1: pipelines: the program requires the pipeline "orders", which is not there; did you mean "order"?`)
		assert.False(t, w.registry.Defined("payments"))

		w.write(t, named("orders", "payments"))
		watcher, err := reload.Start(t.Context(), w.registry, w.path, o)
		require.NoError(t, err)
		defer watcher.Stop()
		orders, err := w.registry.Get("orders")
		require.NoError(t, err)
		w.write(t, "# renamed\n"+named("orders-v2", "payments"))
		pass(time.Hour)
		require.NoError(t, try(orders), "what was in force stays")
		wrong, ok := errors.AsType[*reload.FileError](watcher.Status().Err)
		require.True(t, ok)
		assert.Equal(t, 2, wrong.Problems[0].Line)
		assert.Equal(t, 1, watcher.Status().Failures, "it is not tried again before it changes")
		assert.Contains(t, w.log.String(), "configuration refused, what was in force stays")

		o.Require = []string{""}
		_, err = reload.Start(t.Context(), w.registry, w.path, o)
		require.ErrorContains(t, err, "Require[0] must not be empty")
	})
}

// Without Require it is at least loud.
func TestStart_WarnsOfWhatTheProgramLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, named("orders", "unused"))
		orders, err := w.registry.Get("orders")
		require.NoError(t, err)
		w.log.Reset()
		w.write(t, named("other"))
		pass(3 * time.Second)
		require.ErrorIs(t, try(orders), registry.ErrRemoved)
		assert.Contains(t, w.log.String(), "level=WARN")
		assert.Contains(t, w.log.String(), "pipelines=[orders]")
		w.write(t, named("orders"))
		pass(3 * time.Second)
		require.NoError(t, try(orders), "it is back")
		w.log.Reset()
		w.write(t, named("orders", "another"))
		pass(3 * time.Second)
		assert.NotContains(t, w.log.String(), "WARN")
	})
}

// The caller of Start has the error; it is not in the log as well.
func TestStart_ErrorIsReturnedAndNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{registry: registry.New(nil), path: filepath.Join(t.TempDir(), "weir.yaml")}
		defer func() { assert.NoError(t, w.registry.Close(context.Background())) }()
		w.write(t, "pipelines: 1")
		_, err := reload.Start(t.Context(), w.registry, w.path, w.options())
		require.Error(t, err)
		assert.Empty(t, w.log.String())
		require.NoError(t, os.Remove(w.path))
		o := w.options()
		o.AllowMissing = true
		watcher, err := reload.Start(t.Context(), w.registry, w.path, o)
		require.NoError(t, err)
		defer watcher.Stop()
		assert.Contains(t, w.log.String(), "level=WARN")
		pass(time.Minute)
		w.log.Reset()
		w.write(t, "pipelines: 1")
		pass(time.Minute)
		assert.Contains(t, w.log.String(), "level=ERROR", "later there is no caller")
	})
}
