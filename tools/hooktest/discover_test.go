package hooktest

import (
	"fmt"
	"go/types"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/repo"
)

// discover returns the hooks of the exported API, sorted: every place at which a program can hand a function, or
// a value with methods of its own, to weir. They are
//
//   - "limiter.Factory", an exported func type;
//   - "pipeline.Listener.OnEvent", a method of an exported interface;
//   - "retry.Options.OnRetry", an exported field of a func or interface type;
//   - "limiter.Translate(f)", a parameter of a func or interface type;
//   - "registry.Registry.Define(build)", the same of a method.
func discover(t *testing.T) []string {
	t.Helper()
	root, err := repo.Root()
	require.NoError(t, err)
	packages, err := repo.List(root, "-export", "-deps", "work")
	require.NoError(t, err)
	load := repo.Importer(packages)
	var d discovery
	for _, p := range packages {
		if !hasHooks(p) {
			continue
		}
		pkg, err := load.Import(p.ImportPath)
		require.NoError(t, err, p.ImportPath)
		d.addPackage(pkg)
	}
	slices.Sort(d.hooks)
	return slices.Compact(d.hooks)
}

// hasHooks reports whether the hooks of p are looked for. Suites for tests are left out: the functions that
// they are given may fail the test.
func hasHooks(p repo.Package) bool {
	folder := p.Folder()
	return p.Public() && folder != "limiter/limitertest" && folder != "store/storetest" && folder != "weirtest"
}

type discovery struct{ hooks []string }

func (d *discovery) add(format string, args ...any) {
	d.hooks = append(d.hooks, fmt.Sprintf(format, args...))
}

func (d *discovery) addPackage(pkg *types.Package) {
	base := path.Base(pkg.Path())
	for _, name := range pkg.Scope().Names() {
		o := pkg.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		switch o := o.(type) {
		case *types.Func:
			d.addParams(base+"."+name, o.Signature())
		case *types.TypeName:
			d.addType(base+"."+name, o)
		}
	}
}

func (d *discovery) addType(name string, o *types.TypeName) {
	switch u := o.Type().Underlying().(type) {
	case *types.Signature:
		d.add("%s", name)
	case *types.Interface:
		for m := range u.ExplicitMethods() {
			if m.Exported() {
				d.add("%s.%s", name, m.Name())
			}
		}
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() && isHook(f.Type()) {
				d.add("%s.%s", name, f.Name())
			}
			if named, ok := f.Type().(*types.Named); ok && f.Embedded() && !f.Exported() {
				d.addMethods(name, named)
			}
		}
	}
	if named, ok := o.Type().(*types.Named); ok && !types.IsInterface(named) {
		d.addMethods(name, named)
	}
}

func (d *discovery) addMethods(name string, of *types.Named) {
	for m := range of.Methods() {
		if m.Exported() {
			d.addParams(name+"."+m.Name(), m.Signature())
		}
	}
}

func (d *discovery) addParams(name string, s *types.Signature) {
	for p := range s.Params().Variables() {
		if isHook(p.Type()) {
			d.add("%s(%s)", name, p.Name())
		}
	}
}

// notHooks are interfaces that are never a hook, whatever they are handed to.
var notHooks = map[string]string{
	"error":                   "a value that is passed on; Error and Is run where the program looks at it",
	"context.Context":         "nearly always one of package context; that limiters stand one which panics is tested there",
	"any":                     "a value that is passed on",
	"testing.TB":              "for tests",
	"net/http.ResponseWriter": "made by net/http",
	"io.Writer":               "written to on the caller's goroutine",
	"io.Reader":               "read from on the caller's goroutine",
	"io/fs.FS":                "read from on the caller's goroutine",
	"reflect.Type":            "nothing that a program can implement",
	"github.com/weir-go/weir/limiter.Options":      "limits, which are asked for before anything is locked or changed",
	"github.com/weir-go/weir/rate.Limited":         "the same",
	"github.com/redis/go-redis/v9.UniversalClient": "a client of a server, of the driver's",
}

// isHook reports whether a value of type t can hold functions of the program.
func isHook(t types.Type) bool {
	switch t := types.Unalias(t).(type) {
	case *types.TypeParam:
		return false
	case *types.Slice:
		return isHook(t.Elem())
	case *types.Array:
		return isHook(t.Elem())
	case *types.Map:
		return isHook(t.Elem())
	case *types.Named:
		name := t.Obj().Name()
		if t.Obj().Pkg() != nil {
			name = t.Obj().Pkg().Path() + "." + name
		}
		if _, never := notHooks[name]; never {
			return false
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Signature:
		return true
	case *types.Interface:
		return u.NumMethods() > 0
	}
	return false
}
