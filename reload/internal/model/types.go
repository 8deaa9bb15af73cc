package model

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

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
	if i := slices.Index(c.inside, t); i >= 0 {
		if slices.ContainsFunc(c.inside[i:], func(t reflect.Type) bool { return t.Kind() == reflect.Struct }) {
			return nil // a struct can contain itself, as in a tree
		}
		return fmt.Errorf("%v contains itself", t)
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
