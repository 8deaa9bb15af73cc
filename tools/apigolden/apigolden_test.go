// Package apigolden compares the exported API of every package with what api/ holds, so that a change
// of the API always shows as a change of a file.
package apigolden

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
	packages, err := repo.List(root, "-export", "-deps", "work")
	require.NoError(t, err)
	load, dir := repo.Importer(packages), filepath.Join(root, "api")
	golden := map[string]bool{} // the files that belong to no package
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		golden[f.Name()] = true
	}
	for _, p := range packages {
		if !p.Public() {
			continue
		}
		name := fileName(p)
		delete(golden, name)
		if problem := p.Problem(); problem != "" { // it keeps the file that it had
			t.Errorf("%s: %s", p.ImportPath, problem)
			continue
		}
		pkg, err := load.Import(p.ImportPath)
		require.NoError(t, err)
		file, rendered := filepath.Join(dir, name), render(pkg)
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(rendered), 0o644))
			continue
		}
		want, err := os.ReadFile(file)
		assert.NoError(t, err, howToUpdate)
		if d := diff(string(want), rendered); d != "" {
			t.Errorf("the exported API differs from api/%s:\n%s%s", name, d, howToUpdate)
		}
	}
	for name := range golden {
		if *update && !t.Failed() {
			require.NoError(t, os.Remove(filepath.Join(dir, name)))
		} else if !*update {
			t.Errorf("api/%s belongs to no package: %s", name, howToUpdate)
		}
	}
}

// fileName is "strategies_retry.txt" for strategies/retry.
func fileName(p repo.Package) string {
	if p.Folder() == "." {
		return p.Name + ".txt"
	}
	return strings.ReplaceAll(p.Folder(), "/", "_") + ".txt"
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
		return "\tthe same lines in another order or number\n"
	}
	return out.String()
}
