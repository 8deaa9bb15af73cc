package main

import (
	"flag"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/plan"
	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
	"github.com/weir-go/weir/internal/fieldtable"
)

var update = flag.Bool("update", false, "write docs/gateway-configuration.md and docs/rls-configuration.md")

const (
	page    = "../../docs/gateway-configuration.md"
	request = "GET /orders/7 @203.0.113.9 X-Api-Key=abc"

	rlsPage    = "../../docs/rls-configuration.md"
	rlsFile    = "testdata/rls.yaml"
	descriptor = "edge: user=alice, path=/reports/2026"
)

// The page is made of testdata/gateway-configuration.md, in which a line "{{path}}" stands for the table of the fields
// there, and of the schema, which is made of the types.
func TestGatewayConfigurationPage(t *testing.T) {
	defs, err := fieldtable.Definitions([]byte(weir("", "schema").out))
	require.NoError(t, err)
	parts := fieldtable.Words{"duration": "duration"}.Tables(defs["section.gateway"], "gateway")
	maps.Copy(parts, map[string]string{
		"example": "```yaml\n" + read(t, gatewayFile) + "```\n",
		"command": "```sh\nweir explain -request '" + request + "' gateway.yaml\n```\n",
		"plan":    "```\n" + weir("", "explain", "-request", request, gatewayFile).out + "```\n",
		"grammar": "```\n" + plan.Grammar + "\n```\n",
	})
	made, err := fieldtable.Fill(read(t, "testdata/gateway-configuration.md"), parts)
	require.NoError(t, err, "testdata/gateway-configuration.md")
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(made), 0o644))
	}
	assert.Equal(t, made, read(t, page), "if the change is meant, run go test . -update")
}

// The page is made of testdata/rls-configuration.md in the same way.
func TestRLSConfigurationPage(t *testing.T) {
	defs, err := fieldtable.Definitions([]byte(weir("", "schema").out))
	require.NoError(t, err)
	w := fieldtable.Words{"duration": "duration", "struct.Descriptor": "[mappings](#rlsdomainsdescriptors)"}
	parts := w.Tables(defs["section.rls"], "rls")
	maps.Copy(parts, w.Tables(defs["struct.Descriptor"], "rls.domains.descriptors"))
	maps.Copy(parts, map[string]string{
		"example": "```yaml\n" + read(t, rlsFile) + "```\n",
		"command": "```sh\nweir explain -descriptor '" + descriptor + "' rls.yaml\n```\n",
		"found":   "```\n" + weir("", "explain", "-descriptor", descriptor, rlsFile).out + "```\n",
		"grammar": "```\n" + rlsconfig.Grammar + "\n```\n",
	})
	made, err := fieldtable.Fill(read(t, "testdata/rls-configuration.md"), parts)
	require.NoError(t, err, "testdata/rls-configuration.md")
	if *update {
		require.NoError(t, os.WriteFile(rlsPage, []byte(made), 0o644))
	}
	assert.Equal(t, made, read(t, rlsPage), "if the change is meant, run go test . -update")
}

func read(t *testing.T, path string) string {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// The file that the page on Envoy shows is valid, and so is the directory of its first command.
func TestEnvoyPage(t *testing.T) {
	text := read(t, "../../docs/envoy.md")
	_, rest, ok := strings.Cut(text, "```yaml\n")
	require.True(t, ok)
	file, _, _ := strings.Cut(rest, "```")
	r := weir(file, "check", "-strict", "-")
	assert.Equal(t, result{0, "-: ok: 0 pipelines, 1 named limiter, rls with 2 limits\n", ""}, r)
	require.Contains(t, text, "weir rls -ratelimit-config examples/rls")
	r = weir("", "rls", "-ratelimit-config", "../../examples/rls", "-print")
	assert.Equal(t, 0, r.status, r.err)
	assert.Contains(t, r.out, "domain: edge\n")
}
