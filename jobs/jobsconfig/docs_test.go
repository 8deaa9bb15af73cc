package jobsconfig

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The blocks of Go on the page are compiled by tools/readme.
func TestConfigurationsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/jobs.md")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the module is not in its repository")
	}
	require.NoError(t, err)
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		text, _, _ := strings.Cut(b, "```")
		_, err := Parse([]byte(text))
		assert.NoError(t, err)
	}
	_, err = Parse([]byte("throttles: [{kinds: [a], limits: [{mutex: m, owner: b, mode: acquire, deadline: -1ns}]}]"))
	assert.NoError(t, err, "the page says how no deadline is written")
}
