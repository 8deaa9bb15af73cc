// Package isnil finds the nil inside an interface.
package isnil

import "reflect"

// Value reports whether v is nil, or an interface that holds a nil pointer or a nil func. A nil map, slice or channel
// of a named type can have methods that work, and counts as a value.
func Value(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func:
		return r.IsNil()
	default:
		return false
	}
}
