package decode

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

// validate calls the Validate method of options, if there is one.
func validate(options any) error {
	if v, ok := options.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// addInvalid adds a problem for each thing that err says of the struct: for each field of a [weir.OptionsError] where
// that field is written, and for any other error at the struct. Errors that were joined are added one by one.
func (d *decoder) addInvalid(err error, s *structure) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all := joined.Unwrap()
		if whole := errors.Join(all...); whole != nil && whole.Error() == err.Error() { // err has no text of its own
			for _, one := range all {
				d.addInvalid(one, s)
			}
			return
		}
	}
	options, ok := errors.AsType[*weir.OptionsError](err)
	if !ok {
		if len(s.failed) == 0 {
			d.Add(s.node, "%v", err)
		}
		return
	}
	for _, f := range options.Fields {
		d.addInvalidField(f, s)
	}
}

// addInvalidField adds the problem f where the field is written or, if the file leaves it out, at the mapping that it
// belongs to. If decoding the field, or another one that the problem names, has failed already, f is not added: the
// field that Validate has seen was 0.
func (d *decoder) addInvalidField(f weir.FieldError, s *structure) {
	at := s.locate(f.Path)
	failed := s.failed[at.outermost] || at.outermost == "" && len(s.failed) > 0
	text := f.Text(at.name, func(goName string) string {
		name := goName
		if field := byGoName(at.fields, goName); field != nil {
			name = field.Name
		}
		failed = failed || s.failed[name]
		return name
	})
	if !failed {
		d.Add(at.node, "%s", text)
	}
}

// A location is where the problem of a field is reported, and what the field is called there.
type location struct {
	node *document.Node // of the field or, if the file leaves it out, of the nearest mapping or list around it
	name string         // of the field, in the file; "": none
	// outermost is the name of the field of the outermost struct that the path has led to, or into.
	outermost string
	fields    []model.Field // of the struct that the field is in
	typ       reflect.Type  // of the field; nil: not known
	missing   bool          // the file leaves the field out
}

// locate follows the path of a [weir.FieldError], which has the names of fields in Go, through the mapping that s was
// decoded from. What is not found keeps its name in Go.
func (s *structure) locate(goPath string) location {
	l := location{node: s.node, fields: s.fields, typ: s.typ}
	for goPath != "" {
		goPath = strings.TrimPrefix(goPath, ".")
		if key, ok := strings.CutPrefix(goPath, "["); ok {
			key, goPath, _ = strings.Cut(key, "]")
			l = l.element(key)
		} else {
			end := max(strings.IndexAny(goPath+".", ".["), 1)
			l = l.field(goPath[:end])
			goPath = goPath[end:]
		}
		l.outermost = cmp.Or(l.outermost, l.name)
	}
	return l
}

// field returns the location of a field of the struct at l.
func (l location) field(goName string) location {
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
	return l.at(l.node.Get(name))
}

// element returns the location of an element of the list or map at l.
func (l location) element(key string) location {
	l.name += "[" + key + "]"
	list := l.typ
	l.typ = nil
	var n *document.Node
	switch {
	case list != nil && list.Kind() == reflect.Slice:
		l.typ = pointedTo(list.Elem())
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(l.node.Items) {
			n = l.node.Items[i]
		}
	case list != nil && list.Kind() == reflect.Map:
		l.typ = pointedTo(list.Elem())
		n = l.node.Get(key)
	}
	return l.at(n)
}

// at returns l at that node, or where it is if the file leaves the node out.
func (l location) at(n *document.Node) location {
	if n == nil || l.missing {
		l.missing = true
		return l
	}
	l.node = n
	return l
}

func pointedTo(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func byGoName(fields []model.Field, goName string) *model.Field {
	if i := slices.IndexFunc(fields, func(f model.Field) bool { return f.GoName == goName }); i >= 0 {
		return &fields[i]
	}
	return nil
}
