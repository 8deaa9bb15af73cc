package readme

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/repo"
)

// packages are what code that is not a program by itself may use without an import, beside the packages of this repository.
var packages = map[string]string{
	"adaptive":  "github.com/weir-go/weir/strategies/adaptive", // and not that of reload
	"attribute": "go.opentelemetry.io/otel/attribute",
	"context":   "context",
	"errors":    "errors",
	"fmt":       "fmt",
	"grpc":      "google.golang.org/grpc",
	"http":      "net/http",
	"insecure":  "google.golang.org/grpc/credentials/insecure",
	"log":       "log",
	"math":      "math",
	"metric":    "go.opentelemetry.io/otel/metric",
	"os":        "os",
	"pgxpool":   "github.com/jackc/pgx/v5/pgxpool",
	"redis":     "github.com/redis/go-redis/v9",
	"river":     "github.com/riverqueue/river",
	"rivertype": "github.com/riverqueue/river/rivertype",
	"slices":    "slices",
	"slog":      "log/slog",
	"strings":   "strings",
	"sync":      "sync",
	"synctest":  "testing/synctest",
	"testing":   "testing",
	"time":      "time",
}

// granted are the names that such code may take for granted. Each is declared only
// where it is used, and code that declares one itself has its own.
var granted = map[string]string{
	"NewWindow":  "func NewWindow(limit int, period time.Duration) limiter.Limiter { return nil }",
	"Order":      "type Order struct{}",
	"bucket":     "var bucket limiter.Limiter",
	"call":       "func call(ctx context.Context) error { return ctx.Err() }",
	"callerOf":   "func callerOf(ctx context.Context) string { return \"\" }",
	"client":     "var client interface{ Order(context.Context, int) (*Order, error) }",
	"complete":   "func complete(w http.ResponseWriter, r *http.Request) (used int) { return 0 }",
	"ctx":        "var ctx = context.Background()",
	"downloads":  "var downloads *store.Partitioned",
	"handler":    "var handler http.Handler",
	"id":         "var id int",
	"limits":     "func limits() limiter.TokenBucketOptions { return limiter.TokenBucketOptions{} }",
	"mux":        "var mux = http.NewServeMux()",
	"orders":     "var orders *pipeline.Pipeline",
	"pool":       "var pool *pgxpool.Pool",
	"rdb":        "var rdb redis.UniversalClient",
	"userID":     "var userID string",
	"perMethod":  "var perMethod *limiter.PartitionedLimiter[string, string]",
	"perAddress": "var perAddress *limiter.PartitionedLimiter[string, string]",
	"perUser":    "var perUser *limiter.PartitionedLimiter[string, string]",
	"reg":        "var reg *registry.Registry",
	"reports":    "var reports limiter.Limiter",
	"slots":      "var slots limiter.Limiter",
	"tenantOf":   "func tenantOf(ctx context.Context) string { return \"\" }",
	"userOf":     "func userOf(r *http.Request) string { return r.Host }",

	// Those of the page on jobs.
	"SendArgs": "type SendArgs struct{}\nfunc (SendArgs) Kind() string { return \"send\" }",
	"SendWorker": "type SendWorker struct{ river.WorkerDefaults[SendArgs] }\n" +
		"func (*SendWorker) Work(context.Context, *river.Job[SendArgs]) error { return nil }",
	"ShipArgs":   "type ShipArgs struct{ Order int }\nfunc (ShipArgs) Kind() string { return \"ship\" }",
	"ShipWorker": "type ShipWorker struct {\nriver.WorkerDefaults[ShipArgs]\npool *pgxpool.Pool\n}",
	"perTenant":  "var perTenant *jobs.Declaration",
	"smtp":       "var smtp *jobs.Declaration",
	"throttler":  "var throttler *jobs.Throttler",
	"workers":    "var workers *river.Workers",
}

// importPaths returns packages and, by their names, those of this repository.
var importPaths = sync.OnceValues(func() (map[string]string, error) {
	root, err := repo.Root()
	if err != nil {
		return nil, err
	}
	ours, err := repo.List(root, "work")
	paths := map[string]string{}
	for _, p := range ours {
		if p.Public() {
			paths[p.Name] = p.ImportPath
		}
	}
	maps.Copy(paths, packages)
	return paths, err
})

// compile checks that programs and fragments of this module compile. The map has them by name, and each is a subtest.
func compile(t *testing.T, codes map[string]string) {
	t.Helper()
	problems := compilerErrors(t, codes)
	for _, name := range slices.Sorted(maps.Keys(codes)) {
		t.Run(name, func(t *testing.T) {
			if p := problems[name]; p != "" {
				t.Errorf("%s\n%s", p, codes[name])
			}
		})
	}
}

