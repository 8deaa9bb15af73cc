package apigolden

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/require"
)

const source = `package shop

const Limit int64 = 1 << 40

type Level uint8

const (
	Low Level = iota
	high
)

var Default = New[string](nil)

type hidden struct{ Shared int }

func (hidden) Promoted() {}

type Box[K comparable, V any] struct {
	hidden
	Items map[K]V ` + "`json:\"items\"`" + `
	count int
}

func New[T any](f func(T) error) *Box[string, T] { return nil }

func (b *Box[K, V]) Put(key K, v V)  {}
func (b Box[K, V]) Len() (n int)     { return 0 }
func (b Box[K, V]) unexported()      {}
func internal()                      {}

type Alias = Box[int, int]
type Func func(Level) bool

func (f Func) Run() {}

type Sealed interface {
	Do(x int)
	seal()
}
type Number interface{ ~int | ~float64 }
`

const want = `package shop // shop

const Limit int64 = 1099511627776
const Low Level = 0
var Default *Box[string, string]
func New[T any](f func(T) error) *Box[string, T]
type Alias = Box[int, int]
type Box[K comparable, V any] struct // has unexported fields
type Box[K comparable, V any] struct, Items map[K]V ` + "`json:\"items\"`" + `
type Box[K comparable, V any] struct, Shared int
method (*Box[K, V]) Put(key K, v V)
method (Box[K, V]) Len() (n int)
method (Box[K, V]) Promoted()
type Func func(Level) bool
method (Func) Run()
type Level uint8
type Number interface // interface{~int | ~float64}
type Sealed interface // has unexported methods
type Sealed interface, Do(x int)
`

func TestRender(t *testing.T) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "shop.go", source, 0)
	require.NoError(t, err)
	pkg, err := new(types.Config).Check("shop", fset, []*ast.File{f}, nil)
	require.NoError(t, err)
	require.Equal(t, want, render(pkg))
}

func TestCompareFindsEveryDifference(t *testing.T) {
	golden := map[string]string{"a.txt": "x\ny\n", "gone.txt": "x\n", "same.txt": "x\n"}
	rendered := map[string]string{"a.txt": "x\nz\n", "new.txt": "x\n", "same.txt": "x\n"}
	require.Equal(t, []string{
		"api/gone.txt belongs to no package",
		"api/new.txt is missing",
		"the exported API differs from api/a.txt:\n\t- y\n\t+ z\n",
	}, compare(golden, rendered))
	require.Empty(t, compare(golden, golden))
}

func TestWritePrunesOnlyWhenTold(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, write(dir, map[string]string{"a.txt": "1", "b.txt": "2"}, true))
	require.NoError(t, write(dir, map[string]string{"a.txt": "3"}, false))
	got, err := read(dir)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a.txt": "3", "b.txt": "2"}, got)

	require.NoError(t, write(dir, map[string]string{"a.txt": "3"}, true))
	got, err = read(dir)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a.txt": "3"}, got)
}
