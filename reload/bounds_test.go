package reload_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload"
)

const emptyPipeline = "\npipelines: {a: {strategies: []}}\n"

// The YAML library takes the square of the number of %TAG directives, and much memory for documents and lists.
func TestParse_ExcessiveYAML(t *testing.T) {
	tags := "%YAML 1.2\n%TAG !a! tag:x\n%TAG !b! tag:x\n---"
	for name, c := range map[string]struct{ file, want string }{
		"tags":          {tags, "f:2:1: a %TAG directive cannot be used, leave it out"},
		"tags, CRLF":    {strings.ReplaceAll(tags, "\n", "\r\n"), "f:2:1: a %TAG directive"},
		"tags, CR":      {strings.ReplaceAll(tags, "\n", "\r"), "f:2:1: a %TAG directive"},
		"documents":     {strings.Repeat("---\n", 250_000), "f:101:1: more than 100 lines begin or end a document, a file has only one"},
		"document ends": {strings.Repeat("...\n", 250_000), "f:101:1: more than 100 lines begin or end a document"},
		"flow elements": {"x-a: [" + strings.Repeat("1,", 400_000) + "1]", "f:1:1: there are more than 200000 of the characters [ { and ,"},
	} {
		_, err := reload.Parse("f", []byte(c.file+emptyPipeline), nil)
		require.ErrorContains(t, err, c.want, name)
	}
	_, err := reload.Parse("f", []byte("%YAML 1.1\n---"+emptyPipeline+"x-text: \"a\n  %TAG\"\n"), nil)
	require.NoError(t, err)
}
