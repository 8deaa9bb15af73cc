package document

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Place is where something stands in a document. Line and Column are counted from 1.
type Place struct {
	Line, Column int
	Path         string // of keys and positions in lists, such as a.b[1]; "" for the whole document
}

// A Problem is one thing that is wrong with a document.
type Problem struct {
	Place
	Message string
}

// Problems collects what is wrong with a document.
type Problems []Problem

// maxProblems bounds the work for a file that is not meant for this package.
const maxProblems = 1000

// The bounds of texts, in bytes. Messages shorten what they quote from the file. Messages of the YAML library, and of a
// Validate or UnmarshalText method, are only cut.
const (
	maxMessage = 4 << 10
	maxPath    = 1 << 10
)

// Add adds a problem at a [Node], an [Entry] or a [Key], unless there are maxProblems already.
func (p *Problems) Add(at interface{ Place() Place }, format string, args ...any) {
	if len(*p) < maxProblems {
		p.AddAt(at.Place(), format, args...)
	}
}

// AddAt is Add for a place.
func (p *Problems) AddAt(at Place, format string, args ...any) {
	if len(*p) >= maxProblems {
		return
	}
	at.Path = cut(at.Path, maxPath)
	message := cut(fmt.Sprintf(format, args...), maxMessage) // before Visible, which can make it six times as long
	*p = append(*p, Problem{Place: at, Message: cut(Visible(message), maxMessage)})
}

// Sorted returns the problems in the order of the file. If a value has an anchor, its problems were added again for
// each alias; Sorted returns each of them once.
func (p Problems) Sorted() []Problem {
	p = slices.Clone(p)
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	many := len(p) >= maxProblems
	seen := make(map[Problem]bool, len(p))
	all := slices.DeleteFunc(p, func(p Problem) bool {
		p.Path = ""
		known := seen[p]
		seen[p] = true
		return known
	})
	if many {
		last := all[len(all)-1]
		last.Path, last.Message = "", fmt.Sprintf("there are more problems, the first %d are listed", maxProblems)
		all = append(all, last)
	}
	return all
}

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
	return strings.ToValidUTF8(text[:most], "") + "…"
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
