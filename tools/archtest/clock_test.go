package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/repo"
)

// mayCallNow are the files in which a function may read the wall clock, each with its reason.
var mayCallNow = map[string]string{
	"internal/deadline/context.go": "a Deadline goes to others, who compare it with the clock on their wall",
	"limiter/calendar.go":          "days and months are those of the wall clock",
}

// Reading the wall clock costs twice what time.Since on a base costs, so the hot path has a base: a
// package variable, which is where time.Now is allowed.
func TestHotPathReadsNoWallClock(t *testing.T) {
	root, err := repo.Root()
	require.NoError(t, err)
	packages, err := repo.List(root, "./...")
	require.NoError(t, err)

	for _, p := range packages {
		if !hot(p.Folder()) {
			continue
		}
		for _, name := range p.GoFiles {
			file := p.Folder() + "/" + name
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			require.NoError(t, err)

			found := nowInFunctions(f)
			if mayCallNow[file] != "" {
				if len(found) == 0 {
					t.Errorf("%s does not call time.Now any more: take it out of mayCallNow", file)
				}
				continue
			}
			for _, pos := range found {
				t.Errorf("%s:%d: time.Now in a function: use time.Since on a package-level base, or give the file its reason in mayCallNow", file, fset.Position(pos).Line)
			}
		}
	}
}

// hot reports whether the calls of a program run through the folder. Code for tests does not count.
func hot(folder string) bool {
	switch folder {
	case "limiter/limitertest", "limiter/internal/model":
		return false
	case "internal/deadline":
		return true
	}
	top, _, _ := strings.Cut(folder, "/")
	return top == "limiter" || top == "pipeline" || top == "strategies"
}

// nowInFunctions finds time.Now, called or handed on, in the bodies of functions.
func nowInFunctions(f *ast.File) []token.Pos {
	name := importedAs(f, "time")
	var found []token.Pos
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Now" {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == name {
				found = append(found, sel.Pos())
			}
			return true
		})
	}
	return found
}

// importedAs is the name under which f imports a package of the standard library; "" if it does not.
func importedAs(f *ast.File, path string) string {
	for _, spec := range f.Imports {
		if got, err := strconv.Unquote(spec.Path.Value); err != nil || got != path {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return filepath.Base(path)
	}
	return ""
}

func TestNowInFunctionsIsFound(t *testing.T) {
	tests := []struct {
		name, src string
		want      int
	}{
		{"in a function", "import \"time\"\nfunc f() { _ = time.Now() }", 1},
		{"in a literal inside it", "import \"time\"\nfunc f() { g := func() { time.Now() }; g() }", 1},
		{"handed on", "import \"time\"\nfunc f() { g(time.Now) }", 1},
		{"under another name", "import clock \"time\"\nfunc f() { clock.Now() }", 1},
		{"the base", "import \"time\"\nvar base = time.Now()\nfunc f() { time.Since(base) }", 0},
		{"another package's", "import \"clock\"\nfunc f() { clock.Now() }", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package p\n"+tt.src, 0)
			require.NoError(t, err)
			require.Len(t, nowInFunctions(f), tt.want)
		})
	}
}
