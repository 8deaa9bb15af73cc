package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	citation = regexp.MustCompile(`rule: "([A-Za-z]+)([0-9 ,]*)"`)
	number   = regexp.MustCompile(`[0-9]+`)
)

// TestSemanticsHasEveryRule checks that docs/semantics.md has each rule that a case of limitertest names: the author of a
// limiter that fails the case looks it up there.
func TestSemanticsHasEveryRule(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "semantics.md"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "limiter", "limitertest", "*.go"))
	require.NoError(t, err)

	cited := 0
	for _, file := range files {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range citation.FindAllStringSubmatch(string(code), -1) {
			cited++
			_, section, found := strings.Cut(string(text), "\n## "+m[1]+"\n")
			if !assert.True(t, found, "no section for rule %q", m[0]) {
				continue
			}
			section, _, _ = strings.Cut(section, "\n## ")
			for _, n := range number.FindAllString(m[2], -1) {
				assert.Contains(t, section, "\n"+n+". ", m[0])
			}
		}
	}
	require.NotZero(t, cited, "limitertest names its rules in another way")
}
