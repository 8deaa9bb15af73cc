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

// addInvalid adds the problems of an error that validating the struct has returned. Each field of a [weir.OptionsError]
// is a problem where that field is written, and any other error is a problem at the struct. Errors that were joined are
// added one by one.
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
// belongs to. If decoding that field, or another field that the problem names, has failed, f is not added: Validate has
// checked the zero value instead of what the file has.
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
	// outermost is the name of the first field of the path, which is a field of the structure that locate was called for.
	outermost string
	fields    []model.Field // of the struct that the field is in
}

// locate follows the path of a [weir.FieldError], which has the names of fields in Go, through the mapping that s was
// decoded from. A field that is not found keeps its name in Go.
func (s *structure) locate(goPath string) location {
	l := location{node: s.node, fields: s.fields}
	typ, written := s.typ, true // of the value at the path so far: its type, nil if not known, and whether the file has it
	for goPath != "" {
		var n *document.Node
		goPath = strings.TrimPrefix(goPath, ".")
		if key, ok := strings.CutPrefix(goPath, "["); ok {
			key, goPath, _ = strings.Cut(key, "]")
			l.name += "[" + key + "]"
			n, typ = element(l.node, typ, key)
		} else {
			end := max(strings.IndexAny(goPath+".", ".["), 1)
			name := goPath[:end]
			goPath = goPath[end:]
			l.fields = fieldsOf(typ)
			typ = nil
			if f := byGoName(l.fields, name); f != nil && !f.Function {
				name, typ = f.Name, f.Type
			}
			n = l.node.Get(name)
			if !written {
				name = l.name + "." + name
			}
			l.name = name
		}
		if written = written && n != nil; written {
			l.node = n
		}
		l.outermost = cmp.Or(l.outermost, l.name)
	}
	return l
}

// element returns an element of n, a list or mapping that is decoded into the type t, and the type of the element.
func element(n *document.Node, t reflect.Type, key string) (*document.Node, reflect.Type) {
	switch t = pointedTo(t); {
	case t == nil:
		return nil, nil
	case t.Kind() == reflect.Map:
		return n.Get(key), t.Elem()
	case t.Kind() != reflect.Slice:
		return nil, nil
	}
	if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Items) {
		return n.Items[i], t.Elem()
	}
	return nil, t.Elem()
}

// fieldsOf returns the fields of a struct that is decoded from a mapping, or nil for any other type.
func fieldsOf(t reflect.Type) []model.Field {
	if t = pointedTo(t); t == nil || t.Kind() != reflect.Struct || model.IsText(t) {
		return nil
	}
	return model.FieldsOf(t)
}

func pointedTo(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
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
