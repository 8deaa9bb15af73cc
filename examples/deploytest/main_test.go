// Package deploytest tests what is in deploy/: that a real Prometheus, which scrapes real processes under load, finds data
// for every panel and every alert, with the right numbers where the load fixes them; that promtool accepts the
// rules; and that compose file, Kubernetes manifest and dashboards fit together.
package deploytest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
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
	goleak.VerifyTestMain(testserver.Runner(m), goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(builds) // "" if nothing was built
		os.Exit(status)
	}))
}

// The root of the repository, and deploy/ in it.
const (
	root   = "../.."
	deploy = root + "/deploy"
)

var builds string // the folder of what was built

// built builds partner and weir, once.
var built = sync.OnceValue(func() (err error) {
	if builds, err = os.MkdirTemp("", "weir-deploytest-"); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", builds+string(filepath.Separator), "./examples/partner", "./cmd/weir")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

// program returns the path of partner or weir.
func program(t *testing.T, name string) string {
	t.Helper()
	require.NoError(t, built())
	return filepath.Join(builds, name)
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
