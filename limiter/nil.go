package limiter

import "reflect"

// isNil reports whether v is nil, or an interface that holds a nil pointer or func.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return (r.Kind() == reflect.Pointer || r.Kind() == reflect.Func) && r.IsNil()
}
