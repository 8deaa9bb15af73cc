// Package deploytest tests what is in deploy/: that a real Prometheus, which scrapes real processes under load, finds data
// for every panel and every alert, with the right numbers where the load fixes them; that promtool accepts the
// rules; and that compose file, Kubernetes manifest and dashboards fit together.
package deploytest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir/tools/testserver"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == troubled { // started by a test
		if err := serveTroubled(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(testserver.Runner(m))
}

// The root of the repository, and deploy/ in it.
const (
	root   = "../.."
	deploy = root + "/deploy"
)

// build builds a program of this repository.
func build(t *testing.T, pkg string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, pkg)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return text
}

// decodeYAML decodes a file with one document.
func decodeYAML[T any](t *testing.T, file string) (decoded T) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal(read(t, file), &decoded), file)
	return decoded
}
