package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/plan"
)

var update = flag.Bool("update", false, "write docs/gateway-configuration.md")

const (
	page    = "../../docs/gateway-configuration.md"
	request = "GET /orders/7 @203.0.113.9 X-Api-Key=abc"
)

// The page is made of testdata/gateway-configuration.md, in which a line "{{path}}" stands for the table of the fields
// there, and of the schema, which is made of the types.
func TestGatewayConfigurationPage(t *testing.T) {
	printed := weir("", "schema")
	var schema struct {
		Defs map[string]*definition `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal([]byte(printed.out), &schema))
	tables := map[string]string{
		"example": "```yaml\n" + read(t, gatewayFile) + "```\n",
		"command": "```sh\nweir explain -request '" + request + "' gateway.yaml\n```\n",
		"plan":    "```\n" + weir("", "explain", "-request", request, gatewayFile).out + "```\n",
		"grammar": "```\n" + plan.Grammar + "\n```\n",
	}
	told := map[string]bool{}
	for what := range tables {
		told[what] = true
	}
	schema.Defs["section.gateway"].addTables(tables, "gateway")
	var b strings.Builder
	for line := range strings.Lines(read(t, "testdata/gateway-configuration.md")) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "{{")
		if !ok {
			b.WriteString(line)
			continue
		}
		path = strings.TrimSuffix(path, "}}")
		require.Contains(t, tables, path)
		b.WriteString(tables[path])
		told[path] = true
	}
	for path := range tables {
		assert.True(t, told[path], "testdata/gateway-configuration.md does not have {{%s}}", path)
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o644))
	}
	assert.Equal(t, b.String(), read(t, page), "if the change is meant, run go test . -update")
}

func read(t *testing.T, path string) string {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// A definition is one of the schema's.
type definition struct {
	Ref         string                 `json:"$ref"`
	Type        string                 `json:"type"`
	Description string                 `json:"description"`
	Properties  map[string]*definition `json:"properties"`
	Named       json.RawMessage        `json:"additionalProperties"` // false, or the values of a map by name
	Items       *definition            `json:"items"`
	Required    []string               `json:"required"`
	Enum        []any                  `json:"enum"`
	AnyOf       []*definition          `json:"anyOf"`
	Const       any                    `json:"const"`
	Minimum     *float64               `json:"minimum"`
	Above       *float64               `json:"exclusiveMinimum"`
	Maximum     *float64               `json:"maximum"`
}

// element returns what is in a list, or in a map by name, or d itself.
func (d *definition) element() *definition {
	if d.Items != nil {
		return d.Items.element()
	}
	var values definition
	if json.Unmarshal(d.Named, &values) == nil && values.Type != "" {
		return values.element()
	}
	return d
}

// addTables adds the tables of d and of all mappings in it, by path.
func (d *definition) addTables(tables map[string]string, path string) {
	d = d.element()
	if d.Type != "object" {
		return
	}
	names := slices.Sorted(maps.Keys(d.Properties))
	slices.SortStableFunc(names, func(a, b string) int { return rank(d.Required, b) - rank(d.Required, a) })
	if len(names) == 0 {
		tables[path] = "It has no fields: `{}`.\n"
		return
	}
	var b strings.Builder
	b.WriteString("| field | value | |\n|---|---|---|\n")
	for _, name := range names {
		p := d.Properties[name]
		required := ""
		if slices.Contains(d.Required, name) {
			required = "**Required.** "
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s%s |\n", name, p.form(path+"."+name), required, p.Description)
		p.addTables(tables, path+"."+name)
	}
	tables[path] = b.String()
}

func rank(required []string, name string) int {
	if slices.Contains(required, name) {
		return 1
	}
	return 0
}

// form says in a word what can be written in the field at that path.
func (d *definition) form(path string) string {
	var forms []string
	for _, alternative := range d.AnyOf {
		forms = append(forms, alternative.form(path))
	}
	for _, e := range d.Enum {
		forms = append(forms, fmt.Sprintf("`%v`", e))
	}
	link := "#" + strings.ReplaceAll(path, ".", "")
	switch element := d.element(); {
	case len(forms) > 0:
		return strings.Join(forms, " or ")
	case d.Const != nil:
		return fmt.Sprintf("`%v`", d.Const)
	case d.Ref == "#/$defs/duration":
		return "duration"
	case d.Type == "integer", d.Type == "number":
		return "number" + d.bounds()
	case d.Type == "boolean":
		return "`true` or `false`"
	case d.Type == "string":
		return "text"
	case d.Items != nil && element.Type == "object":
		return "list of [mappings](" + link + ")"
	case d.Items != nil:
		return "list"
	case element != d:
		return "names and [mappings](" + link + ")"
	default:
		return "[mapping](" + link + ")"
	}
}

// bounds says how small and how large a number can be.
func (d *definition) bounds() (words string) {
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
