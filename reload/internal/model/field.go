package model

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Field is a field of an options struct.
type Field struct {
	GoName   string
	Name     string // in a file
	Index    []int
	Type     reflect.Type
	Required bool
	Function bool // tagged "-", as functions are: a file cannot set it
	Rule
}

// FieldsOf returns the fields of a struct in the order of their declaration, including the fields of embedded structs
// that the struct does not hide. A yaml tag, or else a json tag, is read as package yaml reads a yaml tag. In addition,
// a field without omitempty is required. The result is shared: it must not be changed.
func FieldsOf(t reflect.Type) []Field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]Field)
	}
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
	knownFields.Store(t, all)
	return all
}

// knownFields has the fields of each struct type that FieldsOf was called with.
var knownFields sync.Map

// put adds f to all. If all has a field of that name, f replaces it if hides is true, and is dropped otherwise. If f is tagged "-"
// and hides a field that a file could set, there is no such field: a function is a field of the program, and f is none.
func put(all []Field, f Field, hides bool) []Field {
	for i := range all {
		if all[i].Name == f.Name {
			switch {
			case hides && f.Function && !all[i].Function:
				return slices.Delete(all, i, i+1)
			case hides:
				all[i] = f
			}
			return all
		}
	}
	return append(all, f)
}

// tagOf returns the name of a field in a file and the options of its tag.
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

// snake turns MaxRetries into max_retries.
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
	// AnyType is the type of a value that can be whatever JSON has: nil, a bool, float64, string, []any or map[string]any.
	AnyType = reflect.TypeFor[any]()
	// DurationType is the type of [time.Duration].
	DurationType    = reflect.TypeFor[time.Duration]()
	unmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	marshalerType   = reflect.TypeFor[encoding.TextMarshaler]()
)

// IsText reports whether the type has an UnmarshalText method.
func IsText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(unmarshalerType) }

// Decodable returns an error if a part of the options of a kind cannot be decoded from a file, or has a tag that is
// wrong. The error names that part.
func Decodable(t reflect.Type) error { return typeChecker{}.check(t) }

// DecodableSection is Decodable for the options of a section.
func DecodableSection(t reflect.Type) error { return typeChecker{section: t}.check(t) }

// A typeChecker checks the types in a type.
type typeChecker struct {
	section   reflect.Type   // the options of the section; nil: of a kind
	inside    []reflect.Type // the types around
	inElement bool           // of a slice, a map or a pointer
}

func (c typeChecker) check(t reflect.Type) error {
	if i := slices.Index(c.inside, t); i >= 0 {
		if slices.ContainsFunc(c.inside[i:], func(t reflect.Type) bool { return t.Kind() == reflect.Struct }) {
			return nil // a struct can contain itself, as in a tree
		}
		return fmt.Errorf("%v contains itself", t)
	}
	if t == AnyType || IsText(t) {
		return nil
	}
	c.inside = append(slices.Clone(c.inside), t)
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return nil
	case reflect.Pointer, reflect.Slice:
		c.inElement = true
		return c.check(t.Elem())
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return fmt.Errorf("%v: the keys of a map must be strings", t)
		}
		c.inElement = true
		return c.check(t.Elem())
	case reflect.Struct:
		return c.checkFields(t)
	default:
		return fmt.Errorf("%v cannot be written in a file", t)
	}
}

func (c typeChecker) checkFields(t reflect.Type) error {
	for _, f := range FieldsOf(t) {
		if f.Function {
			continue
		}
		if err := c.check(f.Type); err != nil {
			return fmt.Errorf("field %s: %w", f.GoName, err)
		}
		if err := c.checkRule(f); err != nil {
			return fmt.Errorf("field %s: %w", f.GoName, err)
		}
	}
	return nil
}

// checkRule checks what the tag reload of a field says.
func (c typeChecker) checkRule(f Field) error {
	switch field, within := strings.CutPrefix(f.Refers, "."); {
	case len(f.wrong) > 0:
		return fmt.Errorf("the tag reload cannot have %q", f.wrong[0])
	case (f.Refers != "" || f.Fixed) && c.section == nil:
		return errors.New("the tag reload has what only a section can have")
	case f.Fixed && c.inElement:
		return errors.New("what is in a list, a map or a pointer cannot be fixed, only all of it")
	case f.Refers != "" && elementOf(f.Type).Kind() != reflect.String:
		return errors.New("only texts can be names")
	case within && !slices.ContainsFunc(FieldsOf(c.section), func(of Field) bool { return of.Name == field && of.Type.Kind() == reflect.Map }):
		return fmt.Errorf("the section has no map %s", field)
	}
	return nil
}

// elementOf returns the type of what is in lists, maps and pointers of the type.
func elementOf(t reflect.Type) reflect.Type {
	for !IsText(t) && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		t = t.Elem()
	}
	return t
}

// Recursive reports whether values of the struct can contain values of the same struct.
func Recursive(t reflect.Type) bool {
	seen := make(map[reflect.Type]bool)
	var reaches func(in reflect.Type) bool
	reaches = func(in reflect.Type) bool {
		in = elementOf(in)
		if in == t {
			return true
		}
		if in.Kind() != reflect.Struct || IsText(in) || seen[in] {
			return false
		}
		seen[in] = true
		return slices.ContainsFunc(FieldsOf(in), func(f Field) bool { return !f.Function && reaches(f.Type) })
	}
	return slices.ContainsFunc(FieldsOf(t), func(f Field) bool { return !f.Function && reaches(f.Type) })
}

// EnumOf returns the texts of an enum, in the order of their numbers. An enum is an unsigned number type with the
// methods MarshalText and UnmarshalText. For any other type EnumOf returns nil.
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

// IsName reports whether the field is the name of a strategy in telemetry.
func (f Field) IsName() bool {
	return f.Name == "name" && !f.Function && f.Type.Kind() == reflect.String
}

// Format returns a value of the field for Explain, with a word if there is one for the value.
func (f Field) Format(v reflect.Value) string {
	for _, w := range f.Words {
		if v.CanInt() && v.Int() == w.Value || v.CanFloat() && v.Float() == float64(w.Value) {
			return w.Text
		}
	}
	return fmt.Sprint(reflect.Indirect(v))
}
