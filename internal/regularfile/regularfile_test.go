package regularfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	_, err := Read(path, 100)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("content"), 0o600))
	for _, read := range []func(string, int64) ([]byte, error){Read, open} {
		content, err := read(path, 7)
		require.NoError(t, err)
		assert.Equal(t, "content", string(content))
		_, err = read(path, 6)
		require.EqualError(t, err, "too large: it has more than 6 bytes")
		require.ErrorIs(t, err, ErrTooLarge)
		_, err = read(t.TempDir(), 6)
		require.ErrorIs(t, err, ErrNotRegular)
	}
}
