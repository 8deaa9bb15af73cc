package weirgrpc

import (
	"strings"

	"github.com/weir-go/weir/internal/validate"
)

// methods has a value for each pattern of methods: "/package.Service/Method", "/package.Service/*" for the other methods of a
// service, and "*" for all others. The keys are the patterns without the star. It is made of options only, so a client that makes
// up methods cannot let it grow.
type methods[V any] map[string]V

// of returns the value of the most specific pattern that matches the method.
func (m methods[V]) of(method string) V {
	for _, pattern := range [...]string{method, method[:strings.LastIndexByte(method, '/')+1]} {
		if v, ok := m[pattern]; ok {
			return v
		}
	}
	return m[""]
}

// set sets the value of a pattern.
func (m methods[V]) set(pattern string, v V) { m[strings.TrimSuffix(pattern, "*")] = v }

// checkPattern adds a problem of the field at path, whose value is shown, if pattern cannot match a method.
func checkPattern(problems *validate.Problems, path string, value any, pattern string) {
	rest, ok := strings.CutPrefix(pattern, "/")
	service, method, _ := strings.Cut(rest, "/")
	ok = ok && service != "" && method != "" && !strings.Contains(service, "*") && (method == "*" || !strings.ContainsAny(method, "*/"))
	if !ok && pattern != "*" {
		problems.Add(path, value, `must have the form "/package.Service/Method", "/package.Service/*" or "*"`)
	}
}
