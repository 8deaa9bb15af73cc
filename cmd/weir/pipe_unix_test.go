//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A pipe that nothing writes into does not hang the command. A test that fails hangs here.
func TestRun_Pipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	r := weir("", "check", path)
	assert.Equal(t, 2, r.status)
	assert.Equal(t, "weir: "+path+": not a regular file (p---------); with - as the file, weir reads the standard input\n", r.err)
}

// A pipedGateway is weir gateway with the test's own pipes as its standard output and standard error.
type pipedGateway struct {
	cmd            *exec.Cmd
	stdout, stderr *os.File // the ends that the test reads
	writeStderr    *os.File // the end of the process
	url            string
	ended          chan error
}

func startPiped(t *testing.T) *pipedGateway {
	t.Helper()
	config := write(t, plainConfig(behind(t, func(http.ResponseWriter, *http.Request) {}), "  routes: [{match: /, upstream: server}]", ""))
	g := &pipedGateway{ended: make(chan error, 1)}
	g.cmd = exec.Command(os.Args[0], "gateway", "-config", config, "-listen", "127.0.0.1:0", "-admin", "off")
	g.cmd.Env = append(os.Environ(), asProgram+"=1")
	var writeStdout *os.File
	var err error
	g.stdout, writeStdout, err = os.Pipe()
	require.NoError(t, err)
	g.stderr, g.writeStderr, err = os.Pipe()
	require.NoError(t, err)
	g.cmd.Stdout, g.cmd.Stderr = writeStdout, g.writeStderr
	require.NoError(t, g.cmd.Start())
	require.NoError(t, writeStdout.Close())
	go func() { g.ended <- g.cmd.Wait() }()
	t.Cleanup(func() {
		_ = g.cmd.Process.Kill()
		for _, f := range []*os.File{g.stdout, g.stderr, g.writeStderr} {
			_ = f.Close()
		}
	})
	for lines := bufio.NewScanner(g.stderr); lines.Scan(); {
		var l struct{ Msg, Listen string }
		if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "the gateway is ready" {
			g.url = "http://" + l.Listen
			return g
		}
	}
	require.Fail(t, "weir gateway is not ready")
	return nil
}

// exit waits for the end and returns the status, -1 after a signal.
func (g *pipedGateway) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-g.ended:
	case <-time.After(patience):
		require.Fail(t, "weir gateway has not ended")
	}
	return g.cmd.ProcessState.ExitCode()
}

// TestGateway_LogReaderGone checks that the gateway outlives what reads its access log.
func TestGateway_LogReaderGone(t *testing.T) {
	g := startPiped(t)
	get(t, g.url+"/")
	_, err := g.stdout.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, g.stdout.Close())
	for range 20 {
		a, _ := get(t, g.url+"/")
		assert.Equal(t, http.StatusOK, a.StatusCode)
	}
	require.NoError(t, g.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 2, g.exit(t), "the access log could not be written")
}
