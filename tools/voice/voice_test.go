// Package voice holds the words of the repository to plain English: it refuses words that make a sentence hard to read.
package voice

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/tools/repo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVoice(t *testing.T) {
	root, err := repo.Root()
	require.NoError(t, err)
	found, err := findAll(os.DirFS(root))
	require.NoError(t, err)

	for _, dir := range slices.Sorted(maps.Keys(found)) {
		for _, f := range found[dir] {
			t.Error(f)
		}
	}
}

// findAll returns the findings in all files below root, by directory.
func findAll(root fs.FS) (map[string][]finding, error) {
	found := map[string][]finding{}
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" {
				return fs.SkipDir
			}
			return nil
		}
		read := readerOf(file)
		if read == nil {
			return nil
		}
		source, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		for _, f := range find(read(file, source)) {
			f.file = file
			found[path.Dir(file)] = append(found[path.Dir(file)], f)
		}
		return nil
	})
	return found, err
}

// readerOf returns the function that finds the prose in a file of that name. It is nil if the file has none.
func readerOf(file string) func(file string, source []byte) []byte {
	switch filepath.Ext(file) {
	case ".go":
		return goProse
	case ".md", ".yaml", ".yml", ".sql", ".lua":
		return allProse
	}
	if base := path.Base(file); base == "Makefile" || path.Dir(file) == "scripts" {
		return allProse
	}
	return nil
}

func TestReaderOf(t *testing.T) {
	for _, file := range []string{"a.go", "docs/a.md", "Makefile", "scripts/servers", ".golangci.yml"} {
		assert.NotNil(t, readerOf(file), file)
	}
	for _, file := range []string{"go.sum", "bench/results/a.txt", "LICENSE"} {
		assert.Nil(t, readerOf(file), file)
	}
}
