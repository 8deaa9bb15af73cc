// Package validate collects what is wrong with options into one [weir.OptionsError].
package validate

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/isnil"
)

// Problems collects what is wrong with some options. The zero value has none.
type Problems struct{ fields []weir.FieldError }

// Add adds a problem of the field at path, which has that value. See [weir.FieldError] for the braces in problem.
func (p *Problems) Add(path string, value any, problem string, args ...any) {
	if len(args) > 0 {
		problem = fmt.Sprintf(problem, args...)
	}
	p.fields = append(p.fields, weir.FieldError{Path: path, Problem: problem, Value: value})
}

// AtLeast adds a problem if value is below least.
func (p *Problems) AtLeast(path string, value, least int) {
	if value < least {
		p.Add(path, value, "must be at least %d", least)
	}
}

// Positive adds a problem if d is not above 0.
func (p *Problems) Positive(path string, d time.Duration) {
	if d <= 0 {
		p.Add(path, d, "must be more than 0")
	}
}

// NotNegative adds a problem if d is below 0.
func (p *Problems) NotNegative(path string, d time.Duration) {
	if d < 0 {
		p.Add(path, d, "must be at least 0")
	}
}

// Text adds a problem if text is blank, has more than maxBytes bytes or is not UTF-8.
func (p *Problems) Text(path, text string, maxBytes int) {
	switch {
	case strings.TrimSpace(text) == "":
		p.Add(path, nil, "must be set")
	case len(text) > maxBytes:
		p.Add(path, nil, "must have at most %d bytes, got %d", maxBytes, len(text))
	case !utf8.ValidString(text):
		p.Add(path, text, "must be valid UTF-8")
	}
}

// Include adds the problems that err has of what stands at path: all fields of a [weir.OptionsError] under that path,
// or else err as it is. If err is nil, it adds nothing.
func (p *Problems) Include(path string, err error) {
	if err == nil {
		return
	}
	inner, ok := errors.AsType[*weir.OptionsError](err)
	if !ok {
		p.fields = append(p.fields, weir.FieldError{Path: path, Problem: "is invalid: " + err.Error(), Err: err})
		return
	}
	for _, f := range inner.Fields {
		f.Path = Join(path, f.Path)
		p.fields = append(p.fields, f)
	}
}

// Join returns the path of the field that stands at inner below outer. Either can be empty.
func Join(outer, inner string) string {
	if outer == "" || inner == "" || inner[0] == '[' {
		return outer + inner
	}
	return outer + "." + inner
}

// Err returns a [weir.OptionsError] of that package with all problems, or nil if there are none.
func (p *Problems) Err(pkg string) error {
	if len(p.fields) == 0 {
		return nil
	}
	return &weir.OptionsError{Package: pkg, Fields: p.fields}
}

// IsSet reports whether an interface has a value. A nil pointer in it, which would panic at the first call, is a problem of
// the field at path.
func (p *Problems) IsSet(path string, v any) bool {
	if v != nil && isnil.Value(v) {
		p.Add(path, nil, "must not be a nil pointer")
		return false
	}
	return v != nil
}
