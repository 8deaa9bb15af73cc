package decode

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
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
	l := location{node: s.node, fields: model.FieldsOf(s.typ)}
	typ, written := s.typ, true // of the value at the path so far: its type, nil if not known, and whether the file has it
	for goPath != "" {
		for typ != nil && typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		name, in := "", typ
		typ = nil
		goPath = strings.TrimPrefix(goPath, ".")
		if key, ok := strings.CutPrefix(goPath, "["); ok {
			name, goPath, _ = strings.Cut(key, "]")
			if in != nil && (in.Kind() == reflect.Map || in.Kind() == reflect.Slice) {
				typ = in.Elem()
			}
			l.name += "[" + name + "]"
		} else {
			end := max(strings.IndexAny(goPath+".", ".["), 1)
			name, goPath = goPath[:end], goPath[end:]
			l.fields = nil
			if in != nil && in.Kind() == reflect.Struct && !model.IsText(in) {
				l.fields = model.FieldsOf(in)
			}
			if f := byGoName(l.fields, name); f != nil && !f.Function {
				name, typ = f.Name, f.Type
			}
			if written {
				l.name = name
			} else {
				l.name += "." + name
			}
		}
		if n := l.node.Get(name); written && n != nil {
			l.node = n
		} else {
			written = false
		}
		l.outermost = cmp.Or(l.outermost, l.name)
	}
	return l
}

func byGoName(fields []model.Field, goName string) *model.Field {
	if i := slices.IndexFunc(fields, func(f model.Field) bool { return f.GoName == goName }); i >= 0 {
		return &fields[i]
	}
	return nil
}
