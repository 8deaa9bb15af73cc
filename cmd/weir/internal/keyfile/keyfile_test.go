package keyfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pair is two files that fit if they have the same content. What does not fit leaves the old one in force, and is told once.
func TestFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		put := func(file, content string) { require.NoError(t, os.WriteFile(file, []byte(content), 0o600)) }
		var told []error
		load := func() (*File[string], error) {
			return Load(time.Second, func(contents [][]byte) (*string, error) {
				if !bytes.Equal(contents[0], contents[1]) {
					return nil, errors.New("does not match")
				}
				text := string(contents[0])
				return &text, nil
			}, func(err error) { told = append(told, err) }, a, b)
		}
		_, err := load()
		require.ErrorContains(t, err, a)
		put(a, "one")
		put(b, "two")
		_, err = load()
		require.ErrorContains(t, err, "does not match")
		put(b, "one")
		f, err := load()
		require.NoError(t, err)
		look := func() string {
			time.Sleep(time.Second)
			return *f.Get()
		}
		assert.Equal(t, "one", look())
		put(a, "two")
		assert.Equal(t, "one", look(), "the other file may be written a moment later")
		put(b, "two")
		assert.Equal(t, "one", *f.Get(), "it was looked at just now")
		assert.Equal(t, "one", look(), "this must be seen twice")
		assert.Equal(t, "two", look())
		assert.Equal(t, []error{nil}, told)

		require.NoError(t, os.Remove(b))
		for range 4 {
			assert.Equal(t, "two", look())
		}
		require.Len(t, told, 2)
		require.ErrorContains(t, told[1], b)
		require.ErrorContains(t, f.Status().Err, b)
		put(b, "two")
		look()
		look()
		assert.NoError(t, f.Status().Err, "what was in force is there again")
	})
}
