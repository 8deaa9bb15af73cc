package reload_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload"
)

const emptyPipeline = "\npipelines: {a: {strategies: []}}\n"

// The YAML library takes the square of the number of %TAG directives.
func TestParse_TagDirectives(t *testing.T) {
	tags := "%YAML 1.2\n%TAG !a! tag:x\n%TAG !b! tag:x\n---"
	for _, tags := range []string{tags, strings.ReplaceAll(tags, "\n", "\r\n"), strings.ReplaceAll(tags, "\n", "\r")} {
		_, err := reload.Parse("f", []byte(tags+emptyPipeline), nil)
		require.ErrorContains(t, err, "f:2:1: a %TAG directive cannot be used, leave it out")
	}
	_, err := reload.Parse("f", []byte("%YAML 1.1\n---"+emptyPipeline+"x-text: \"a\n  %TAG\"\n"), nil)
	require.NoError(t, err)
}

// However long a piece of the file is, messages show only its beginning.
func TestParse_ShortMessages(t *testing.T) {
	long := func(s string) string { return strings.Repeat(s, 300_000) }
	var cycle strings.Builder
	for i := range 9999 {
		fmt.Fprintf(&cycle, "  c%d: {strategies: [pipeline: {name: c%d}]}\n", i, (i+1)%9999)
	}
	in := func(strategy string) string { return "pipelines: {a: {strategies: [" + strategy + "]}}" }
	permits := func(n string) string {
		return "limiters: {l: {concurrency: {permit_limit: " + n + "}}}" + emptyPipeline
	}
	digits := long("9")
	nines := strings.Repeat("9", 60) + "…"
	for name, c := range map[string]struct{ file, want string }{
		"integer":         {permits(digits), "found the number " + nines},
		"negative":        {permits("-" + digits), "found the number -999"},
		"not decimal":     {permits("1" + long("_")), "digits, found 1___"},
		"out of range":    {permits(strings.Repeat("9", 200)), "the number " + nines + " is out of range"},
		"fraction":        {"budgets: {b: {ratio: 0x" + long("f") + "}}" + emptyPipeline, "found"},
		"duration":        {in("timeout: {timeout: " + digits + "}"), "found the number " + nines},
		"name":            {in("timeout: {timeout: 1s, name: " + digits + "}"), "found the number " + nines + "; write it in quotes"},
		"mapping":         {"pipelines: {a: " + digits + "}", "found the number " + nines},
		"key":             {"pipelines: {? " + long("k") + " : {}, ? " + long("k") + " : {}}", "is there twice"},
		"path":            {"pipelines:\n  ? " + long("k") + "\n  : {x: 1}", `pipelines["kkk`},
		"tag":             {"x-a: !" + long("t") + " 1" + emptyPipeline, `the tag "!ttt`},
		"alias":           {"x-a: &" + long("a") + " [*" + long("a") + "]" + emptyPipeline, "is inside its own anchor"},
		"cycle":           {"pipelines:\n" + cycle.String(), "a pipeline cannot contain itself: c0 -> c1 -> c2 -> c3"},
		"name of a cycle": {"pipelines: {? " + long("l") + " : {strategies: [pipeline: {name: " + long("l") + "}]}}", "cannot contain itself"},
	} {
		_, err := reload.Parse("f", []byte(c.file), nil)
		require.Error(t, err, name)
		text := err.Error()
		assert.Less(t, len(text), 10_000, name)
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: %q is not in %q", name, c.want, text)
		}
	}
}
