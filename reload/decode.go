package reload

import (
	"maps"
	"reflect"
	"slices"
)

// A decoder turns nodes into options. It goes on after a problem, to find them
// all.
type decoder struct {
	problems
	suggester
	kinds *Kinds
	// What is looked up when everything is decoded.
	limiterRefs  []limiterRef
	budgetRefs   []budgetRef
	pipelineRefs []reference
	in           string // the shared limiter that is being decoded, if it is one
	pipeline     string // the pipeline that is being decoded
}

// extras are fields of a mapping that are not fields of the struct it is decoded
// into.
type extras map[string]func(value *node, path string)

// options decodes a mapping into the struct that v points to, and validates it. It
// returns where everything was, nil if n is no mapping.
func (d *decoder) options(n *node, v reflect.Value, path string, more extras) *structure {
	if n.kind != mapping {
		d.add(n, path, "must be a mapping of options, found %v%s", n, hintAtDefaults(n))
		return nil
	}
	s := &structure{at: n, path: path, typ: v.Elem().Type(), fields: fieldsOf(v.Elem().Type()), values: make(map[string]*node), failed: make(map[string]bool)}
	for _, e := range n.entries {
		if decode := more[e.key.text]; decode != nil {
			decode(e.value, child(path, e.key.text))
			continue
		}
		if f := s.field(e.key.text); f != nil {
			before := len(d.problems)
			d.field(f, v.Elem().FieldByIndex(f.index), e, path)
			s.values[f.name] = e.value
			if len(d.problems) > before {
				s.failed[f.name] = true
			}
			continue
		}
		d.unknownField(e.key, path, s.fields, more)
	}
	for _, f := range s.fields {
		if f.required && !f.function && s.values[f.name] == nil && n.get(f.name) == nil {
			d.add(n, path, "%s is missing", f.name)
			s.failed[f.name] = true
		}
	}
	d.validate(v, s)
	return s
}

func hintAtDefaults(n *node) string {
	if n.kind == null {
		return "; {} is one without any"
	}
	return ""
}

// A structure is a mapping that was decoded into a struct.
type structure struct {
	at     *node
	path   string
	typ    reflect.Type     // of the struct
	fields []field          // of the struct
	values map[string]*node // of the fields that are there, by name
	failed map[string]bool  // fields that have a problem already, by name
}

func (s *structure) field(name string) *field {
	i := slices.IndexFunc(s.fields, func(f field) bool { return f.name == name && !f.function })
	if i < 0 {
		return nil
	}
	return &s.fields[i]
}

// field decodes one field.
func (d *decoder) field(f *field, v reflect.Value, e entry, path string) {
	path = child(path, f.name)
	if f.special(e.value, v) {
		return
	}
	before := len(d.problems)
	d.value(e.value, v, path, f.rule)
	if len(d.problems) == before && f.zero != "" && v.IsZero() {
		d.add(e.value, path, "0 would stand for the default, which is %s: leave %s out for that%s", f.zero, f.name, f.orOff())
	}
	if f.names != "" && e.value.kind == text {
		d.function(e.value, path, f.names)
	}
}

// special sets what a word stands for, or -1, where it stands for something.
func (r rule) special(n *node, v reflect.Value) bool {
	for _, w := range r.words {
		if n.kind == text && n.text == w.text || w == off && n.kind == integer && n.text == "-1" {
			return w.set(v)
		}
	}
	return false
}

// set sets v to what the word stands for, if it can be.
func (w word) set(v reflect.Value) bool {
	switch {
	case v.CanInt():
		v.SetInt(w.value)
	case v.CanFloat():
		v.SetFloat(float64(w.value))
	default:
		return false
	}
	return true
}

func (r rule) orOff() string {
	if slices.Contains(r.words, off) {
		return `, or write "off" for none`
	}
	return ""
}

func (d *decoder) unknownField(key *node, path string, fields []field, more extras) {
	var names []string
	for _, f := range fields {
		if f.function && f.name == key.text && more[f.name] == nil {
			d.add(key, child(path, key.text), "%s is a function of the program's, a file cannot set it", shortened(key.text))
			return
		}
		if !f.function {
			names = append(names, f.name)
		}
	}
	names = append(names, slices.Collect(maps.Keys(more))...)
	slices.Sort(names)
	d.add(key, path, "unknown field %s, %s", shortened(key.text), d.instead(key.text, names, "there are none here"))
}

// value decodes n into v, which can be set.
func (d *decoder) value(n *node, v reflect.Value, path string, r rule) {
	t := v.Type()
	switch {
	case isText(t):
		d.text(n, v, path)
	case t == durationType:
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

func (d *decoder) list(n *node, v reflect.Value, path string, r rule) {
	if n.kind != list {
		d.add(n, path, "must be a list, found %v", n)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		d.value(item, v.Index(i), element(path, i), r)
	}
}

func (d *decoder) mapOf(n *node, v reflect.Value, path string, r rule) {
	if n.kind != mapping {
		d.add(n, path, "must be a mapping, found %v", n)
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.entries)))
	for _, e := range n.entries {
		value := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, value, child(path, e.key.text), r)
		v.SetMapIndex(reflect.ValueOf(e.key.text).Convert(v.Type().Key()), value)
	}
}
