package testserver

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const doomed = "WEIR_TESTSERVER_DOOMED"

// A test process that is killed takes its servers with it.
func TestServersDieWithTheProcess(t *testing.T) {
	t.Run("stores", func(t *testing.T) {
		dieWithTheProcess(t, func() []*Server { return []*Server{NewRedis(t), NewPostgres(t)} })
	})
	t.Run("programs", func(t *testing.T) {
		dieWithTheProcess(t, func() []*Server {
			return []*Server{
				Prometheus(t, "scrape_configs: []").Server, StartChromium(t),
			}
		})
	})
}

func dieWithTheProcess(t *testing.T, start func() []*Server) {
	if os.Getenv(doomed) != "" {
		words := []string{doomed}
		for _, s := range start() {
			words = append(words, s.Addr())
		}
		fmt.Println(strings.Join(words, " "))
		time.Sleep(patience) // it is killed here
		return
	}
	dir, err := os.MkdirTemp("", "weir-doomed-") //nolint:usetesting // t.TempDir fails where a dying process writes a last file
	require.NoError(t, err)
	defer removeAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755)) // PostgreSQL may be another user

	cmd := exec.Command(os.Args[0], "-test.run", "^"+strings.Replace(t.Name(), "/", "$/^", 1)+"$")
	cmd.Env = append(os.Environ(), doomed+"=1", "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	servers := announced(out)
	_ = cmd.Process.Kill()
	if cmd.Wait() == nil {
		t.Skip("it was not killed: it skipped itself for want of a server")
	}

	require.NotEmpty(t, servers)
	for _, addr := range servers {
		require.Eventually(t, func() bool { return refused(addr) }, patience, 10*time.Millisecond, addr)
	}
	leftovers, err := filepath.Glob(filepath.Join(dir, "weir-postgres-*", "data"))
	require.NoError(t, err)
	for _, data := range leftovers {
		removeSegment(data)
	}
}

// announced reads up to the line that says where the doomed servers are.
func announced(out io.Reader) []string {
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		if rest, ok := strings.CutPrefix(line, doomed); ok {
			return strings.Fields(rest)
		}
		if err != nil {
			return nil
		}
	}
}
