package reload_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
)

// functions have what the files in testdata name.
func functions() *reload.Kinds {
	k := reload.NewKinds()
	k.RegisterKey("client_ip", clientIP)
	k.RegisterKey("tenant", clientIP)
	k.RegisterHandle("transient", func(_ any, err error) bool { return errors.Is(err, errTransient) })
	k.RegisterPermits("cost", func(context.Context) int { return 2 })
	k.RegisterFallback("cached", fallback.Value("cached"))
	k.RegisterControl("ops", new(circuitbreaker.Control))
	k.RegisterError("boom", errTransient)
	k.RegisterOutcome("stale", func(context.Context) (chaos.Result, bool) { return chaos.Result{Value: "stale"}, true })
	k.RegisterBehavior("flush", func(context.Context) error { return nil })
	k.RegisterStore("redis", newStore(storetest.NewMemory()))
	k.RegisterStore("postgres", newStore(storetest.NewMemory()))
	return k
}

// newStore returns a store that need not be closed because it is not asked.
func newStore(b backend.Backend) *store.Store {
	s, err := store.New(b, &store.Options{NoListen: true})
	if err != nil {
		panic(err)
	}
	return s
}

func TestParse_ValidFiles(t *testing.T) {
	k := functions()
	for _, name := range files(t, "testdata/*.yaml", "testdata/*.json", "testdata/valid/*.yaml", "testdata/valid/*.json") {
		f, err := reload.Parse(name, read(t, name), k)
		require.NoError(t, err)
		r := newRegistry(t)
		require.NoError(t, r.Apply(t.Context(), f.Change(nil)), name)
		for _, p := range f.Pipelines() {
			_, err := r.Get(p)
			assert.NoError(t, err, name)
		}
	}
}

// The messages are there to be read: see the golden files.
func TestParse_InvalidFiles(t *testing.T) {
	for _, name := range files(t, "testdata/invalid/*.yaml") {
		_, err := reload.Parse(name, read(t, name), functions())
		require.Error(t, err, name)
		golden(t, strings.TrimSuffix(name, ".yaml")+".txt", err.Error()+"\n")
	}
}

func TestParse_Syntax(t *testing.T) {
	const empty = "the file has no pipelines; if that is meant, add allow_empty: true"
	for name, c := range map[string]struct{ text, want string }{
		"tab":             {"pipelines:\n\torders: {}", "f:2:1: a tab cannot indent, use spaces"},
		"tab after blank": {"pipelines:\n  a: 1\n\tb: 2\n", "f:3:1: a tab cannot indent, use spaces"},
		"colon":           {"a: b: c", "f:1:5: mapping values are not allowed in this context"},
		"open list":       {"a: [1, 2", "f:2:1: while parsing a flow sequence that begins at 1:4: did not find expected ',' or ']'"},
		"open quote":      {"a: \"x", "f:1:6: while scanning a quoted scalar that begins at 1:4: found unexpected end of stream"},
		"indentation":     {"a:\n  - b\n c: d\n", "f:3:2: while parsing a block mapping that begins at 1:1: did not find expected key; all keys of a mapping must be indented by the same number of spaces"},
		"unknown anchor":  {"a: *x", "f:1:4: unknown anchor 'x' referenced"},
		"cut JSON":        {`{"pipelines": {"a":`, "f:2:1: while parsing a flow node: did not find expected node content"},
		"two halves":      {`{"a": "\ud83d\ude00"}`, "f:1:10: while scanning a quoted scalar that begins at 1:7: found invalid Unicode character escape code"},
		"two documents":   {"allow_empty: true\n---\nallow_empty: true\n", "f:2:1: a second document begins here, a file has only one"},
		"control":         {"é\n ü\x00", "f:2:3: the character U+0000 cannot be in a file"},
		"separator":       {"a: b\r# \u2028", "f:2:3: the character U+2028 cannot be in a file"},
		"BOM inside":      {"a: \ufeff", "f:1:4: the character U+FEFF cannot be in a file"},
		"not UTF-8":       {"é: \xff", "f:1:4: the byte 0xff is not UTF-8"},
		"UTF-16":          {"\xff\xfea\x00", "f:1:1: the byte 0xff is not UTF-8"},
		"large":           {strings.Repeat("#", 1<<20+1), "f:1:1: the file has 1048577 bytes, must have at most 1048576"},
		"deep":            {"x-: " + strings.Repeat("[", 200) + strings.Repeat("]", 200), "f:1:104: values are nested more than 100 deep"},
		"nothing":         {"", "f:1:1: " + empty},
		"a comment":       {"# pipelines\n", "f:1:1: " + empty},
		"null":            {"~", "f:1:1: a file must be a mapping, found nothing"},
		"a list":          {"[]", "f:1:1: a file must be a mapping, found a list"},
		"a text":          {"pipelines", `f:1:1: a file must be a mapping, found the text "pipelines"`},
		"no pipelines":    {"pipelines: {}", "f:1:1: " + empty},
		"not allowed":     {"allow_empty: false", "f:1:1: " + empty},
		"no value":        {"pipelines:", "f:1:11: pipelines: must be a mapping of names to pipelines, found nothing"},
		"no budgets":      {"allow_empty: true\nbudgets: 1.5", "f:2:10: budgets: must be a mapping of names to budgets, found the number 1.5"},
		"no limiters":     {"allow_empty: true\nlimiters: 1.5", "f:2:11: limiters: must be a mapping of names to limiters, found the number 1.5"},
		"BOM and CRLF":    {"\ufeffpipelines:\r\n  a: 1\r\n", "f:2:6: pipelines.a: must be a mapping of options, found the number 1"},
		"odd names":       {"pipelines: {a.b: 1, ü: true}", "f:1:18: pipelines[\"a.b\"]: must be a mapping of options, found the number 1\nf:1:24: pipelines[\"ü\"]: must be a mapping of options, found true"},
		"long text":       {"pipelines: " + strings.Repeat("é", 70), `f:1:12: pipelines: must be a mapping of names to pipelines, found the text "` + strings.Repeat("é", 60) + `"…`},
	} {
		_, err := reload.Parse("f", []byte(c.text), nil)
		assert.EqualError(t, err, c.want, name)
	}
}

