package reload

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// validate calls the Validate method of the struct that v points to, if it has one, and adds what it returns.
func (d *decoder) validate(v reflect.Value, s *structure) {
	checked, ok := reflect.TypeAssert[interface{ Validate() error }](v)
	if !ok {
		return
	}
	if err := checked.Validate(); err != nil {
		d.invalid(err, s)
	}
}

// invalid adds a problem for each thing that err says of the struct: for each field of a [weir.OptionsError] where
// that field is written, and for any other error at the struct. Errors that were joined are added one by one.
func (d *decoder) invalid(err error, s *structure) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all := joined.Unwrap()
		if whole := errors.Join(all...); whole != nil && whole.Error() == err.Error() { // err has no text of its own
			for _, one := range all {
				d.invalid(one, s)
			}
			return
		}
	}
	options, ok := errors.AsType[*weir.OptionsError](err)
	if !ok {
		if len(s.failed) == 0 {
			d.Add(s.at, s.path, "%v", err)
		}
		return
	}
	for _, f := range options.Fields {
		d.invalidField(f, s)
	}
}

// invalidField adds the problem f where the field is written or, if the file leaves it out, at the mapping that it
// belongs to. If decoding the field, or another one that the problem names, has failed already, f is not added: the
// field that Validate has seen was 0.
func (d *decoder) invalidField(f weir.FieldError, s *structure) {
	at := s.locate(f.Path)
	failed := s.failed[at.outermost] || at.outermost == "" && len(s.failed) > 0
	text := f.Text(at.name, func(goName string) string {
		name := at.rename(goName)
		failed = failed || s.failed[name]
		return name
	})
	if !failed {
		d.Add(at.node, at.path, "%s", text)
	}
}

// A location is where the problem of a field is reported, and what the field is called there.
type location struct {
	node *document.Node // of the field or, if the file leaves it out, of the nearest mapping or list around it
	path string
	name string // of the field, in the file; "": none
	// outermost is the name of the field of the outermost struct that the path has led to, or into.
	outermost string
	fields    []model.Field // of the struct that the field is in
	typ       reflect.Type  // of the field; nil: not known
	missing   bool          // the file leaves the field out
}

// locate follows the path of a [weir.FieldError], which has the names of fields in Go, through the mapping that s was
// decoded from. What is not found keeps its name in Go.
func (s *structure) locate(goPath string) location {
	l := location{node: s.at, path: s.path, fields: s.fields, typ: s.typ}
	for goPath != "" {
		goPath = strings.TrimPrefix(goPath, ".")
		if key, ok := strings.CutPrefix(goPath, "["); ok {
			key, goPath, _ = strings.Cut(key, "]")
			l = l.element(key)
		} else {
			end := max(strings.IndexAny(goPath+".", ".["), 1)
			l = l.inField(goPath[:end])
			goPath = goPath[end:]
		}
		l.outermost = cmp.Or(l.outermost, l.name)
	}
	return l
}

// inField returns the location of a field of the struct at l.
func (l location) inField(goName string) location {
	l.fields = nil
	if l.typ != nil && l.typ.Kind() == reflect.Struct && !model.IsText(l.typ) {
		l.fields = model.FieldsOf(l.typ)
	}
	name := goName
	l.typ = nil
	if f := byGoName(l.fields, goName); f != nil && !f.Function {
		name, l.typ = f.Name, pointedTo(f.Type)
	}
	if l.missing {
		l.name += "." + name
		return l
	}
	l.name = name
	return l.at(l.node.Get(name), document.Child(l.path, name))
}

// element returns the location of an element of the list or map at l.
func (l location) element(key string) location {
	l.name += "[" + key + "]"
	typ := l.typ
	l.typ = nil
	switch {
	case typ != nil && typ.Kind() == reflect.Slice:
		l.typ = pointedTo(typ.Elem())
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(l.node.Items) {
			return l.at(l.node.Items[i], document.Element(l.path, i))
		}
	case typ != nil && typ.Kind() == reflect.Map:
		l.typ = pointedTo(typ.Elem())
		return l.at(l.node.Get(key), document.Child(l.path, key))
	}
	return l.at(nil, "")
}

// at returns l at that node, or where it is if the file leaves the node out.
func (l location) at(n *document.Node, path string) location {
	if n == nil || l.missing {
		l.missing = true
		return l
	}
	l.node, l.path = n, path
	return l
}

func pointedTo(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// rename returns the name in the file of a field of the same struct, or goName if there is none.
func (l location) rename(goName string) string {
	if f := byGoName(l.fields, goName); f != nil {
		return f.Name
	}
	return goName
}

func byGoName(fields []model.Field, goName string) *model.Field {
	if i := slices.IndexFunc(fields, func(f model.Field) bool { return f.GoName == goName }); i >= 0 {
		return &fields[i]
	}
	return nil
}
