package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func jobWith(args, metadata string) *rivertype.JobRow {
	return &rivertype.JobRow{ID: 7, EncodedArgs: []byte(args), Metadata: []byte(metadata)}
}

func mustTemplate(t testing.TB, text string) template {
	t.Helper()
	tmpl, problem := parseTemplate(text)
	require.Empty(t, problem, "%q", text)
	return tmpl
}

func TestTemplate_Fill(t *testing.T) {
	const args = `{"tenant": "acme", "id": 42, "big": 9007199254740993, "exact": 1.50, "on": true, "off": false,
		"a": {"b": {"c": "deep"}}, "A": "upper", "a.b": "dotted", "ü": "umlaut", "space ": "blank", "nul": null,
		"metadata:tenant": "argument", "zero": 0, "text": " x ", "list": [1], "empty": "", "twice": 1}`
	const metadata = `{"tenant": "from metadata", "batch": {"id": 3}}`
	for template, want := range map[string]string{
		"":                             "",
		"constant":                     "constant",
		"tenant:{tenant}":              "tenant:acme",
		"{tenant}":                     "acme",
		"{id}":                         "42",
		"{big}":                        "9007199254740993",
		"{exact}":                      "1.50",
		"{on}-{off}":                   "true-false",
		"{zero}":                       "0",
		"{text}":                       " x ",
		"{a.b.c}":                      "deep",
		"{A}":                          "upper",
		"{ü}":                          "umlaut",
		"{space }":                     "blank",
		"<{tenant}:{id}>":              "<acme:42>",
		"{tenant}/{tenant}":            "acme/acme",
		"{metadata:tenant}":            "from metadata",
		"{metadata:batch.id}":          "3",
		"{tenant}:{metadata:batch.id}": "acme:3",
	} {
		got, err := mustTemplate(t, template).fill(jobWith(args, metadata))
		assert.NoError(t, err, "%q", template)
		assert.Equal(t, want, got, "%q", template)
	}
}

func TestTemplate_EscapesSeparators(t *testing.T) {
	for _, c := range []struct{ template, a, b, want string }{
		{"{a}:{b}", `"x"`, `"y"`, "x:y"},
		{"{a}:{b}", `"x:y"`, `"z"`, "x%3Ay:z"},
		{"{a}:{b}", `"x"`, `"y:z"`, "x:y%3Az"},
		{"{a}:{b}", `"%3A"`, `"%"`, "%253A:%25"},
		{"{a}-{b}", `-1`, `-2`, "%2D1-%2D2"},
		{"{a}.{b}", `1.5`, `2`, "1%2E5.2"},
		{"{a}e{b}", `1e5`, `"eE"`, "1%655e%65E"},
		{"{a}→{b}", `"1→2"`, `"→"`, "1%E2%86%922→%E2%86%92"},
		{"{a}→{b}", `"↓"`, `"é"`, "↓→é"}, // two characters whose bytes begin as those of the separator do
		{"{a} and {b}", `"rock and roll"`, `"a"`, "rock%20and%20roll and a"},
		{"{a}::{b}", `"x:"`, `":y"`, "x%3A::%3Ay"},
		{"{a}", `"a:b"`, `0`, "a:b"},
		{"{a}", `"100%"`, `0`, "100%25"},
		{"{a}", `"\u0000\n\t\u007f\u0085"`, `0`, "%00%0A%09%7F%C2%85"},
		{"{a}", `"\ufffd"`, `0`, "%EF%BF%BD"},
		{"{a}", `"\ud83d\ude00"`, `0`, "😀"},
		{"{a}", `"<&>"`, `0`, "<&>"},
		{"{a}:{b}", `1`, `"1"`, "1:1"}, // a number and a string of the same characters are the same
	} {
		got, err := mustTemplate(t, c.template).fill(jobWith(fmt.Sprintf(`{"a": %s, "b": %s}`, c.a, c.b), `{}`))
		require.NoError(t, err, "%+v", c)
		assert.Equal(t, c.want, got, "%+v", c)
	}
}

