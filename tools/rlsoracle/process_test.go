//go:build !js

package rlsoracle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/testserver"
)

// A program is built once for all tests.
type program struct {
	dir, target string
	build       func() (string, error)
}

var (
	buildsMu sync.Mutex
	builds   string // the folder of what was built
	weir     = newProgram("../../cmd/weir", ".")
	client   = newProgram(".", "github.com/envoyproxy/ratelimit/src/client_cmd")
)

func newProgram(dir, target string) *program {
	p := &program{dir: dir, target: target}
	p.build = sync.OnceValues(func() (string, error) {
		buildsMu.Lock()
		defer buildsMu.Unlock()
		if builds == "" {
			var err error
			if builds, err = os.MkdirTemp("", "rlsoracle"); err != nil {
				return "", err
			}
		}
		file := filepath.Join(builds, strings.ReplaceAll(filepath.Base(dir)+filepath.Base(target), ".", "")+".exe")
		c := exec.Command("go", "build", "-o", file, target)
		c.Dir = filepath.FromSlash(dir)
		// Without the workspace, which would choose other versions for the other server's programs.
		c.Env = append(os.Environ(), "GOWORK=off")
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w\n%s", target, err, out)
		}
		return file, nil
	})
	return p
}

// path returns the path of the program.
func (p *program) path(t *testing.T) string {
	t.Helper()
	path, err := p.build()
	require.NoError(t, err)
	return path
}

// startWeir starts weir rls with the files of the other server, and returns its address.
func startWeir(t *testing.T, files []string, args ...string) *testserver.Server {
	t.Helper()
	dir := t.TempDir()
	for i, file := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), []byte(file), 0o600))
	}
	args = append([]string{"rls", "-ratelimit-config", dir, "-listen", "{{addr}}", "-admin", "off"}, args...)
	return testserver.StartProgram(t, "the rate limit service is ready", weir.path(t), args...)
}

// output runs a program, and returns what it has written and its exit status.
func output(t *testing.T, p *program, args ...string) (out string, status int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), p.path(t), args...)
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	err := c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return b.String(), exit.ExitCode()
	}
	require.NoError(t, err)
	return b.String(), 0
}

// flushRedis returns what empties a Redis.
func flushRedis(t *testing.T, addr string) func() {
	return func() {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = fmt.Fprint(conn, "FLUSHALL\r\n")
		require.NoError(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "+OK\r\n", line)
	}
}
