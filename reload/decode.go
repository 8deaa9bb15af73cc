package reload

import (
	"maps"
	"reflect"
	"slices"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// A decoder turns nodes into the model. It goes on after a problem, to find all of them.
type decoder struct {
	document.Problems
	document.Suggester
	kinds *Kinds
	// The names that refer resolves when everything is decoded.
	limiterRefs  []limiterRef
	budgetRefs   []budgetRef
	pipelineRefs []reference
	in           string // the shared limiter that is being decoded; "": none
	pipeline     string // the pipeline that is being decoded
}

// extras decode fields of a mapping that are not fields of the struct that it is decoded into.
type extras map[string]func(value *document.Node, path string)

// options decodes a mapping into the struct that v points to, and validates it. It returns nil if n is no mapping.
func (d *decoder) options(n *document.Node, v reflect.Value, path string, more extras) *structure {
	if n.Kind != document.Mapping {
		d.Add(n, path, "must be a mapping of options, found %v%s", n, hintAtDefaults(n))
		return nil
	}
	s := &structure{at: n, path: path, typ: v.Elem().Type(), fields: model.FieldsOf(v.Elem().Type()), values: make(map[string]*document.Node), failed: make(map[string]bool)}
	for _, e := range n.Entries {
		if decode := more[e.Key.Text]; decode != nil {
			decode(e.Value, document.Child(path, e.Key.Text))
			continue
		}
		if f := s.field(e.Key.Text); f != nil {
			before := len(d.Problems)
			d.field(f, v.Elem().FieldByIndex(f.Index), e, path)
			s.values[f.Name] = e.Value
			if len(d.Problems) > before {
				s.failed[f.Name] = true
			}
			continue
		}
		d.unknownField(e.Key, path, s.fields, more)
	}
	for _, f := range s.fields {
		if f.Required && !f.Function && s.values[f.Name] == nil && n.Get(f.Name) == nil {
			d.Add(n, path, "%s is missing", f.Name)
			s.failed[f.Name] = true
		}
	}
	d.validate(v, s)
	return s
}

func hintAtDefaults(n *document.Node) string {
	if n.Kind == document.Null {
		return "; {} is one without any"
	}
	return ""
}

// A structure is a mapping that was decoded into a struct.
type structure struct {
	at     *document.Node
	path   string
	typ    reflect.Type              // of the struct
	fields []model.Field             // of the struct
	values map[string]*document.Node // of the fields that the file has, by name
	failed map[string]bool           // the names of fields that have a problem
}

func (s *structure) field(name string) *model.Field {
	i := slices.IndexFunc(s.fields, func(f model.Field) bool { return f.Name == name && !f.Function })
	if i < 0 {
		return nil
	}
	return &s.fields[i]
}

// field decodes the value of f into v.
func (d *decoder) field(f *model.Field, v reflect.Value, e document.Entry, path string) {
	path = document.Child(path, f.Name)
	if special(f.Rule, e.Value, v) {
		return
	}
	before := len(d.Problems)
	d.value(e.Value, v, path, f.Rule)
	if len(d.Problems) == before && f.Zero != "" && v.IsZero() {
		d.Add(e.Value, path, "0 would stand for the default, which is %s: leave %s out for that%s", f.Zero, f.Name, orOff(f.Rule))
	}
	if f.Names != "" && e.Value.Kind == document.Text {
		d.function(e.Value, path, f.Names)
	}
}

// special sets v to the number that a word stands for, and reports whether n is one of the words or, for "off", -1.
func special(r model.Rule, n *document.Node, v reflect.Value) bool {
	for _, w := range r.Words {
		if n.Kind == document.Text && n.Text == w.Text || w == model.Off && n.Kind == document.Integer && n.Text == "-1" {
			return w.Set(v)
		}
	}
	return false
}

func orOff(r model.Rule) string {
	if slices.Contains(r.Words, model.Off) {
		return `, or write "off" for none`
	}
	return ""
}

func (d *decoder) unknownField(key *document.Node, path string, fields []model.Field, more extras) {
	var names []string
	for _, f := range fields {
		if f.Function && f.Name == key.Text && more[f.Name] == nil {
			d.Add(key, document.Child(path, key.Text), "%s is a function of the program's, a file cannot set it", document.Quoted(key.Text))
			return
		}
		if !f.Function {
			names = append(names, f.Name)
		}
	}
	names = append(names, slices.Collect(maps.Keys(more))...)
	slices.Sort(names)
	d.Add(key, path, "unknown field %s, %s", document.Quoted(key.Text), d.Instead(key.Text, names, "there are none here"))
}

// value decodes n into v.
func (d *decoder) value(n *document.Node, v reflect.Value, path string, r model.Rule) {
	t := v.Type()
	switch {
	case model.IsText(t):
		d.text(n, v, path)
	case t == model.DurationType:
		d.duration(n, v, path, r)
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		d.value(n, v.Elem(), path, r)
	case t.Kind() == reflect.Struct:
		d.options(n, v.Addr(), path, nil)
	case t.Kind() == reflect.Slice:
		d.list(n, v, path, r)
	case t.Kind() == reflect.Map:
		d.mapOf(n, v, path, r)
	default:
		d.scalar(n, v, path, r)
	}
}

func (d *decoder) list(n *document.Node, v reflect.Value, path string, r model.Rule) {
	if n.Kind != document.List {
		d.Add(n, path, "must be a list, found %v", n)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items)))
	for i, item := range n.Items {
		d.value(item, v.Index(i), document.Element(path, i), r)
	}
}

func (d *decoder) mapOf(n *document.Node, v reflect.Value, path string, r model.Rule) {
	if n.Kind != document.Mapping {
		d.Add(n, path, "must be a mapping, found %v", n)
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Entries)))
	for _, e := range n.Entries {
		value := reflect.New(v.Type().Elem()).Elem()
		d.value(e.Value, value, document.Child(path, e.Key.Text), r)
		v.SetMapIndex(reflect.ValueOf(e.Key.Text).Convert(v.Type().Key()), value)
	}
}
