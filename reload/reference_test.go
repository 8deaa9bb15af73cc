package reload_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/fieldtable"
	"github.com/weir-go/weir/reload"
)

const reference = "../docs/configuration.md"

// The page is made of testdata/configuration.md, in which a line "{{kind}}" stands
// for the table of a kind, and of the schema, which is made of the types.
func TestConfigurationPage(t *testing.T) {
	defs, err := fieldtable.Definitions(reload.Schema())
	require.NoError(t, err)
	words := fieldtable.Words{"duration": "duration", "store": "[name and options](#store)", "each": "one kind of limiter"}
	for name := range defs {
		if kind, ok := strings.CutPrefix(name, "limiter."); ok {
			words[name] = "see [" + kind + "](#" + kind + ")"
		}
	}
	parts := map[string]string{
		"example":   "```yaml\n" + string(read(t, "testdata/example.yaml")) + "```\n",
		"explained": "```\n" + string(read(t, "testdata/example.txt")) + "```\n",
	}
	for name, d := range defs {
		for _, p := range d.Properties {
			if strings.HasPrefix(p.Ref, "#/$defs/limiter.") {
				p.Description = "A limiter of its own."
			}
		}
		if strings.Contains(name, ".") || name == "store" || name == "budget" {
			parts[name] = words.Table(d, "")
		}
	}
	page, err := fieldtable.Fill(string(read(t, "testdata/configuration.md")), parts)
	require.NoError(t, err, "testdata/configuration.md")
	if *update {
		require.NoError(t, os.WriteFile(reference, []byte(page), 0o644))
		return
	}
	assert.Equal(t, page, string(read(t, reference)), howToUpdate)
}
