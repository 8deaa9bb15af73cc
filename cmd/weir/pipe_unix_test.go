//go:build unix

package main

import (
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
