// Package textenum gives the values of small enums their text forms.
package textenum

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/validate"
)

// Texts are the text forms of an enum whose values are 0, 1, 2 and so on.
type Texts[T ~uint8] struct {
	Package string   // the name of the package that has the type, such as "retry"
	Type    string   // the name of the type, such as "Backoff"
	Texts   []string // by value; that of the zero value can be empty, and then errors leave it out
	AnyCase bool     // Unmarshal ignores the case of the letters
}

// Has reports whether v is one of the values.
func (e *Texts[T]) Has(v T) bool { return int(v) < len(e.Texts) }

// String returns the text of v, or the name of the type with the number if v is not one of the values.
func (e *Texts[T]) String(v T) string {
	if !e.Has(v) {
		return fmt.Sprintf("%s(%d)", e.Type, uint8(v))
	}
	return e.Texts[v]
}

// Marshal returns the text of v, or a [weir.OptionsError] if v is not one of the values.
func (e *Texts[T]) Marshal(v T) ([]byte, error) {
	if !e.Has(v) {
		return nil, e.problem(e.String(v))
	}
	return []byte(e.Texts[v]), nil
}

// Unmarshal sets v to the value that has that text. If there is none, it returns a [weir.OptionsError] and leaves v.
func (e *Texts[T]) Unmarshal(v *T, text []byte) error {
	i := slices.IndexFunc(e.Texts, func(s string) bool {
		return s == string(text) || e.AnyCase && strings.EqualFold(s, string(text))
	})
	if i < 0 {
		return e.problem(string(text))
	}
	*v = T(i) //nolint:gosec // at most the number of values, which a uint8 holds
	return nil
}

// problem returns the error of a text that none of the values has.
func (e *Texts[T]) problem(text string) error {
	var p validate.Problems
	p.Add(e.Type, text, "must be one of "+strings.TrimPrefix(strings.Join(e.Texts, ", "), ", "))
	return p.Err(e.Package)
}
