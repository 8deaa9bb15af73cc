package model

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Text returns a text that is the same for values that a file sets in the same way. Fields that a file cannot set make
// no difference.
func Text(value any) string {
	var b strings.Builder
	writeText(&b, reflect.ValueOf(value))
	return b.String()
}

func writeText(b *strings.Builder, v reflect.Value) {
	if !v.IsValid() {
		b.WriteString("nil")
		return
	}
	if t := v.Type(); t == DurationType || IsText(t) {
		b.WriteString(scalarText(v))
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		writeText(b, v.Elem())
	case reflect.Struct:
		writeStruct(b, v)
	case reflect.Slice, reflect.Array:
		b.WriteByte('[')
		for i := range v.Len() {
			writeText(b, v.Index(i))
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		b.WriteByte('{')
		for _, key := range keys {
			b.WriteString(strconv.Quote(key.String()))
			b.WriteByte(':')
			writeText(b, v.MapIndex(key))
			b.WriteByte(',')
		}
		b.WriteByte('}')
	default:
		b.WriteString(scalarText(v))
	}
}

func writeStruct(b *strings.Builder, v reflect.Value) {
	b.WriteByte('{')
	for _, f := range FieldsOf(v.Type()) {
		if !f.Function {
			b.WriteString(f.Name)
			b.WriteByte(':')
			writeText(b, v.FieldByIndex(f.Index))
			b.WriteByte(',')
		}
	}
	b.WriteByte('}')
}

// scalarText returns the text of a value that a file writes as one.
func scalarText(v reflect.Value) string {
	if m, ok := reflect.TypeAssert[encoding.TextMarshaler](addressed(v)); ok {
		if text, err := m.MarshalText(); err == nil {
			return strconv.Quote(string(text))
		}
	}
	if v.Kind() == reflect.String {
		return strconv.Quote(v.String())
	}
	return fmt.Sprintf("%#v", v)
}

// addressed returns a pointer to v or to a copy of it. It has the methods of the type and those of the pointer: MarshalText
// can be one of these, as that of [regexp.Regexp] is.
func addressed(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return v.Addr()
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p
}

// FixedTexts returns the texts of the fields with the rule Fixed that are in v or in the structs in it, by path. A field
// that a file leaves out has the text of its default.
func FixedTexts(path string, v reflect.Value) map[string]string {
	all := make(map[string]string)
	addFixed(all, path, v)
	return all
}

func addFixed(all map[string]string, path string, v reflect.Value) {
	for _, f := range FieldsOf(v.Type()) {
		if f.Function {
			continue
		}
		value := v.FieldByIndex(f.Index)
		switch at := path + "." + f.Name; {
		case f.Fixed && value.IsZero():
			all[at] = Text(f.defaultValue().Interface())
		case f.Fixed:
			all[at] = Text(value.Interface())
		case value.Kind() == reflect.Struct && !IsText(f.Type):
			addFixed(all, at, value)
		}
	}
}

// defaultValue returns the default of the field, or the zero value if the rule has none.
func (f Field) defaultValue() reflect.Value {
	v := reflect.New(f.Type).Elem()
	switch d, err := time.ParseDuration(f.Default); {
	case f.Type == DurationType && err == nil:
		v.SetInt(int64(d))
	case v.Kind() == reflect.String:
		v.SetString(f.Default)
	default:
		_, _ = fmt.Sscan(f.Default, v.Addr().Interface()) // a number; the default of any other type stays zero
	}
	return v
}
