// Package ratelimitconfig reads the configuration files of github.com/envoyproxy/ratelimit, and makes a file of weir of them.
//
//   - files.go: which files of a directory are read.
//   - load.go: a file's content becomes domains, by the rules of the other server.
//   - translate.go: the domains become a file of weir, alone or together with another one.
package ratelimitconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-go/weir/internal/regularfile"
	"github.com/weir-go/weir/reload"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// The bounds of a directory. The file of weir that its files become has about as many bytes as all of them together.
const (
	maxFiles = 10_000
	maxBytes = fileconfig.MaxSize
)

// A File is a file of the other server.
type File struct {
	Name    string
	Content []byte
}

// ReadFiles returns the files of a directory and of the directories in it, sorted by their names, whose names end with .yaml
// or .yml. Like the other server with RUNTIME_IGNOREDOTFILES, it leaves out what begins with a dot, and like it, it follows
// links to files, not to directories. So the files of a ConfigMap, which are links to files in the directory ..data, are
// there once.
func ReadFiles(dir string) ([]File, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s: must be a directory", dir)
	}
	var files []File
	left := int64(maxBytes)
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := e.Name(); {
		case path != "." && strings.HasPrefix(name, "."):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir() || !strings.HasSuffix(name, ".yaml") && !strings.HasSuffix(name, ".yml"):
			return nil
		}
		path = filepath.Join(dir, filepath.FromSlash(path))
		if info, err := os.Stat(path); err == nil && info.IsDir() { // a link
			return nil
		}
		content, err := regularfile.Read(path, left)
		switch {
		case errors.Is(err, regularfile.ErrTooLarge):
			return fmt.Errorf("%s: the files must have at most %d bytes together", dir, maxBytes)
		case err != nil:
			return named(path, err)
		case len(files) == maxFiles:
			return fmt.Errorf("%s: must have at most %d files", dir, maxFiles)
		}
		left -= int64(len(content))
		files = append(files, File{path, content})
		return nil
	})
	switch {
	case err != nil:
		return nil, named(dir, err)
	case len(files) == 0:
		return nil, fmt.Errorf("%s: must have a file that ends with .yaml or .yml", dir)
	default:
		return files, nil
	}
}

// named returns err with the name of the file, unless it has it. The name in an error about the directory itself is ".".
func named(name string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok && at.Path == "." {
		err = at.Err
	}
	if strings.Contains(err.Error(), name) {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// A problems collects what is wrong with a file.
type problems struct {
	file  string
	found []reload.Problem
}

// maxProblems is how many problems of a file are told.
const maxProblems = 100

func (p *problems) add(line, column int, path, format string, args ...any) {
	if len(p.found) < maxProblems {
		p.found = append(p.found, reload.Problem{Line: max(line, 1), Column: max(column, 1), Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// err returns a [*reload.FileError], or nil.
func (p *problems) err() error {
	if len(p.found) == 0 {
		return nil
	}
	return &reload.FileError{File: p.file, Problems: p.found}
}
