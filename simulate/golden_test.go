package simulate

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

const howToUpdate = "if the change is meant, run go test ./simulate -update, and look at the pictures in a browser"

// written returns what write writes.
func written(t *testing.T, write func(io.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, write(&b))
	return b.Bytes()
}

// The pictures of docs/simulate.md and of examples/simulate are compared, too.
func TestGolden(t *testing.T) {
	result := overload(600)
	comparison := Compare(result, overload(450))
	for name, write := range map[string]func(io.Writer) error{
		"result.txt":     result.WriteTable,
		"result.html":    result.WriteHTML,
		"comparison.txt": comparison.WriteTable,
		"comparison.svg": comparison.WriteSVG,
	} {
		file := filepath.Join("testdata", "view", name)
		got := written(t, write)
		assert.Equal(t, got, written(t, write), "%s is different the second time", name)
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, got, 0o644))
			continue
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), howToUpdate)
	}
}
