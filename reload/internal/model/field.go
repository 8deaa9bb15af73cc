package model

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"
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

// A Rule is what the tags reload and doc of a field say.
type Rule struct {
	// Words are texts that stand for special numbers.
	Words []Word
	// Default is the default of a field that must not be 0 in a file: for the default, a file leaves the field out. If
	// Default is empty, the field can be 0.
	Default string
	// Least is the smallest value if HasLeast is set, and Most the largest value unless it is 0.
	Least    float64
	HasLeast bool
	Most     float64
	// Below is for the schema of weir's own options: if it is not 0, all values are below it.
	Below float64
	// Purpose is set if the field names a function or value that is registered for this purpose.
	Purpose Purpose
	// Refers is set if the field of a section names something of the file: LimitersField or PipelinesField, or with a dot
	// before its name a field of the section.
	Refers string
	// Fixed is set if the field of a section cannot change while the program runs.
	Fixed bool
	// Doc is the description in the schema.
	Doc   string
	wrong []string // the parts of the tag that are wrong
}

// A Word is a text that stands for a number.
type Word struct {
	Text  string
	Value int64
}

// The words that a rule can allow.
var (
	Off     = Word{"off", -1}
	Forever = Word{"forever", math.MaxInt}
)

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
				if indexOf(all, inner.Name) < 0 {
					all = append(all, inner)
				}
			}
		case f.IsExported():
			made := Field{f.Name, name, f.Index, f.Type, !strings.Contains(options, "omitempty"), name == "-", parseRule(f.Tag)}
			if made.Function {
				made.Name = snake(f.Name)
			}
			switch at := indexOf(all, made.Name); {
			case at < 0:
				all = append(all, made)
			case made.Function && !all[at].Function: // a file could set it, but for this struct
				all = slices.Delete(all, at, at+1)
			default:
				all[at] = made
			}
		}
	}
	knownFields.Store(t, all)
	return all
}

// knownFields has the fields of each struct type that FieldsOf was called with.
var knownFields sync.Map

