package apigolden

import (
	"cmp"
	"fmt"
	"go/types"
	"slices"
	"strings"

	"github.com/weir-go/weir/tools/repo"
)

// render lists the exported API of a package, one line for each thing that a user could depend on:
// constants with their values, the tags of fields, promoted fields and methods, and whether a struct
// can be compared. What the lines do not hold can change without a user's notice.
func render(pkg *types.Package) string {
	r := renderer{qualify: qualifier(pkg)}
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		if obj := scope.Lookup(name); obj.Exported() {
			r.object(obj)
		}
	}
	slices.SortFunc(r.lines, func(a, b line) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.text, b.text))
	})
	var out strings.Builder
	fmt.Fprintf(&out, "package %s // %s\n\n", pkg.Name(), pkg.Path())
	for _, l := range r.lines {
		fmt.Fprintln(&out, l.text)
	}
	return out.String()
}

// qualifier names other packages by their whole path, ours by their directory: two packages of one
// name must not look alike.
func qualifier(pkg *types.Package) types.Qualifier {
	return func(other *types.Package) string {
		if other == pkg {
			return ""
		}
		return strings.TrimPrefix(other.Path(), repo.Module+"/")
	}
}

// A line is sorted by its key, which keeps a type and what belongs to it together.
type line struct{ key, text string }

type renderer struct {
	qualify types.Qualifier
	lines   []line
}

func (r *renderer) add(key, format string, args ...any) {
	r.lines = append(r.lines, line{key, fmt.Sprintf(format, args...)})
}

func (r *renderer) typeString(t types.Type) string { return types.TypeString(t, r.qualify) }

func (r *renderer) object(obj types.Object) {
	name := obj.Name()
	switch obj := obj.(type) {
	case *types.Const:
		r.add("1", "const %s %s = %s", name, r.typeString(obj.Type()), obj.Val().ExactString())
	case *types.Var:
		r.add("2", "var %s %s", name, r.typeString(obj.Type()))
	case *types.Func:
		r.add("3", "func %s%s", name, r.signature(obj))
	case *types.TypeName:
		r.typeName(obj)
	}
}

// signature is a function's type without the leading "func".
func (r *renderer) signature(f *types.Func) string {
	return strings.TrimPrefix(r.typeString(f.Type()), "func")
}

func (r *renderer) typeName(obj *types.TypeName) {
	name := obj.Name()
	if obj.IsAlias() {
		r.add("4 "+name, "type %s", strings.TrimPrefix(types.ObjectString(obj, r.qualify), "type "))
		return
	}
	named, ok := obj.Type().(*types.Named)
	if !ok {
		return
	}
	head := name + r.typeParams(named)
	switch under := named.Underlying().(type) {
	case *types.Struct:
		r.structType(name, head, under)
	case *types.Interface:
		r.interfaceType(name, head, under)
		return // its methods are listed as its own
	default:
		r.add("4 "+name, "type %s %s", head, r.typeString(under))
	}
	r.methods(name, named)
}

func (r *renderer) typeParams(named *types.Named) string {
	var params []string
	for p := range named.TypeParams().TypeParams() {
		params = append(params, p.Obj().Name()+" "+r.typeString(p.Constraint()))
	}
	if len(params) == 0 {
		return ""
	}
	return "[" + strings.Join(params, ", ") + "]"
}

func (r *renderer) structType(name, head string, s *types.Struct) {
	var notes []string
	if types.Comparable(s) {
		notes = append(notes, "comparable")
	}
	if r.fields("4 "+name+" field", "type "+head+" struct", s) {
		notes = append(notes, "has unexported fields")
	}
	text := "type " + head + " struct"
	if len(notes) > 0 {
		text += " // " + strings.Join(notes, ", ")
	}
	r.add("4 "+name, "%s", text)
}

// fields lists the exported fields, including those promoted from an embedded unexported struct, and reports whether
// there are unexported ones.
func (r *renderer) fields(key, prefix string, s *types.Struct) (unexported bool) {
	for i := range s.NumFields() {
		f := s.Field(i)
		if !f.Exported() {
			unexported = true
			if inner, ok := structBehind(f.Type()); ok && f.Embedded() {
				r.fields(key, prefix, inner)
			}
			continue
		}
		text := fmt.Sprintf("%s, %s %s", prefix, f.Name(), r.typeString(f.Type()))
		if f.Embedded() {
			text = fmt.Sprintf("%s, embedded %s", prefix, r.typeString(f.Type()))
		}
		if tag := s.Tag(i); tag != "" {
			text += " `" + tag + "`"
		}
		r.add(key, "%s", text)
	}
	return unexported
}

func structBehind(t types.Type) (*types.Struct, bool) {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	s, ok := t.Underlying().(*types.Struct)
	return s, ok
}

func (r *renderer) interfaceType(name, head string, i *types.Interface) {
	prefix := "type " + head + " interface"
	sealed := false
	for m := range i.Methods() {
		if !m.Exported() {
			sealed = true
			continue
		}
		r.add("4 "+name+" method", "%s, %s%s", prefix, m.Name(), r.signature(m))
	}
	switch {
	case !i.IsMethodSet():
		r.add("4 "+name, "%s // %s", prefix, r.typeString(i)) // a constraint: its terms are what matters
	case sealed:
		r.add("4 "+name, "%s // has unexported methods", prefix)
	default:
		r.add("4 "+name, "%s", prefix)
	}
}

// methods lists the exported methods, promoted ones too, each with the receiver that it takes.
func (r *renderer) methods(name string, named *types.Named) {
	byValue := types.NewMethodSet(named)
	for sel := range types.NewMethodSet(types.NewPointer(named)).Methods() {
		f, ok := sel.Obj().(*types.Func)
		if !ok || !f.Exported() {
			continue
		}
		receiver := "*" + name
		if byValue.Lookup(f.Pkg(), f.Name()) != nil {
			receiver = name
		}
		if params := typeArgs(named); params != "" {
			receiver += params
		}
		r.add("4 "+name+" method", "method (%s) %s%s", receiver, f.Name(), strings.TrimPrefix(r.typeString(sel.Type()), "func"))
	}
}

// typeArgs is "[R, K]" for a type that has these parameters.
func typeArgs(named *types.Named) string {
	var names []string
	for p := range named.TypeParams().TypeParams() {
		names = append(names, p.Obj().Name())
	}
	if len(names) == 0 {
		return ""
	}
	return "[" + strings.Join(names, ", ") + "]"
}