// compilerErrors returns what is wrong with each code.
func compilerErrors(t *testing.T, codes map[string]string) map[string]string {
	t.Helper()
	files, set, imported := map[string]*ast.File{}, token.NewFileSet(), map[string]bool{}
	problems := map[string]string{}
	for name, code := range codes {
		var err error
		if !strings.HasPrefix(code, "package ") {
			code, err = complete(code)
			require.NoError(t, err, "%s: %s", name, code)
		}
		if files[name], err = parser.ParseFile(set, name, code, 0); err != nil {
			problems[name] = err.Error()
		}
		for _, i := range files[name].Imports {
			imported[strings.Trim(i.Path.Value, `"`)] = true
		}
	}
	root, err := repo.Root()
	require.NoError(t, err)
	packages, err := repo.List(root, append([]string{"-export", "-deps"}, slices.Sorted(maps.Keys(imported))...)...)
	require.NoError(t, err)
	load := repo.Importer(packages)
	for name, file := range files {
		conf := types.Config{Importer: load, Error: func(err error) { problems[name] += err.Error() + "\n" }}
		_, _ = conf.Check(name, set, []*ast.File{file}, nil) // all errors have been noted
	}
	return problems
}

// complete makes a package of a fragment: declarations, or statements, which may
// return an error. Variables that the statements declare need not be used.
func complete(code string) (string, error) {
	if _, err := parse(code); err != nil {
		file, err := parse(inFunction(code, nil))
		if err != nil {
			return "", err
		}
		code = inFunction(code, declared(file.Decls[0].(*ast.FuncDecl).Body))
	}
	own, err := parse(code)
	if err != nil {
		return "", err
	}
	given := topLevel(own)
	for again := true; again; { // what is granted may need more
		file, err := parse(code)
		if err != nil {
			return "", err
		}
		again = false
		for name := range identifiers(file) {
			if d, ok := granted[name]; ok && !given[name] {
				given[name], again = true, true
				code += d + "\n"
			}
		}
	}
	file, err := parse(code)
	if err != nil {
		return "", err
	}
	paths, err := importPaths()
	return header + imports(file, paths) + code, err
}

const header = "package fragment\n"

func parse(code string) (*ast.File, error) {
	return parser.ParseFile(token.NewFileSet(), "", header+code, 0)
}

// topLevel returns the names that a file declares.
func topLevel(file *ast.File) map[string]bool {
	names := make(map[string]bool)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, i := range s.Names {
						names[i.Name] = true
					}
				}
			}
		}
	}
	return names
}

func inFunction(code string, unused []string) string {
	for _, name := range unused {
		code += "_ = " + name + "\n"
	}
	return "func _() error {\n" + code + "return nil\n}\n"
}

// declared returns the variables that the statements of a block declare, not those
// of blocks inside it: if one of them is not used, that is a mistake in the page.
func declared(b *ast.BlockStmt) (names []string) {
	add := func(e ast.Expr) {
		if i, ok := e.(*ast.Ident); ok && i.Name != "_" && !slices.Contains(names, i.Name) {
			names = append(names, i.Name)
		}
	}
	for _, s := range b.List {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				for _, e := range s.Lhs {
					add(e)
				}
			}
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && s.Decl.(*ast.GenDecl).Tok == token.VAR {
					for _, i := range v.Names {
						add(i)
					}
				}
			}
		}
	}
	return names
}

func identifiers(file *ast.File) map[string]bool {
	names := make(map[string]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok { // the selected name belongs to another package
			ast.Inspect(s.X, func(n ast.Node) bool {
				if i, ok := n.(*ast.Ident); ok {
					names[i.Name] = true
				}
				return true
			})
			return false
		}
		if i, ok := n.(*ast.Ident); ok {
			names[i.Name] = true
		}
		return true
	})
	return names
}

// imports returns an import of each package of which something is selected.
func imports(file *ast.File, paths map[string]string) string {
	var lines []string
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && paths[x.Name] != "" {
			lines = append(lines, fmt.Sprintf("import %q\n", paths[x.Name]))
		}
		return true
	})
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

func TestComplete(t *testing.T) {
	code, err := complete("order, err := client.Order(ctx, id)\n")
	require.NoError(t, err)
	assert.Contains(t, code, "import \"context\"\n")
	assert.NotContains(t, code, "limiter", "the code does not use it")
	assert.Contains(t, code, "type Order struct{}\n", "what is granted needs it")
	assert.Contains(t, code, "_ = order\n_ = err\nreturn nil\n")

	declaration, err := complete("func call(b limiter.Limiter) {}\n")
	require.NoError(t, err)
	assert.Equal(t, "package fragment\nimport \"github.com/weir-go/weir/limiter\"\nfunc call(b limiter.Limiter) {}\n", declaration)

	problems := compilerErrors(t, map[string]string{
		"statements": code, "declaration": declaration, "wrong type": "var n int = \"\"\n", "unknown": "orders.Run()\n", "twice": "package a\nvar a, a int\n",
	})
	assert.ElementsMatch(t, []string{"wrong type", "unknown", "twice"}, slices.Collect(maps.Keys(problems)), problems)

	_, err = complete("order, err = …\n")
	assert.Error(t, err)
}
