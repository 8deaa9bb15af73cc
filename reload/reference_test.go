package reload_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload"
)

const reference = "../docs/configuration.md"

// The page is made of testdata/configuration.md, in which a line "{{kind}}" stands
// for the table of a kind, and of the schema, which is made of the types.
func TestConfigurationPage(t *testing.T) {
	var schema struct {
		Defs map[string]definition `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(reload.Schema(), &schema))
	told := make(map[string]bool)
	var page strings.Builder
	for line := range strings.Lines(string(read(t, "testdata/configuration.md"))) {
		kind, ok := strings.CutPrefix(strings.TrimSpace(line), "{{")
		if !ok {
			page.WriteString(line)
			continue
		}
		kind = strings.TrimSuffix(kind, "}}")
		if kind == "example" {
			fmt.Fprintf(&page, "```yaml\n%s```\n", read(t, "testdata/example.yaml"))
			continue
		}
		if kind == "explained" {
			fmt.Fprintf(&page, "```\n%s```\n", read(t, "testdata/example.txt"))
			continue
		}
		d, known := schema.Defs[kind]
		require.True(t, known, kind)
		told[kind] = true
		page.WriteString(d.table())
	}
	for kind := range maps.Keys(schema.Defs) {
		if strings.Contains(kind, ".") {
			assert.True(t, told[kind], "testdata/configuration.md does not have {{%s}}", kind)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(reference, []byte(page.String()), 0o644))
		return
	}
	assert.Equal(t, page.String(), string(read(t, reference)), howToUpdate)
}

// A definition is one of the schema's.
type definition struct {
	Ref         string                `json:"$ref"`
	Type        any                   `json:"type"`
	Description string                `json:"description"`
	Properties  map[string]definition `json:"properties"`
	Required    []string              `json:"required"`
	Enum        []any                 `json:"enum"`
	AnyOf       []definition          `json:"anyOf"`
	Const       any                   `json:"const"`
	Minimum     *float64              `json:"minimum"`
	Above       *float64              `json:"exclusiveMinimum"`
	Maximum     *float64              `json:"maximum"`
}

// table has a row for each field, required ones first.
func (d definition) table() string {
	if len(d.Properties) == 0 {
		if d.Description != "" {
			return d.Description + "\n"
		}
		return "It has no fields: `{}`.\n"
	}
	names := slices.Sorted(maps.Keys(d.Properties))
	slices.SortStableFunc(names, func(a, b string) int {
		return boolRank(slices.Contains(d.Required, b)) - boolRank(slices.Contains(d.Required, a))
	})
	var b strings.Builder
	b.WriteString("| field | value | |\n|---|---|---|\n")
	for _, name := range names {
		p := d.Properties[name]
		if kind, ok := strings.CutPrefix(p.Ref, "#/$defs/limiter."); ok {
			p.Description = "A limiter of its own."
			fmt.Fprintf(&b, "| `%s` | see [%s](#%s) | %s |\n", name, kind, kind, p.Description)
			continue
		}
		required := ""
		if slices.Contains(d.Required, name) {
			required = "**Required.** "
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s%s |\n", name, p.form(), required, p.Description)
	}
	return b.String()
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// bounds says how small and how large a number can be.
func (d definition) bounds() string {
	words := ""
	if d.Minimum != nil {
		words = fmt.Sprintf(" from %v", *d.Minimum)
	}
	if d.Above != nil {
		words = fmt.Sprintf(" above %v", *d.Above)
	}
	if d.Maximum != nil {
		words += fmt.Sprintf(" to %v", *d.Maximum)
	}
	return words
}

// form says in a word what can be written.
func (d definition) form() string {
	var forms []string
	for _, alternative := range d.AnyOf {
		forms = append(forms, alternative.form())
	}
	switch {
	case len(d.AnyOf) > 0:
		return strings.Join(slices.DeleteFunc(forms, func(f string) bool { return f == "" }), " or ")
	case d.Const != nil:
		return fmt.Sprintf("`%v`", d.Const)
	case len(d.Enum) > 0:
		for _, e := range d.Enum {
			forms = append(forms, fmt.Sprintf("`%v`", e))
		}
		return strings.Join(forms, " or ")
	case d.Ref == "#/$defs/duration":
		return "duration"
	case d.Ref == "#/$defs/store":
		return "[name and options](#store)"
	case d.Ref == "#/$defs/each":
		return "one kind of limiter"
	case d.Type == "integer", d.Type == "number":
		return "number" + d.bounds()
	case d.Type == "boolean":
		return "`true` or `false`"
	case d.Type == "string":
		return "text"
	case d.Type == "array":
		return "list"
	default:
		return ""
	}
}
