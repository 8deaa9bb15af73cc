//go:build unix

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

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

// TestGateway_LogReaderGone checks that the gateway outlives what reads its access log.
func TestGateway_LogReaderGone(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	p := newProgram(t, "the gateway is ready", plainConfig(behind(t, ok), "  routes: [{match: /, upstream: server}]", ""))
	p.stdout = write
	p.start("gateway", "-config", p.file, "-listen", "127.0.0.1:0", "-admin", "off")
	require.NoError(t, write.Close())
	get(t, p.url("/"))
	_, err = read.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, read.Close())
	for range 20 {
		a, _ := get(t, p.url("/"))
		assert.Equal(t, http.StatusOK, a.StatusCode)
	}
	p.signal(syscall.SIGTERM)
	assert.Equal(t, 2, p.exit(), "the access log could not be written")
}
