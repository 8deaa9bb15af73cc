//go:build !js

package rlsoracle

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// moduleFolder returns where Go keeps a module that this one requires.
func moduleFolder(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
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
