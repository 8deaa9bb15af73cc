package filewatch_test

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/regularfile"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/filewatch"
)

const missing = "reload: cannot read FILE: no such file or directory"

func TestMissingAtStart(t *testing.T) {
	watching(t, "", nil, func(t *testing.T, k *keeper) {
		k.until(20 * time.Second)
		k.expect(nil, []string{missing})
		write(t, k.path, newContent)
		k.until(24 * time.Second)
		k.expect([]string{newContent}, []string{""})
		assert.NoError(t, k.watch.Problem())
	})
}

// Each kind of thing that cannot be read, in place of a file that was loaded.
func TestUnreadable(t *testing.T) {
	tests := []struct {
		name    string
		put     func(t *testing.T, path string)
		problem string
		is      error
	}{
		{"a directory", func(t *testing.T, path string) {
			require.NoError(t, os.Mkdir(path, 0o700))
		}, "not a regular file but a directory", regularfile.ErrNotRegular},
		{"a device", func(t *testing.T, path string) {
			require.NoError(t, os.Symlink("/dev/zero", path))
		}, "not a regular file (Dc---------)", regularfile.ErrNotRegular},
		{"links in a circle", func(t *testing.T, path string) {
			require.NoError(t, os.Symlink(path, path))
		}, "too many levels of symbolic links", nil},
		{"a link that leads nowhere", func(t *testing.T, path string) {
			require.NoError(t, os.Symlink("nowhere", path))
		}, "no such file or directory", fs.ErrNotExist},
		{"too large", func(t *testing.T, path string) {
			write(t, path, "")
			require.NoError(t, os.Truncate(path, 8<<20+1))
		}, "too large: it has more than 8388608 bytes", regularfile.ErrTooLarge},
		{"without permission", func(t *testing.T, path string) {
			if os.Getuid() == 0 {
				t.Skip("root may read everything")
			}
			require.NoError(t, os.WriteFile(path, []byte(newContent), 0o200))
		}, "permission denied", fs.ErrPermission},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			watching(t, oldContent, nil, func(t *testing.T, k *keeper) {
				require.NoError(t, os.Remove(k.path))
				tt.put(t, k.path)
				k.until(20 * time.Second)
				k.expect(nil, []string{"reload: cannot read FILE: " + tt.problem})
				err := k.watch.Problem()
				if tt.is != nil {
					assert.ErrorIs(t, err, tt.is)
				}
				read, ok := errors.AsType[*filewatch.ReadError](err)
				require.True(t, ok)
				assert.Equal(t, k.path, read.Path)
				assert.Equal(t, tt.is == fs.ErrNotExist, read.Missing())

				require.NoError(t, os.RemoveAll(k.path))
				write(t, k.path, newContent)
				k.until(24 * time.Second)
				k.expect([]string{newContent}, []string{""})
			})
		})
	}
}

func TestRefusedIsOfferedOnceAndOverWhenTurnedBack(t *testing.T) {
	watching(t, oldContent, nil, func(t *testing.T, k *keeper) {
		write(t, k.path, "bad")
		k.until(10 * time.Minute)
		k.expect([]string{"bad"}, []string{"refused: bad"})
		assert.EqualError(t, k.watch.Problem(), "refused: bad")

		write(t, k.path, oldContent)
		k.until(11 * time.Minute)
		k.expect(nil, []string{""}) // it is in force, so there is nothing to load
		assert.NoError(t, k.watch.Problem())

		write(t, k.path, "bad")
		k.until(12 * time.Minute)
		k.expect([]string{"bad"}, []string{"refused: bad"}) // it has changed
	})
}

func TestPanic(t *testing.T) {
	panicking := func(k *keeper, _ *filewatch.Options) {
		k.fail = func(content string) error {
			if content == newContent {
				panic(errBoom)
			}
			return nil
		}
	}
	watching(t, oldContent, panicking, func(t *testing.T, k *keeper) {
		write(t, k.path, newContent)
		k.until(20 * time.Second)
		assert.Equal(t, []string{"reload: loading the file: panic: boom"}, k.problems)
		assert.Equal(t, oldContent, k.inForce)
		caught, ok := errors.AsType[*registry.PanicError](k.watch.Problem())
		require.True(t, ok)
		assert.Same(t, errBoom, caught.Value)
		assert.ErrorIs(t, caught, errBoom)
		assert.Contains(t, string(caught.Stack), "TestPanic")

		k.forget()
		write(t, k.path, "another.")
		k.until(24 * time.Second)
		k.expect([]string{"another."}, []string{""})
	})
}