func TestTemplate_FieldsThatMakeNoKey(t *testing.T) {
	for _, c := range []struct{ field, args, want string }{
		{"x", `{}`, "field {x} of job 7 is missing"},
		{"X", `{"x": 1}`, "field {X} of job 7 is missing"},
		{"x", `{"x": null}`, "is null"},
		{"x", `{"x": ""}`, "is empty"},
		{"x", `{"x": {}}`, "is an object or an array, must be a string, a number or a boolean"},
		{"x", `{"x": [1]}`, "is an object or an array"},
		{"x.y", `{"x": {}}`, "field {x.y} of job 7 is missing"},
		{"x.y", `{"x": 1}`, "cannot be found: x is not an object"},
		{"x.y", `{"x": null}`, "cannot be found: x is not an object"},
		{"x.y", `{"x": [{"y": 1}]}`, "cannot be found: x is not an object"},
		{"x.y.z", `{"x": {"y": "s"}}`, "cannot be found: x.y is not an object"},
		{"x", ``, "there is no JSON object"},
		{"x", `null`, "there is no JSON object"},
		{"x", `[]`, "there is no JSON object"},
		{"x", `"text"`, "there is no JSON object"},
		{"x", `{"x": 1`, "there is no JSON object"},
		{"x", `{"x": nul}`, "there is no JSON object"},
		{"x", strings.Repeat(`{"x":`, 11_000) + "1" + strings.Repeat("}", 11_000), "there is no JSON object"},
		{"x", `{"x": "` + strings.Repeat("k", maxKey+1) + `"}`, "must have at most 255 bytes"},
		{"x", `{"x": "` + strings.Repeat("%", maxKey/3+1) + `"}`, "must have at most 255 bytes"},
		{"x", `{"x": "` + strings.Repeat("k", 1<<16) + `"}`, "must have at most 255 bytes"},
	} {
		key, err := mustTemplate(t, "{"+c.field+"}").fill(jobWith(c.args, `{}`))
		assert.Empty(t, key, "%.80s", c.args)
		require.ErrorIs(t, err, ErrKey, "%.80s", c.args)
		assert.ErrorContains(t, err, c.want, "%.80s", c.args)
		assert.ErrorContains(t, err, "job 7")
		assert.Less(t, len(err.Error()), 600)
	}
	_, err := mustTemplate(t, "{metadata:x}").fill(jobWith(`{"x": 1}`, ``))
	assert.ErrorIs(t, err, ErrKey)
	assert.ErrorContains(t, err, "field {metadata:x} of job 7 cannot be found: there is no JSON object")
}

func TestTemplate_LongestKey(t *testing.T) {
	key, err := mustTemplate(t, "{x}").fill(jobWith(`{"x": "`+strings.Repeat("k", maxKey)+`"}`, `{}`))
	require.NoError(t, err)
	assert.Len(t, key, maxKey)
	_, problem := parseTemplate(strings.Repeat("k", maxKey))
	assert.Empty(t, problem)
	_, problem = parseTemplate(strings.Repeat("k", maxKey+1))
	assert.Equal(t, "must have at most 255 bytes", problem)
	_, problem = parseTemplate(strings.Repeat("k", maxKey) + "{x}k")
	assert.Equal(t, "must have at most 255 bytes", problem)
}

func TestTemplate_ThatCannotBe(t *testing.T) {
	for template, want := range map[string]string{
		"{":            "must have braces around the name of a field",
		"}":            "must have braces around the name of a field",
		"a}b":          "must have braces around the name of a field",
		"{a":           "must have braces around the name of a field",
		"{a}}":         "must have braces around the name of a field",
		"{{a}}":        "must have braces around the name of a field",
		"{a{b}}":       "must have braces around the name of a field",
		"{}":           "must not have a field with an empty name",
		"{a.}":         "must not have a field with an empty name",
		"{.a}":         "must not have a field with an empty name",
		"{a..b}":       "must not have a field with an empty name",
		"{metadata:}":  "must not have a field with an empty name",
		"{a}{b}":       "must have text between two fields",
		"x{a}{b}":      "must have text between two fields",
		"{a}%{b}":      "must not begin a text between two fields with %, a digit or A to F",
		"{a}0{b}":      "must not begin a text between two fields with %, a digit or A to F",
		"{a}9x{b}":     "must not begin a text between two fields with %, a digit or A to F",
		"{a}-{b}F{c}":  "must not begin a text between two fields with %, a digit or A to F",
		"a\x00b":       "must be valid UTF-8 without control characters",
		"{a}\n{b}":     "must be valid UTF-8 without control characters",
		"a\xffb":       "must be valid UTF-8 without control characters",
		"{a}\xff{b}":   "must be valid UTF-8 without control characters",
		"{a}\u0085{b}": "must be valid UTF-8 without control characters",
	} {
		_, problem := parseTemplate(template)
		assert.Contains(t, problem, want, "%q", template)
	}
	for _, template := range []string{"%", "0", "{a}0", "0{a}", "F{a}F", "{a}f{b}", "{a}G{b}", "{a}:0{b}"} {
		_, problem := parseTemplate(template)
		assert.Empty(t, problem, "%q", template)
	}
}

