package reload

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// A field is a field of an options struct that a file can set, or could if it
// were no function.
type field struct {
	goName   string
	name     string // in a file
	index    []int
	typ      reflect.Type
	required bool
	function bool // tagged "-": it cannot be written
	rule
}

// fieldsOf returns the fields of a struct in the order of their declaration, those
// of embedded structs among them, where no field of its own has the name. Tags say
// what they would say to package yaml; without omitempty a field is required.
//
// The fields must not be changed: they are kept for the next time.
func fieldsOf(t reflect.Type) []field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]field)
	}
	all := findFields(t)
	knownFields.Store(t, all)
	return all
}

// knownFields has the fields of types, as many as a program has registered.
var knownFields sync.Map

func findFields(t reflect.Type) []field {
	var all []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options := tagOf(f)
		switch {
		case f.Anonymous && (name == "" || strings.Contains(options, "inline")) && f.Type.Kind() == reflect.Struct:
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				all = put(all, inner, false)
			}
		case !f.IsExported():
		case name == "-":
			all = put(all, field{goName: f.Name, name: snake(f.Name), function: true}, true)
		default:
			all = put(all, field{
				goName:   f.Name,
				name:     name,
				index:    f.Index,
				typ:      f.Type,
				required: !strings.Contains(options, "omitempty"),
				rule:     ruleOf(t, f),
			}, true)
		}
	}
	return all
}

// put adds f. Where there is one of that name it stays, unless f hides it.
func put(all []field, f field, hides bool) []field {
	for i := range all {
		if all[i].name == f.name {
			if hides {
				all[i] = f
			}
			return all
		}
	}
	return append(all, f)
}

// tagOf returns the name of a field in a file and what else its tag says.
func tagOf(f reflect.StructField) (name, options string) {
	tag, ok := f.Tag.Lookup("yaml")
	if !ok {
		tag = f.Tag.Get("json")
	}
	name, options, _ = strings.Cut(tag, ",")
	if name == "" && !f.Anonymous {
		name = snake(f.Name)
	}
	return name, options
}

// snake makes max_retries of MaxRetries.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

var (
	durationType    = reflect.TypeFor[time.Duration]()
	unmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	marshalerType   = reflect.TypeFor[encoding.TextMarshaler]()
)

// isText tells whether values of the type are written as text that they read
// themselves.
func isText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(unmarshalerType) }

// decodable returns what in a type cannot be decoded from a file, or nil.
func decodable(t reflect.Type, inside ...reflect.Type) error {
	if slices.Contains(inside, t) {
		return fmt.Errorf("%v contains itself", t)
	}
	if isText(t) {
		return nil
	}
	inside = append(inside, t)
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return nil
	case reflect.Pointer, reflect.Slice:
		return decodable(t.Elem(), inside...)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return fmt.Errorf("%v: the keys of a map must be strings", t)
		}
		return decodable(t.Elem(), inside...)
	case reflect.Struct:
		return decodableFields(t, inside)
	default:
		return fmt.Errorf("%v cannot be written in a file", t)
	}
}

func decodableFields(t reflect.Type, inside []reflect.Type) error {
	for _, f := range fieldsOf(t) {
		if f.function {
			continue
		}
		if err := decodable(f.typ, inside...); err != nil {
			return fmt.Errorf("field %s: %w", f.goName, err)
		}
	}
	return nil
}

// enumOf returns the texts of a type that is one of a few, in their order, and nil
// for any other type.
func enumOf(t reflect.Type) []string {
	if !isText(t) || !t.Implements(marshalerType) || !reflect.Zero(t).CanUint() {
		return nil
	}
	var texts []string
	for i := range uint64(64) {
		v := reflect.New(t).Elem()
		v.SetUint(i)
		text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			break
		}
		texts = append(texts, string(text))
	}
	return texts
}

func (f field) isName() bool {
	return f.name == "name" && !f.function && f.typ.Kind() == reflect.String
}

// written is a value as it could be written in a file, or nearly.
func (f field) written(v reflect.Value) string {
	for _, w := range f.words {
		if v.CanInt() && v.Int() == w.value || v.CanFloat() && v.Float() == float64(w.value) {
			return w.text
		}
	}
	return fmt.Sprint(reflect.Indirect(v))
}
