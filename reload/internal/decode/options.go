package decode

import (
	"reflect"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// oneKind returns the only entry of a mapping, if its key is one of the kinds or AcceptUnknown applies to it.
func (d *decoder) oneKind(n *document.Node, what string, kinds []string) (document.Entry, bool) {
	if n.Kind != document.Mapping {
		d.Add(n, "must be a mapping of a kind of %s to its options, found %v; the kinds are %s", what, n, strings.Join(kinds, ", "))
		return document.Entry{}, false
	}
	if len(n.Entries) == 0 {
		d.Add(n, "the kind of %s is missing, it is one of %s", what, strings.Join(kinds, ", "))
		return document.Entry{}, false
	}
	e := n.Entries[0]
	if len(n.Entries) > 1 {
		second := n.Entries[1].Key
		d.Add(second, "a %s has one kind, found %s after %s; is the indentation right?", what, document.Quoted(second.Text), document.Quoted(e.Key.Text))
	}
	if slices.Contains(kinds, e.Key.Text) {
		return e, len(n.Entries) == 1
	}
	if what != eachName && d.section == nil && d.acceptsUnknown(e.Key.Text, kinds) {
		return e, true
	}
	d.Add(e.Key, "unknown kind of %s %s, %s", what, document.Quoted(e.Key.Text), d.Instead(e.Key.Text, kinds, ""))
	return document.Entry{}, false
}

// acceptsUnknown reports whether AcceptUnknown applies to a name: it is not close to a known one.
func (d *decoder) acceptsUnknown(name string, known []string) bool {
	return d.kinds.AcceptUnknown && document.Nearest(name, known) == ""
}

// A structure is a mapping that was decoded into a struct.
type structure struct {
	node   *document.Node
	typ    reflect.Type    // of the struct
	fields []model.Field   // of the struct
	failed map[string]bool // the names of fields that have a problem
}

// decodeOptions decodes a mapping into the struct that v points to, and validates it. It returns nil if n is no
// mapping. also are the names of fields that the caller decodes, so that messages about unknown fields list them.
func (d *decoder) decodeOptions(n *document.Node, v reflect.Value, also ...string) *structure {
	if n.Kind != document.Mapping {
		hint := ""
		if n.Kind == document.Null {
			hint = "; {} is one without any"
		}
		d.Add(n, "must be a mapping of options, found %v%s", n, hint)
		return nil
	}
	t := v.Elem().Type()
	s := &structure{node: n, typ: t, fields: model.FieldsOf(t), failed: make(map[string]bool)}
	if what, is := model.OneOf(t); is {
		if _, ok := d.oneKind(n, what, s.names(nil)); !ok {
			return s
		}
	}
	for _, e := range n.Entries {
		i := slices.IndexFunc(s.fields, func(f model.Field) bool { return f.Name == e.Key.Text })
		switch {
		case i < 0:
			d.unknownField(e.Key, s.names(also)...)
		case s.fields[i].Function:
			d.Add(e, "%s can only be set by the program, not in a file", document.Quoted(e.Key.Text))
		default:
			f := &s.fields[i]
			before := len(d.Problems)
			d.decodeField(f, e.Value, v.Elem().FieldByIndex(f.Index))
			if len(d.Problems) > before {
				s.failed[f.Name] = true
			}
			if f.Fixed && d.section != nil {
				d.section.Places[e.Place().Path] = e.Place()
			}
		}
	}
	for _, f := range s.fields {
		if f.Required && n.Get(f.Name) == nil {
			d.Add(n, "%s is missing", f.Name)
			s.failed[f.Name] = true
		}
	}
	d.addInvalid(validate(v.Interface()), s)
	return s
}

// names returns the sorted names of the fields that a file can have, and the names in also.
func (s *structure) names(also []string) []string {
	names := slices.Clone(also)
	for _, f := range s.fields {
		if !f.Function {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return names
}

// decodeField decodes the value n of f into v.
func (d *decoder) decodeField(f *model.Field, n *document.Node, v reflect.Value) {
	for _, w := range f.Words {
		written := n.Kind == document.Text && n.Text == w.Text || w == model.Off && n.Kind == document.Integer && n.Text == "-1"
		if written && w.Set(v) {
			return
		}
	}
	before := len(d.Problems)
	d.decodeValue(n, v, f.Rule)
	if len(d.Problems) == before && f.Default != "" && v.IsZero() {
		off := ""
		if slices.Contains(f.Words, model.Off) {
			off = `, or write "off" for none`
		}
		what := "0"
		if n.Kind == document.Text && v.Kind() == reflect.String {
			what = "empty"
		}
		d.Add(n, "must not be %s; for the default, which is %s, leave %s out%s", what, f.Default, f.Name, off)
	}
	if len(d.Problems) == before && f.Type == model.DurationType && v.Int() == model.Off.Value && slices.Contains(f.Words, model.Off) {
		d.Add(n, `must be "off" or more than 0, found %v`, n)
	}
	if len(d.Problems) == before && f.Bounded {
		d.checkBounds(f, n, v)
	}
	if f.Purpose != "" && n.Kind == document.Text {
		d.checkFunction(n, f.Purpose)
	}
}

// checkBounds checks that a number is within the bounds of its rule.
func (d *decoder) checkBounds(f *model.Field, n *document.Node, v reflect.Value) {
	var number float64
	switch {
	case v.CanInt():
		number = float64(v.Int())
	case v.CanUint():
		number = float64(v.Uint())
	case v.CanFloat():
		number = v.Float()
	default:
		return
	}
	switch {
	case f.HasLeast && number < f.Least:
		d.Add(n, "must be at least %v, found %v", f.Least, document.Beginning(n.Text))
	case f.Most != 0 && number > f.Most:
		d.Add(n, "must be at most %v, found %v", f.Most, document.Beginning(n.Text))
	}
}

// checkFunction checks that n names something that the program has registered for that purpose.
func (d *decoder) checkFunction(n *document.Node, what model.Purpose) {
	known := d.kinds.Functions[what]
	if !slices.Contains(known, n.Text) && !d.kinds.AcceptUnknown {
		none := "the program has registered no"
		if d.complete {
			none = "there is no"
		}
		d.Add(n, "%s %s %s, %s", none, what, document.Quoted(n.Text), d.Instead(n.Text, known, "there are none"))
	}
}

// decodeValue decodes n into v.
func (d *decoder) decodeValue(n *document.Node, v reflect.Value, r model.Rule) {
	t := v.Type()
	if t == model.AnyType {
		d.decodeAny(n, v)
		return
	}
	kind := t.Kind()
	if model.IsText(t) {
		kind = reflect.String // decoded from one text
	}
	switch kind {
	case reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		d.decodeValue(n, v.Elem(), r)
	case reflect.Struct:
		d.decodeOptions(n, v.Addr())
	case reflect.Slice:
		if n.Kind != document.List {
			d.Add(n, "must be a list, found %v", n)
			return
		}
		v.Set(reflect.MakeSlice(t, len(n.Items), len(n.Items)))
		for i, item := range n.Items {
			d.decodeValue(item, v.Index(i), r)
		}
	case reflect.Map:
		if n.Kind != document.Mapping {
			d.Add(n, "must be a mapping, found %v", n)
			return
		}
		v.Set(reflect.MakeMapWithSize(t, len(n.Entries)))
		for _, e := range n.Entries {
			value := reflect.New(t.Elem()).Elem()
			d.decodeValue(e.Value, value, r)
			v.SetMapIndex(reflect.ValueOf(e.Key.Text).Convert(t.Key()), value)
		}
	default:
		if problem := setScalar(v, n, r); problem != "" {
			d.Add(n, "%s", problem)
		} else if r.Refers != "" && d.section != nil {
			d.section.references = append(d.section.references, reference{n, r.Refers})
		}
	}
}

// decodeAny decodes whatever n has into v, as encoding/json does: numbers are float64.
func (d *decoder) decodeAny(n *document.Node, v reflect.Value) {
	switch n.Kind {
	case document.Null: // v stays nil
	case document.Mapping:
		decodeAs[map[string]any](d, n, v)
	case document.List:
		decodeAs[[]any](d, n, v)
	case document.Boolean:
		decodeAs[bool](d, n, v)
	case document.Integer, document.Decimal:
		decodeAs[float64](d, n, v)
	default:
		decodeAs[string](d, n, v)
	}
}

// decodeAs decodes n into a T, and sets v to it.
func decodeAs[T any](d *decoder, n *document.Node, v reflect.Value) {
	made := reflect.New(reflect.TypeFor[T]()).Elem()
	d.decodeValue(n, made, model.Rule{})
	v.Set(made)
}
