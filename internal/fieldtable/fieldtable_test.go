package fieldtable_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/fieldtable"
)

const schema = `{"$defs": {
	"server": {"type": "object", "required": ["to"], "properties": {
		"on": {"type": "boolean", "description": "Whether it runs."},
		"size": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 9}, {"const": "off"}]},
		"mode": {"enum": ["a", "b"]},
		"wait": {"$ref": "#/$defs/duration"},
		"to": {"type": "string", "description": "Where."},
		"hosts": {"type": "object", "additionalProperties": {"type": "object", "properties": {"ratio": {"type": "number", "exclusiveMinimum": 0}}}},
		"rules": {"type": "array", "items": {"type": "object"}},
		"names": {"type": "array", "items": {"type": "string"}},
		"trees": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
		"labels": {"type": "object", "additionalProperties": true, "description": "Whatever is written."},
		"tls": {"type": "object", "additionalProperties": false, "properties": {"file": {"type": "string"}}}
	}},
	"plain": {"type": "object", "description": "Nothing to set."}
}}`

func TestWords(t *testing.T) {
	defs, err := fieldtable.Definitions([]byte(schema))
	require.NoError(t, err)
	w := fieldtable.Words{"duration": "duration", "tree": "trees"}
	assert.Equal(t, map[string]string{
		"server": "| field | value | |\n|---|---|---|\n" +
			"| `to` | text | **Required.** Where. |\n" +
			"| `hosts` | names and [mappings](#serverhosts) |  |\n" +
			"| `labels` | mapping | Whatever is written. |\n" +
			"| `mode` | `a` or `b` |  |\n" +
			"| `names` | list |  |\n" +
			"| `on` | `true` or `false` | Whether it runs. |\n" +
			"| `rules` | list of [mappings](#serverrules) |  |\n" +
			"| `size` | number from 1 to 9 or `off` |  |\n" +
			"| `tls` | [mapping](#servertls) |  |\n" +
			"| `trees` | list of trees |  |\n" +
			"| `wait` | duration |  |\n",
		"server.hosts": "| field | value | |\n|---|---|---|\n| `ratio` | number above 0 |  |\n",
		"server.rules": "It has no fields: `{}`.\n",
		"server.tls":   "| field | value | |\n|---|---|---|\n| `file` | text |  |\n",
	}, w.Tables(defs["server"], "server"))
	assert.Equal(t, "Nothing to set.\n", w.Table(defs["plain"], ""))
	assert.Contains(t, w.Table(defs["server"], ""), "| `tls` |  |  |\n", "without a path there is nowhere to link to")
}

func TestFill(t *testing.T) {
	page, err := fieldtable.Fill("a\n  {{b}}\nc\n", map[string]string{"b": "B\n"})
	require.NoError(t, err)
	assert.Equal(t, "a\nB\nc\n", page)
	_, err = fieldtable.Fill("{{x}}\n", nil)
	require.EqualError(t, err, "there is nothing for {{x}}")
	_, err = fieldtable.Fill("a\n", map[string]string{"x": "", "b": ""})
	require.EqualError(t, err, "the template does not have {{b}}, {{x}}")
}
