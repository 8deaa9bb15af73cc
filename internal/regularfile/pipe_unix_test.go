//go:build unix

package regularfile

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pipe that takes the place of the file after the first look is not waited for. A test that fails hangs here.
func TestOpen_Pipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err := open(path, 100)
	require.ErrorIs(t, err, ErrNotRegular)
	_, err = Read(path, 100)
	require.ErrorIs(t, err, ErrNotRegular)
}
