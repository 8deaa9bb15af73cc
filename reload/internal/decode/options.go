package decode

import (
	"reflect"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// oneKind returns the only entry of a mapping whose key is none of also, if it is one of the kinds or AcceptUnknown
// applies to it. Otherwise it adds a problem and returns nil.
func (d *decoder) oneKind(n *document.Node, what string, kinds []string, also ...string) *document.Node {
	if n.Tag != document.Mapping {
		d.Add(n, "must be a mapping of a kind of %s to its options, found %v; the kinds are %s", what, n, strings.Join(kinds, ", "))
		return nil
	}
	var kind, second *document.Node
	for e := range n.Children() {
		switch key := e.Key.Value; {
		case slices.Contains(also, key):
		case also != nil && !slices.Contains(kinds, key) && slices.Contains(also, document.Nearest(key, append(also, kinds...))):
			d.unknownField(e, also...)
		case kind == nil:
			kind = e
		case second == nil:
			second = e
			d.Add(document.Key{Node: e}, "a %s has one kind, found %s after %s; is the indentation right?", what, document.Quoted(key), document.Quoted(kind.Key.Value))
		}
	}
	if kind == nil {
		d.Add(n, "the kind of %s is missing, it is one of %s", what, strings.Join(kinds, ", "))
		return nil
	}
	key := kind.Key.Value
	if !slices.Contains(kinds, key) && (what == eachName || d.section != nil || !d.acceptsUnknown(key, kinds)) {
		d.Add(document.Key{Node: kind}, "unknown kind of %s %s, %s", what, document.Quoted(key), d.Instead(key, kinds, ""))
		return nil
	}
	if second != nil {
		return nil
	}
	return kind
}

// acceptsUnknown reports whether AcceptUnknown applies to a name: it is not close to a known one.
func (d *decoder) acceptsUnknown(name string, known []string) bool {
	return d.kinds.AcceptUnknown && !slices.Contains(known, name) && document.Nearest(name, known) == ""
}

// A structure is a mapping that was decoded into a struct.
type structure struct {
	node   *document.Node
	typ    reflect.Type    // of the struct
	failed map[string]bool // the names of fields that have a problem
}

// decodeOptions decodes a mapping into the struct that v points to, and validates it. It returns nil if n is no
// mapping. The caller decodes the fields with the names in also.
func (d *decoder) decodeOptions(n *document.Node, v reflect.Value, also ...string) *structure {
	if n.Tag != document.Mapping {
		hint := ""
		if n.Tag == document.Null {
			hint = "; {} is one without any"
		}
		d.Add(n, "must be a mapping of options, found %v%s", n, hint)
		return nil
	}
	s := &structure{node: n, typ: v.Elem().Type()}
	fields := model.FieldsOf(s.typ)
	if what, is := model.OneOf(s.typ); is {
		if d.oneKind(n, what, namesOf(fields, nil)) == nil {
			return s
		}
	}
	present := make([]bool, len(fields))
	for e := range n.Children() {
		i := slices.IndexFunc(fields, func(f model.Field) bool { return f.Name == e.Key.Value })
		switch {
		case i < 0 && slices.Contains(also, e.Key.Value):
		case i < 0:
			d.unknownField(e, namesOf(fields, also)...)
		case fields[i].Function:
			d.Add(document.Entry{Node: e}, "%s can only be set by the program, not in a file", document.Quoted(e.Key.Value))
		default:
			f := &fields[i]
			present[i] = true
			before := len(d.Problems)
			d.decodeField(f, e, v.Elem().FieldByIndex(f.Index))
			if len(d.Problems) > before {
				s.fail(f.Name)
			}
			if f.Fixed && d.section != nil {
				at := document.Entry{Node: e}.Place()
				d.section.Places[at.Path] = at
			}
		}
	}
	for i, f := range fields {
		if f.Required && !f.Function && !present[i] {
			d.Add(n, "%s is missing", f.Name)
			s.fail(f.Name)
		}
	}
	d.addInvalid(validate(v.Interface()), s)
	return s
}

func (s *structure) fail(name string) {
	if s.failed == nil {
		s.failed = make(map[string]bool)
	}
	s.failed[name] = true
}

// namesOf returns the sorted names of the fields that a file can have, and the names in also.
func namesOf(fields []model.Field, also []string) []string {
	names := slices.Clone(also)
	for _, f := range fields {
		if !f.Function {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return names
}

// decodeField decodes the value n of f into v.
func (d *decoder) decodeField(f *model.Field, n *document.Node, v reflect.Value) {
	off := slices.Contains(f.Words, model.Off)
	for _, w := range f.Words {
		written := n.Tag == document.Text && n.Value == w.Text || w == model.Off && n.Tag == document.Integer && n.Value == "-1"
		if written && w.Set(v) {
			return
		}
	}
	before := len(d.Problems)
	d.decodeValue(n, v, f.Rule)
	if f.Purpose != "" && n.Tag == document.Text {
		d.checkFunction(n, f.Purpose)
	}
	switch {
	case len(d.Problems) > before:
	case f.Default != "" && v.IsZero():
		what, none := "0", ""
		if v.Kind() == reflect.String {
			what = "empty"
		}
		if off {
			none = `, or write "off" for none`
		}
		d.Add(n, "must not be %s; for the default, which is %s, leave %s out%s", what, f.Default, f.Name, none)
	case off && f.Type == model.DurationType && v.Int() == model.Off.Value:
		d.Add(n, `must be "off" or more than 0, found %v`, n)
	default:
		d.checkBounds(f, n, v)
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
	case f.HasLeast && number < f.Least && f.Type == model.DurationType && f.Least == 1:
		d.Add(n, "must be more than 0, found %v", document.Beginning(n.Value))
	case f.HasLeast && number < f.Least:
		d.Add(n, "must be at least %v, found %v", f.Least, document.Beginning(n.Value))
	case f.Most != 0 && number > f.Most:
		d.Add(n, "must be at most %v, found %v", f.Most, document.Beginning(n.Value))
	}
}

// checkFunction checks that n names something that the program has registered for that purpose.
func (d *decoder) checkFunction(n *document.Node, what model.Purpose) {
	known := d.kinds.Functions[what]
	if !slices.Contains(known, n.Value) && !d.kinds.AcceptUnknown {
		none := "the program has registered no"
		if d.complete {
			none = "there is no"
		}
		d.Add(n, "%s %s %s, %s", none, what, document.Quoted(n.Value), d.Instead(n.Value, known, "there are none"))
	}
}

// decodeValue decodes n into v.
func (d *decoder) decodeValue(n *document.Node, v reflect.Value, r model.Rule) {
	t := v.Type()
	kind := t.Kind()
	if model.IsText(t) {
		kind = reflect.String // decoded from one text
	}
	switch kind {
	case reflect.Interface:
		if made := anyOf(n); made.IsValid() {
			d.decodeValue(n, made, model.Rule{})
			v.Set(made)
		}
	case reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		d.decodeValue(n, v.Elem(), r)
	case reflect.Struct:
		d.decodeOptions(n, v.Addr())
	case reflect.Slice:
		if n.Tag != document.List {
			d.Add(n, "must be a list, found %v", n)
			return
		}
		v.Set(reflect.MakeSlice(t, len(n.Content), len(n.Content)))
		i := 0
		for item := range n.Children() {
			d.decodeValue(item, v.Index(i), r)
			i++
		}
	case reflect.Map:
		if n.Tag != document.Mapping {
			d.Add(n, "must be a mapping, found %v", n)
			return
		}
		v.Set(reflect.MakeMap(t))
		for e := range n.Children() {
			value := reflect.New(t.Elem()).Elem()
			d.decodeValue(e, value, r)
			v.SetMapIndex(reflect.ValueOf(e.Key.Value).Convert(t.Key()), value)
		}
	default:
		if problem := setScalar(v, n, r); problem != "" {
			d.Add(n, "%s", problem)
		} else if r.Refers != "" && d.section != nil {
			d.section.references = append(d.section.references, reference{n, r.Refers})
		}
	}
}

// anyOf returns a new value of the type that encoding/json decodes n into, or the zero Value for null.
func anyOf(n *document.Node) reflect.Value {
	var made any
	switch n.Tag {
	case document.Null:
		return reflect.Value{}
	case document.Mapping:
		made = new(map[string]any)
	case document.List:
		made = new([]any)
	case document.Boolean:
		made = new(bool)
	case document.Text:
		made = new(string)
	default:
		made = new(float64)
	}
	return reflect.ValueOf(made).Elem()
}
