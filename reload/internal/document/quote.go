package document

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxName bounds the length of names in a file, in bytes.
const MaxName = 256

// Name returns a name as messages show it: in quotes if it is empty, has characters that a terminal does not show, or is
// longer than MaxName.
func Name(name string) string {
	if len(name) > MaxName {
		return Quoted(name)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) || name == "" {
		return strconv.Quote(name)
	}
	return name
}

// Visible replaces the characters of a text that a terminal does not show, except line breaks.
func Visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// maxShown is how many characters of a text from the file a message shows.
const maxShown = 60

// Quoted returns a text from the file in quotes, shortened if it is long. It has no line breaks.
func Quoted(s string) string {
	if begins := Beginning(s); begins != s {
		return strconv.Quote(strings.TrimSuffix(begins, "…")) + "…"
	}
	return strconv.Quote(s)
}

// Beginning returns a text from the file, shortened if it is long.
func Beginning(s string) string {
	seen := 0
	for i := range s {
		if seen++; seen > maxShown {
			return s[:i] + "…"
		}
	}
	return s
}

// cut returns the beginning of the text, of at most that many bytes and a "…".
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// OneOf returns the texts in quotes as alternatives, as in "a", "b" or "c".
func OneOf(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = strconv.Quote(t)
	}
	return Alternatives(quoted)
}

// Alternatives joins a, b and c to "a, b or c".
func Alternatives(all []string) string {
	last := len(all) - 1
	if last < 1 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// MaxListed is how many names a message lists.
const MaxListed = 12

// Listed returns the first MaxListed names and, if there are more, a text with the number of the others.
func Listed(names []string) []string {
	if len(names) <= MaxListed {
		return names
	}
	return append(slices.Clone(names[:MaxListed]), fmt.Sprintf("and %d others", len(names)-MaxListed))
}
