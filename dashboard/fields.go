package dashboard

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/durationtext"
)

// fields are options or figures in the order in which they are shown. In JSON they are an object.
type fields []field

// A field is one option with its value as text.
type field struct{ Name, Value string }

// MarshalJSON implements [json.Marshaler].
func (f fields) MarshalJSON() ([]byte, error) {
	object := map[string]string{}
	for _, each := range f {
		object[each.Name] = each.Value
	}
	return json.Marshal(object)
}

// String returns the fields in one line: "token_limit 10, replenishment_period 1s".
func (f fields) String() string {
	parts := make([]string, len(f))
	for i, each := range f {
		parts[i] = strings.TrimSpace(each.Name + " " + each.Value)
	}
	return strings.Join(parts, ", ")
}

// Bounds of what is shown of options, which can be of any type of the program.
const (
	maxFields     = 40
	maxFieldDepth = 4
	maxFieldText  = 200
	maxElements   = 10
)

// fieldsOf returns the options in v by the names that they have in a file. It leaves out what is not in a file, such as
// functions, and what has its default. It can call methods of the program.
func fieldsOf(v any) fields {
	var f fields
	f.add("", reflect.ValueOf(v), 0)
	return f
}

// add adds v, whose name is name, or its fields.
func (f *fields) add(name string, v reflect.Value, depth int) {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		if _, ok := textOfValue(v); ok {
			break
		}
		v = v.Elem()
	}
	if !v.IsValid() || len(*f) >= maxFields || depth > maxFieldDepth {
		return
	}
	if text, ok := textOfValue(v); ok {
		f.addText(name, text)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		f.addStruct(name, v, depth)
	case reflect.Slice, reflect.Array:
		f.addText(name, listOf(v, depth+1))
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, k := range keys[:min(len(keys), maxElements)] {
			f.add(join(name, fmt.Sprint(k)), v.MapIndex(k), depth+1)
		}
	}
}

func (f *fields) addText(name, text string) {
	*f = append(*f, field{shorten(name, maxFieldText), shorten(text, maxFieldText)})
}

// plainNames are fields that group others and say nothing themselves.
var plainNames = []string{"limits", "how", "each"}

func (f *fields) addStruct(name string, v reflect.Value, depth int) {
	for i := range v.NumField() {
		t := v.Type().Field(i)
		own, omitEmpty, skip := nameOf(t)
		if skip || omitEmpty && v.Field(i).IsZero() {
			continue
		}
		path := join(name, own)
		if t.Anonymous && t.Tag.Get("yaml") == "" && t.Tag.Get("json") == "" || slices.Contains(plainNames, own) {
			path = name
		}
		f.add(path, v.Field(i), depth+1)
	}
}

func join(outer, inner string) string {
	if outer == "" {
		return inner
	}
	return outer + "." + inner
}

// nameOf returns the name of a field in a file.
func nameOf(f reflect.StructField) (name string, omitEmpty, skip bool) {
	if !f.IsExported() {
		return "", false, true
	}
	tag, ok := f.Tag.Lookup("yaml")
	if !ok {
		tag = f.Tag.Get("json")
	}
	name, rest, _ := strings.Cut(tag, ",")
	if name == "-" {
		return "", false, true
	}
	if name == "" {
		name = strings.ToLower(f.Name)
	}
	return name, strings.Contains(rest, "omitempty") || strings.Contains(rest, "omitzero"), false
}

// textOfValue returns v as text if it is not made of others.
func textOfValue(v reflect.Value) (text string, ok bool) {
	if !v.IsValid() || !v.CanInterface() {
		return "", false
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return durationtext.Of(x), true
	case time.Time:
		return x.UTC().Format(time.RFC3339), true
	case encoding.TextMarshaler:
		if v.Kind() == reflect.Pointer && v.IsNil() {
			return "", false
		}
		b, err := x.MarshalText()
		return string(b), err == nil
	}
	if v.Kind() < reflect.Array || v.Kind() == reflect.String { // a bool or a number
		return fmt.Sprint(v), true
	}
	return "", false
}

// listOf returns the first elements of a list in one line. depth is that of the elements.
func listOf(v reflect.Value, depth int) string {
	var parts []string
	for i := range min(v.Len(), maxElements) {
		var f fields
		f.add("", v.Index(i), depth)
		parts = append(parts, f.String())
	}
	if v.Len() > maxElements {
		parts = append(parts, "…")
	}
	return "[" + strings.Join(parts, "; ") + "]"
}
