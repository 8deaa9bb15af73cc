package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/tools/repo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const howToAdd = "if it is meant to be, change the table in tools/archtest/folders_test.go and say why in the commit"

func TestImportsFollowTheTable(t *testing.T) {
	root, err := repo.Root()
	require.NoError(t, err)
	packages, err := repo.List(root, "work")
	require.NoError(t, err)
	require.NotEmpty(t, packages)

	for _, p := range packages {
		for _, problem := range violations(p) {
			t.Errorf("%s; %s", problem, howToAdd)
		}
	}
}

// violations returns how p breaks the table.
func violations(p repo.Package) []string {
	from, ok := folderOf(p.Folder())
	if !ok {
		return []string{fmt.Sprintf("directory %s has no row in the table of who may import whom", p.Folder())}
	}
	var out []string
	for _, path := range p.Imports {
		if why := from.forbidden(path); why != "" {
			out = append(out, fmt.Sprintf("%s imports %s: %s", p.Folder(), path, why))
		}
	}
	for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
		if why := from.forbiddenInTests(path); why != "" {
			out = append(out, fmt.Sprintf("a test of %s imports %s: %s", p.Folder(), path, why))
		}
	}
	return out
}

// forbidden returns why code of the folder that is not a test may not import the path, or "" if it may.
func (r folder) forbidden(path string) string {
	switch dir, ours := ourDir(path); {
	case ours:
		to, ok := folderOf(dir)
		if !ok {
			return "a directory without a row in the table"
		}
		if !r.mayImportFolder(to) {
			return "the table allows it only " + list(r.mayImport)
		}
	case path == "testing" && !r.testing:
		return "code that is not a test has no use for testing"
	case !standard(path) && !inModules(r.thirdParty, path):
		return "beyond the standard library it may have only " + list(r.thirdParty)
	}
	return ""
}

func (r folder) forbiddenInTests(path string) string {
	switch dir, ours := ourDir(path); {
	case ours:
		to, ok := folderOf(dir)
		if !ok {
			return "a directory without a row in the table"
		}
		if to.leaf && to.name != r.name {
			return "nothing imports " + to.name
		}
	case !standard(path) && !inModules(slices.Concat(r.thirdParty, r.testOnly, everyTest), path):
		return "beyond the standard library its tests may have only " + list(slices.Concat(r.thirdParty, r.testOnly, everyTest))
	}
	return ""
}

// ourDir is the directory of one of our own packages.
func ourDir(path string) (dir string, ours bool) {
	if path == repo.Module {
		return ".", true
	}
	return strings.CutPrefix(path, repo.Module+"/")
}

// standard reports whether the path is of the standard library: only there the first element has no dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// A program that reads a file without adaptive limiters does not link failsafe-go; package reload/adaptive has them.
func TestReloadDoesNotReachFailsafe(t *testing.T) {
	reached := map[string]bool{}
	var reach func(name string)
	reach = func(name string) {
		if reached[name] {
			return
		}
		reached[name] = true
		row, ok := folderOf(name)
		require.True(t, ok, name)
		require.NotContains(t, row.thirdParty, "github.com/failsafe-go/failsafe-go", name)
		for _, to := range row.mayImport {
			require.NotContains(t, to, "*", "%s: a pattern can be any folder", name)
			reach(to)
		}
	}
	reach("reload")
	require.True(t, reached["strategies/retry"])
}

func TestTableIsWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range folders {
		require.False(t, seen[r.name], "%s has two rows", r.name)
		seen[r.name] = true
		for _, pattern := range r.mayImport {
			known := pattern == "..." || slices.ContainsFunc(folders, func(to folder) bool { return matches(pattern, to.name) })
			require.True(t, known, "%s may import %s, which has no row", r.name, pattern)
		}
	}
}

// The rules are tried on packages that break them: a test that finds nothing could be blind.
func TestViolationsAreFound(t *testing.T) {
	ours := func(dir string) string { return repo.Module + "/" + dir }
	tests := []struct {
		name string
		pkg  repo.Package
		want string // a part of the one violation; "" for none
	}{
		{"allowed", repo.Package{ImportPath: ours("strategies/ratelimit"), Imports: []string{"context", ours("limiter"), ours("pipeline")}}, ""},
		{"arrow up", repo.Package{ImportPath: ours("limiter"), Imports: []string{ours("pipeline")}}, "allows it only internal/"},
		{"between siblings", repo.Package{ImportPath: ours("strategies/retry"), Imports: []string{ours("strategies/timeout")}}, "allows it only pipeline"},
		{"third party in the core", repo.Package{ImportPath: ours("pipeline"), Imports: []string{"github.com/failsafe-go/failsafe-go/common"}}, "may have only nothing"},
		{"testing outside of tests", repo.Package{ImportPath: ours("pipeline"), Imports: []string{"testing"}}, "no use for testing"},
		{"testing in the suite", repo.Package{ImportPath: ours("limiter/limitertest"), Imports: []string{"testing"}}, ""},
		{"unknown directory", repo.Package{ImportPath: ours("attic")}, "directory attic has no row"},
		{"import of an unknown directory", repo.Package{ImportPath: ours("pipeline"), Imports: []string{ours("attic")}}, "without a row"},
		{"import of an example", repo.Package{ImportPath: ours("pipeline"), TestImports: []string{ours("examples/quickstart")}}, "nothing imports examples"},
		{"the folder's own internals", repo.Package{ImportPath: ours("limiter"), Imports: []string{ours("limiter/internal/queue")}}, ""},
		{"another folder's internals", repo.Package{ImportPath: ours("limiter/internal/queue"), Imports: []string{ours("pipeline")}}, "allows it only internal/"},
		{"tests are looser", repo.Package{ImportPath: ours("pipeline"), XTestImports: []string{ours("strategies/retry"), "go.uber.org/goleak"}}, ""},
		{"but not with modules", repo.Package{ImportPath: ours("pipeline"), XTestImports: []string{"github.com/failsafe-go/failsafe-go"}}, "its tests may have only"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := violations(tt.pkg)
			if tt.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0], tt.want)
		})
	}
}
