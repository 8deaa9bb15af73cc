// Package apigolden compares the exported API of every package with what api/ holds, so that a change
// of the API always shows as a change of a file.
package apigolden

import (
	"errors"
	"flag"
	"fmt"
	"go/types"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/tools/repo"
)

var update = flag.Bool("update", false, "write api/ again from the packages")

const howToUpdate = "if the change is meant, run `make api`, read the diff of api/ and commit it with the change"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExportedAPI(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("api/ shows the constants as they are where an int has 64 bits")
	}
	root, err := repo.Root()
	require.NoError(t, err)
	rendered, err := exportedAPI(root)
	if *update {
		// The packages that compile are written nevertheless, but nothing is removed.
		require.NoError(t, write(filepath.Join(root, "api"), rendered, err == nil))
		require.NoError(t, err, "these packages do not compile and keep the file they had")
		return
	}
	require.NoError(t, err)

	golden, err := read(filepath.Join(root, "api"))
	require.NoError(t, err)
	for _, problem := range compare(golden, rendered) {
		t.Errorf("%s\n%s", problem, howToUpdate)
	}
}

// exportedAPI renders every package that programs outside this repository can import, by file name.
// The error names each package that does not compile; the others are there all the same.
func exportedAPI(root string) (map[string]string, error) {
	packages, err := repo.List(root, "-export", "-deps", "work")
	if err != nil {
		return nil, err
	}
	load := repo.Importer(packages)
	rendered := map[string]string{}
	var errs []error
	for _, p := range packages {
		if !p.Public() {
			continue
		}
		pkg, err := compiled(load, p)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.ImportPath, err))
			continue
		}
		rendered[fileName(p)] = render(pkg)
	}
	return rendered, errors.Join(errs...)
}

func compiled(load types.Importer, p repo.Package) (*types.Package, error) {
	if problem := p.Problem(); problem != "" {
		return nil, errors.New(problem)
	}
	return load.Import(p.ImportPath)
}

// fileName is "strategies_retry.txt" for strategies/retry.
func fileName(p repo.Package) string {
	if p.Folder() == "." {
		return p.Name + ".txt"
	}
	return strings.ReplaceAll(p.Folder(), "/", "_") + ".txt"
}

// compare says where the golden files and the packages differ.
func compare(golden, rendered map[string]string) []string {
	var problems []string
	for name := range golden {
		if _, ok := rendered[name]; !ok {
			problems = append(problems, fmt.Sprintf("api/%s belongs to no package", name))
		}
	}
	for name, got := range rendered {
		want, ok := golden[name]
		if !ok {
			problems = append(problems, fmt.Sprintf("api/%s is missing", name))
			continue
		}
		if d := diff(want, got); d != "" {
			problems = append(problems, fmt.Sprintf("the exported API differs from api/%s:\n%s", name, d))
		}
	}
	slices.Sort(problems)
	return problems
}

// diff lists the lines that only one of the two has. The files are sorted, so their order says nothing.
func diff(want, got string) string {
	before, after := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out strings.Builder
	for _, l := range before {
		if !slices.Contains(after, l) {
			fmt.Fprintf(&out, "\t- %s\n", l)
		}
	}
	for _, l := range after {
		if !slices.Contains(before, l) {
			fmt.Fprintf(&out, "\t+ %s\n", l)
		}
	}
	if out.Len() == 0 && want != got {
		return "\tthe same lines in another order or number"
	}
	return out.String()
}

// read returns the golden files by name. No directory is the same as an empty one.
func read(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	golden := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		golden[e.Name()] = string(text)
	}
	return golden, nil
}

// write puts these files into the directory and, with prune, removes all others.
func write(dir string, rendered map[string]string, prune bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := read(dir)
	if err != nil {
		return err
	}
	for name := range old {
		if _, ok := rendered[name]; !ok && prune {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for name, text := range rendered {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
