package filewatch_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Two contents of the same length: the size must not be what tells them apart.
const (
	oldContent = "the old one: limit 10, window 1s."
	newContent = "the new one: limit 20, window 1s."
)

// A replacement is one of the ways in which files get their new content.
type replacement struct {
	name string
	// prepare puts the old content there and returns the path to watch; nil: a
	// plain file.
	prepare func(t *testing.T, dir string) (path string)
	// replace puts the new content there. It calls pause between any two steps that another process could see.
	replace func(t *testing.T, path string, pause func())
}

var replacements = []replacement{
	{name: "written in place", replace: writeSlowly},
	{
		name: "renamed over",
		replace: func(t *testing.T, path string, pause func()) {
			writeSlowly(t, path+".tmp", pause)
			pause()
			require.NoError(t, os.Rename(path+".tmp", path))
		},
	},
	{
		name: "deleted and made again",
		replace: func(t *testing.T, path string, pause func()) {
			require.NoError(t, os.Remove(path))
			pause()
			writeSlowly(t, path, pause)
		},
	},
	{
		name: "saved by vim", // which first tries whether it may create files, then renames, and deletes the backup
		replace: func(t *testing.T, path string, pause func()) {
			probe := filepath.Join(filepath.Dir(path), "4913")
			write(t, probe, "")
			require.NoError(t, os.Remove(probe))
			pause()
			require.NoError(t, os.Rename(path, path+"~"))
			pause()
			writeSlowly(t, path, pause)
			pause()
			require.NoError(t, os.Remove(path+"~"))
		},
	},
	{
		name:    "a ConfigMap's update",
		prepare: mountConfigMap,
		replace: func(t *testing.T, path string, pause func()) {
			updateConfigMap(t, filepath.Dir(path), newContent, pause)
		},
	},
	{
		name: "a link that is made again", // ln -sfn
		prepare: func(t *testing.T, dir string) string {
			write(t, filepath.Join(dir, "v1.yaml"), oldContent)
			write(t, filepath.Join(dir, "v2.yaml"), newContent)
			path := filepath.Join(dir, "weir.yaml")
			require.NoError(t, os.Symlink("v1.yaml", path))
			return path
		},
		replace: func(t *testing.T, path string, pause func()) {
			require.NoError(t, os.Remove(path))
			pause()
			require.NoError(t, os.Symlink("v2.yaml", path))
		},
	},
	{
		name: "behind the back of size and time",
		replace: func(t *testing.T, path string, pause func()) {
			before, err := os.Stat(path)
			require.NoError(t, err)
			writeSlowly(t, path, pause)
			require.NoError(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
			after, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, before.Size(), after.Size())
			require.Equal(t, before.ModTime(), after.ModTime())
		},
	},
}

// writeSlowly truncates the file and writes it in three parts. The first ends as
// if it were all.
func writeSlowly(t *testing.T, path string, pause func()) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for _, part := range []string{"the new one.", "limit "} {
		pause()
		_, err = f.WriteString(part)
		require.NoError(t, err)
	}
	pause()
	_, err = f.WriteAt([]byte(newContent), 0)
	require.NoError(t, err)
}

// mountConfigMap makes what the kubelet makes of one.
func mountConfigMap(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "..2024_1"), 0o700))
	write(t, filepath.Join(dir, "..2024_1", "weir.yaml"), oldContent)
	require.NoError(t, os.Symlink("..2024_1", filepath.Join(dir, "..data")))
	path := filepath.Join(dir, "weir.yaml")
	require.NoError(t, os.Symlink(filepath.Join("..data", "weir.yaml"), path))
	return path
}

// updateConfigMap does what the kubelet does.
func updateConfigMap(t *testing.T, dir, content string, pause func()) {
	t.Helper()
	before, err := os.Readlink(filepath.Join(dir, "..data"))
	require.NoError(t, err)
	after := before + "_next"
	require.NoError(t, os.Mkdir(filepath.Join(dir, after), 0o700))
	pause()
	write(t, filepath.Join(dir, after, "weir.yaml"), content)
	pause()
	require.NoError(t, os.Symlink(after, filepath.Join(dir, "..data_tmp")))
	pause()
	require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	pause()
	require.NoError(t, os.RemoveAll(filepath.Join(dir, before)))
}

// However the new content gets there, and whenever between two polls or two reads
// that happens: it is loaded, and the states in between are not reported.
func TestEveryWayOfReplacingTheFile(t *testing.T) {
	for _, r := range replacements {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, pause := range []time.Duration{0, 30 * time.Millisecond, 110 * time.Millisecond, 195 * time.Millisecond} {
				for begin := 1100 * time.Millisecond; begin < 3300*time.Millisecond; begin += 90 * time.Millisecond {
					r.happens(t, begin, pause)
				}
			}
		})
	}
}

func (r replacement) happens(t *testing.T, begin, pause time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "weir.yaml")
		if r.prepare != nil {
			path = r.prepare(t, dir)
		} else {
			write(t, path, oldContent)
		}
		k := newKeeper(t, path, nil)
		k.run()
		k.until(begin)
		k.expect([]string{oldContent}, nil)

		r.replace(t, path, func() { time.Sleep(pause) })
		ready := time.Since(k.began)
		k.until(ready + 2600*time.Millisecond) // a poll, and what it may have to read again
		k.expect([]string{newContent}, nil)
		if t.Failed() {
			t.Fatalf("it began after %v, with pauses of %v", begin, pause)
		}
	})
}

func TestTouchedIsNotChanged(t *testing.T) {
	watching(t, oldContent, nil, func(t *testing.T, k *keeper) {
		for i := range 5 {
			then := time.Unix(int64(1e9+i), 0)
			require.NoError(t, os.Chtimes(k.path, then, then))
			k.until(time.Duration(i+1) * 3 * time.Second)
			write(t, k.path+".tmp", oldContent)
			require.NoError(t, os.Rename(k.path+".tmp", k.path)) // another inode
		}
		k.until(20 * time.Second)
		k.expect(nil, nil)
	})
}
