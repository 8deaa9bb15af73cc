// Package repo finds this repository's packages for the tests that check the repository as a whole.
package repo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the path of the root module. A nested module's path is Module and its directory.
const Module = "github.com/weir-go/weir"

// A Package is what `go list` says of one package of the workspace.
type Package struct {
	ImportPath   string
	Name         string
	Dir          string
	Export       string // the file with its export data, where asked for
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	DepsErrors   []*PackageError
	Error        *PackageError
}

// A PackageError is what is wrong with a Package.
type PackageError struct{ Err string }

// Folder returns the package's directory below the repository's root, with slashes; "." is the root itself.
func (p Package) Folder() string {
	if p.ImportPath == Module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, Module+"/")
}

// Problem returns the first reason for which the package does not compile, or "" if `go list` knows of none.
func (p Package) Problem() string {
	if p.Error != nil {
		return p.Error.Err
	}
	if len(p.DepsErrors) > 0 {
		return p.DepsErrors[0].Err
	}
	return ""
}

// Root returns the directory of go.work, which is the working directory or above it.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.work"))
		if err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return "", fmt.Errorf("no go.work above the working directory: %w", err)
		}
		dir = parent
	}
}

// List runs `go list -e -json` below root and returns what it prints. It uses the workspace, whatever GOWORK says. The
// pattern "work" stands for every package of every module of go.work.
func List(root string, args ...string) ([]Package, error) {
	if err := touch(root); err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd := exec.Command("go", append([]string{"list", "-e", "-json"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(root, "go.work"))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	var packages []Package
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// Importer returns what imports packages by their export data, which List has found with -export: exact, and already there
// after a build.
func Importer(packages []Package) types.Importer {
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(exports[path])
	})
}

// touch looks at every Go file, so that the result of a test is not cached when one changes: `go test` knows only of the
// files that the test itself has looked at, not of the files that `go list` reads.
func touch(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".go" || strings.HasPrefix(d.Name(), "go.") {
			_, err = os.Stat(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an editor's file, gone since
		}
		return err
	})
}

// Ours reports whether p is a package of this repository.
func (p Package) Ours() bool {
	return p.ImportPath == Module || strings.HasPrefix(p.ImportPath, Module+"/")
}

// Public reports whether p is a package of this repository that other programs can import.
func (p Package) Public() bool {
	folder := p.Folder()
	top, _, _ := strings.Cut(folder, "/")
	switch {
	case !p.Ours():
		return false
	case p.Name == "main" || len(p.GoFiles) == 0:
		return false
	case top == "examples" || top == "bench" || top == "tools":
		return false
	}
	return !slices.Contains(strings.Split(folder, "/"), "internal")
}