// takeApart returns the values that a template's key was made of.
func takeApart(t testing.TB, tmpl template, key string) (values []string) {
	t.Helper()
	rest, found := strings.CutPrefix(key, tmpl.texts[0])
	require.True(t, found)
	last := len(tmpl.fields) - 1
	for i := range tmpl.fields {
		text := tmpl.texts[i+1]
		var value string
		if i < last {
			first, _ := utf8.DecodeRuneInString(text)
			end := strings.IndexRune(rest, first)
			require.GreaterOrEqual(t, end, 0)
			value, rest = rest[:end], rest[end:]
			rest, found = strings.CutPrefix(rest, text)
			require.True(t, found)
		} else {
			value, found = strings.CutSuffix(rest, text)
			require.True(t, found)
		}
		values = append(values, unescape(t, value))
	}
	return values
}

func unescape(t testing.TB, s string) string {
	t.Helper()
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out = append(out, s[i])
			continue
		}
		require.LessOrEqual(t, i+3, len(s))
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		require.NoError(t, err)
		out, i = append(out, byte(c)), i+2
	}
	return string(out)
}

// setField puts a value where a field reads it.
func setField(document map[string]any, f field, value any) (ok bool) {
	for _, step := range f.path[:len(f.path)-1] {
		inner, is := document[step].(map[string]any)
		if !is {
			if document[step] != nil {
				return false
			}
			inner = map[string]any{}
			document[step] = inner
		}
		document = inner
	}
	name := f.path[len(f.path)-1]
	if document[name] != nil {
		return false
	}
	document[name] = value
	return true
}

// Different values never make the same key: the values can be read from the key. No key is too long or has characters
// that cannot be printed.
func FuzzTemplate(f *testing.F) {
	f.Add("orders:{a}", "1", "2", "3", []byte(`{"a": 1}`))
	f.Add("{a}:{b}", "x:y", "%3A", "", []byte(`{"a": null}`))
	f.Add("{a.b}→{metadata:c}é{d}!", "→", "é\x00", "é\xff", []byte(`{"a": {"b": []}}`))
	f.Add("{a}:{a}", ":", ":", ":", []byte(`[`))
	f.Add("%{a}%", "%", "%%", "0", []byte(`{"a":"\ud800"}`))
	f.Add("{a}e{b}", "1e5", "1", "e", []byte(`{"a":1e5,"b":-0}`))
	f.Fuzz(func(t *testing.T, text, v1, v2, v3 string, args []byte) {
		tmpl, problem := parseTemplate(text)
		if problem != "" {
			return
		}
		require.Len(t, tmpl.texts, len(tmpl.fields)+1)
		if key, err := tmpl.fill(&rivertype.JobRow{EncodedArgs: args, Metadata: args}); err != nil {
			require.ErrorIs(t, err, ErrKey)
		} else if text != "" {
			requireKey(t, key)
		}

		documents := map[bool]map[string]any{false: {}, true: {}}
		var want []string
		for i, field := range tmpl.fields {
			value := strings.ToValidUTF8([]string{v1, v2, v3}[i%3], "\uFFFD")
			if !utf8.ValidString(text) || !setField(documents[field.metadata], field, value) {
				return
			}
			want = append(want, value)
		}
		job := &rivertype.JobRow{}
		var err error
		job.EncodedArgs, err = json.Marshal(documents[false])
		require.NoError(t, err)
		job.Metadata, err = json.Marshal(documents[true])
		require.NoError(t, err)
		key, err := tmpl.fill(job)
		if err != nil {
			require.ErrorIs(t, err, ErrKey)
			escaped := 0
			for _, value := range want {
				escaped += 3 * len(value)
			}
			require.True(t, slices.Contains(want, "") || len(text)+escaped > maxKey, "%q %q: %v", text, want, err)
			return
		}
		if text != "" {
			requireKey(t, key)
		}
		for i, value := range takeApart(t, tmpl, key) {
			require.Equal(t, want[i], value, "%q %q", text, key)
		}
	})
}

func requireKey(t testing.TB, key string) {
	t.Helper()
	require.NotEmpty(t, key)
	require.LessOrEqual(t, len(key), maxKey)
	require.True(t, utf8.ValidString(key))
	require.NotContains(t, key, "\uFFFD")
	for _, r := range key {
		require.False(t, r < ' ' || r >= 0x7F && r < 0xA0, "%q", key)
	}
}