func TestFileError_Error(t *testing.T) {
	_, err := reload.Parse("", []byte("pipelines: {a: {strategies: [retry: {max_retrys: 5}]}}"), nil)
	failure, ok := errors.AsType[*reload.FileError](err)
	require.True(t, ok)
	assert.Equal(t, []reload.Problem{{
		Line: 1, Column: 38,
		Path:    "pipelines.a.strategies[0].retry",
		Message: `unknown field "max_retrys", did you mean "max_retries"?`,
	}}, failure.Problems)
	assert.EqualError(t, err, `1:38: pipelines.a.strategies[0].retry: unknown field "max_retrys", did you mean "max_retries"?`)
}

func TestParse_ManyProblems(t *testing.T) {
	_, err := reload.Parse("f", []byte("limiters: {a: {concurrency: {permit_limit: 1}}}\npipelines:\n"+strings.Repeat("  : 1\n", 2000)), nil)
	failure, ok := errors.AsType[*reload.FileError](err)
	require.True(t, ok)
	assert.Len(t, failure.Problems, 201)
	assert.Equal(t, "there are more problems, the first 200 are listed", failure.Problems[200].Message)
}

func TestParse_OptionsOfTheProgram(t *testing.T) {
	k := reload.NewKinds()
	registerEverything(k)
	for text, want := range map[string]string{
		"{threshold: 2}":                       "f:1:54: pipelines.a.strategies[0].shedding.threshold: threshold must be at most 1, got 2",
		"{threshold: x}":                       "f:1:54: pipelines.a.strategies[0].shedding.threshold: must be a number, found the text \"x\"",
		"{threshold: .inf}":                    "f:1:54: pipelines.a.strategies[0].shedding.threshold: must be a number in decimal digits, found .inf",
		"{}":                                   "f:1:42: pipelines.a.strategies[0].shedding: threshold is missing",
		"{threshold: 1, hidden: 1}":            "f:1:57: pipelines.a.strategies[0].shedding: unknown field \"hidden\", there are classes, inner, name, order, threshold, wait, weights",
		"{threshold: 1, classes: a}":           "f:1:66: pipelines.a.strategies[0].shedding.classes: must be a list, found the text \"a\"",
		"{threshold: 1, classes: [a, 1]}":      "f:1:70: pipelines.a.strategies[0].shedding.classes[1]: must be text, found the number 1; write \"1\", with the quotes",
		"{threshold: 1, weights: [a]}":         "f:1:66: pipelines.a.strategies[0].shedding.weights: must be a mapping, found a list",
		"{threshold: 1, weights: {a: 256}}":    "f:1:70: pipelines.a.strategies[0].shedding.weights.a: the number 256 is out of range",
		"{threshold: 1, weights: {a: -1}}":     "f:1:70: pipelines.a.strategies[0].shedding.weights.a: the number -1 is out of range",
		"{threshold: 1, inner: {maxage: 1}}":   "f:1:65: pipelines.a.strategies[0].shedding.inner: unknown field \"maxage\", did you mean \"max_age\"?",
		"{threshold: 1, order: fastest_first}": "f:1:64: pipelines.a.strategies[0].shedding.order: must be \"oldest_first\", \"newest_first\" or \"fair\", found the text \"fastest_first\"; did you mean \"oldest_first\"?",
	} {
		_, err := reload.Parse("f", []byte("pipelines: {a: {strategies: [shedding:   "+text+"]}}"), k)
		assert.EqualError(t, err, want, text)
	}
}
