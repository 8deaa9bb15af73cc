package model

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
type Field struct {
	GoName   string
	Name     string // in a file
	Index    []int
	Type     reflect.Type
	Required bool
	Function bool // tagged "-": it cannot be written
	Rule
}

// fieldsOf returns the fields of a struct in the order of their declaration, those
// of embedded structs among them, where no field of its own has the name. Tags say
// what they would say to package yaml; without omitempty a field is required.
//
// The fields must not be changed: they are kept for the next time.
func FieldsOf(t reflect.Type) []Field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]Field)
	}
	all := findFields(t)
	knownFields.Store(t, all)
	return all
}

// knownFields has the fields of types, as many as a program has registered.
var knownFields sync.Map

func findFields(t reflect.Type) []Field {
	var all []Field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options := tagOf(f)
		switch {
		case f.Anonymous && (name == "" || strings.Contains(options, "inline")) && f.Type.Kind() == reflect.Struct:
			for _, inner := range FieldsOf(f.Type) {
				inner.Index = append([]int{i}, inner.Index...)
				all = put(all, inner, false)
			}
		case !f.IsExported():
		case name == "-":
			all = put(all, Field{GoName: f.Name, Name: snake(f.Name), Function: true}, true)
		default:
			all = put(all, Field{
				GoName:   f.Name,
				Name:     name,
				Index:    f.Index,
				Type:     f.Type,
				Required: !strings.Contains(options, "omitempty"),
				Rule:     ruleOf(t, f),
			}, true)
		}
	}
	return all
}

// put adds f. Where there is one of that name it stays, unless f hides it.
func put(all []Field, f Field, hides bool) []Field {
	for i := range all {
		if all[i].Name == f.Name {
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
	DurationType    = reflect.TypeFor[time.Duration]()
	unmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	marshalerType   = reflect.TypeFor[encoding.TextMarshaler]()
)

// isText tells whether values of the type are written as text that they read
// themselves.
func IsText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(unmarshalerType) }

// decodable returns what in a type cannot be decoded from a file, or nil.
func Decodable(t reflect.Type, inside ...reflect.Type) error {
	if slices.Contains(inside, t) {
		return fmt.Errorf("%v contains itself", t)
	}
	if IsText(t) {
		return nil
	}
	inside = append(inside, t)
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return nil
	case reflect.Pointer, reflect.Slice:
		return Decodable(t.Elem(), inside...)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return fmt.Errorf("%v: the keys of a map must be strings", t)
		}
		return Decodable(t.Elem(), inside...)
	case reflect.Struct:
		return decodableFields(t, inside)
	default:
		return fmt.Errorf("%v cannot be written in a file", t)
	}
}

func decodableFields(t reflect.Type, inside []reflect.Type) error {
	for _, f := range FieldsOf(t) {
		if f.Function {
			continue
		}
		if err := Decodable(f.Type, inside...); err != nil {
			return fmt.Errorf("field %s: %w", f.GoName, err)
		}
	}
	return nil
}

// enumOf returns the texts of a type that is one of a few, in their order, and nil
// for any other type.
func EnumOf(t reflect.Type) []string {
	if !IsText(t) || !t.Implements(marshalerType) || !reflect.Zero(t).CanUint() {
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

func (f Field) IsName() bool {
	return f.Name == "name" && !f.Function && f.Type.Kind() == reflect.String
}

// written is a value as it could be written in a file, or nearly.
func (f Field) Written(v reflect.Value) string {
	for _, w := range f.Words {
		if v.CanInt() && v.Int() == w.Value || v.CanFloat() && v.Float() == float64(w.Value) {
			return w.Text
		}
	}
	return fmt.Sprint(reflect.Indirect(v))
}