func indexOf(all []Field, name string) int {
	return slices.IndexFunc(all, func(f Field) bool { return f.Name == name })
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

// parseRule returns the rule in the tags of a field.
func parseRule(tag reflect.StructTag) (r Rule) {
	r.Doc = tag.Get("doc")
	for part := range strings.SplitSeq(tag.Get("reload"), ",") {
		name, value, _ := strings.Cut(part, "=")
		var err error
		switch name {
		case "", oneOfTag:
		case Off.Text:
			r.Words = append(r.Words, Off)
		case Forever.Text:
			r.Words = append(r.Words, Forever)
		case "default":
			r.Default = value
		case "least":
			r.Least, err = strconv.ParseFloat(value, 64)
			r.HasLeast = true
		case "most":
			r.Most, err = strconv.ParseFloat(value, 64)
		case "fixed":
			r.Fixed = true
		case "limiter":
			r.Refers = LimitersField
		case "pipeline":
			r.Refers = PipelinesField
		case "in":
			r.Refers = "." + value
		case "names":
			r.Purpose = Purpose(value)
		default:
			err = strconv.ErrSyntax
		}
		if err != nil {
			r.wrong = append(r.wrong, part)
		}
	}
	return r
}

const oneOfTag = "oneof"

// OneOf reports whether a mapping that is decoded into the struct has exactly one of its fields, and returns the word
// for what the fields are kinds of.
func OneOf(t reflect.Type) (what string, ok bool) {
	f, has := t.FieldByName("_")
	if !has {
		return "", false
	}
	name, what, _ := strings.Cut(f.Tag.Get("reload"), "=")
	return what, name == oneOfTag
}

// Set sets v to the Value, and reports whether v is a number.
func (w Word) Set(v reflect.Value) bool {
	switch {
	case v.CanInt():
		v.SetInt(w.Value)
	case v.CanFloat():
		v.SetFloat(float64(w.Value))
	default:
		return false
	}
	return true
}

// AnyType is the type of a value that can be whatever JSON has: nil, a bool, float64, string, []any or map[string]any.
var AnyType = reflect.TypeFor[any]()

// Declares returns the struct that declares a field of t: t, or a struct that is embedded in it.
func (f Field) Declares(t reflect.Type) reflect.Type {
	for _, i := range f.Index[:max(len(f.Index)-1, 0)] {
		t = t.Field(i).Type
	}
	return t
}

// DurationType is the type of [time.Duration].
var DurationType = reflect.TypeFor[time.Duration]()

// IsName reports whether the field is the name of a strategy in telemetry.
func (f Field) IsName() bool {
	return f.Name == "name" && !f.Function && f.Type.Kind() == reflect.String
}

// Text returns options as package yaml writes them: the same text for options that a file sets in the same way.
func Text(options any) string {
	text, err := yaml.Dump(options)
	if err != nil {
		return fmt.Sprintf("%#v", options)
	}
	return string(text)
}

// EachChanged calls f with the path of each field with the rule Fixed in a struct, or in the structs in it, that is not the same in
// was and is. A field that a file leaves out has its default.
func EachChanged(path string, was, is reflect.Value, f func(path string)) {
	for _, of := range FieldsOf(was.Type()) {
		if of.Function {
			continue
		}
		was, is := was.FieldByIndex(of.Index), is.FieldByIndex(of.Index)
		switch at := path + "." + of.Name; {
		case of.Fixed && !reflect.DeepEqual(of.orDefault(was), of.orDefault(is)):
			f(at)
		case !of.Fixed && of.Type.Kind() == reflect.Struct && !IsText(of.Type):
			EachChanged(at, was, is, f)
		}
	}
}

// orDefault returns the value of a field, or its default if it is zero.
func (f Field) orDefault(v reflect.Value) any {
	usual := reflect.New(f.Type)
	if !v.IsZero() || yaml.Load([]byte(f.Default), usual.Interface()) != nil {
		return v.Interface()
	}
	return usual.Elem().Interface()
}

// IsText reports whether the type has an UnmarshalText method.
func IsText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// Decodable returns an error if a part of the options of a kind, or of a section, cannot be decoded from a file or has a
// tag that is wrong. The error names that part.
func Decodable(t reflect.Type, ofSection bool) error {
	c := typeChecker{}
	if ofSection {
		c.section = t
	}
	return c.check(t)
}

// A typeChecker checks the types in a type.
type typeChecker struct {
	section   reflect.Type   // the options of the section; nil: of a kind
	inside    []reflect.Type // the types around
	inElement bool           // of a slice, a map or a pointer
}

func (c typeChecker) check(t reflect.Type) error {
	if slices.Contains(c.inside, t) {
		return nil // a struct can contain itself, as in a tree
	}
	c.inside = append(slices.Clone(c.inside), t)
	switch kind := t.Kind(); {
	case t == AnyType, IsText(t), kind == reflect.String, kind >= reflect.Bool && kind <= reflect.Float64 && kind != reflect.Uintptr:
		return nil
	case kind == reflect.Map && t.Key().Kind() != reflect.String:
		return fmt.Errorf("%v: the keys of a map must be strings", t)
	case kind == reflect.Map, kind == reflect.Pointer, kind == reflect.Slice:
		c.inElement = true
		return c.check(t.Elem())
	case kind != reflect.Struct:
		return fmt.Errorf("%v cannot be written in a file", t)
	}
	for _, f := range FieldsOf(t) {
		err := c.checkRule(f)
		if err == nil && !f.Function {
			err = c.check(f.Type)
		}
		if err != nil {
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

// EnumOf returns the texts of an enum, in the order of their numbers. An enum is an unsigned number type with the
// methods MarshalText and UnmarshalText. For any other type EnumOf returns nil.
func EnumOf(t reflect.Type) (texts []string) {
	v := reflect.New(t).Elem()
	for i := range uint64(64) {
		if !v.CanUint() || !IsText(t) {
			return nil
		}
		v.SetUint(i)
		m, ok := reflect.TypeAssert[encoding.TextMarshaler](v)
		if !ok {
			return nil
		}
		text, err := m.MarshalText()
		if err != nil {
			break
		}
		texts = append(texts, string(text))
	}
	return texts
}
