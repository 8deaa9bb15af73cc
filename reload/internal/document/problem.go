package document

import (
	"cmp"
	"fmt"
	"math"
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

// maxProblems bounds the work for a file that is not meant for this package, and the texts about it.
const maxProblems = 200

// Add adds a problem, unless there are maxProblems already.
func (p *Problems) Add(at Place, format string, args ...any) {
	if len(*p) < maxProblems {
		*p = append(*p, Problem{Place: at, Message: Visible(fmt.Sprintf(format, args...))})
	}
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

// maxCompared bounds how many names one name is compared with.
const maxCompared = 1000

// maxSuggested bounds the length of names that are suggested, in bytes.
const maxSuggested = 64

// Instead returns the end of a message about the unknown name got: "did you mean" the nearest of the names or, if no name is near, a
// list of the names. If names is empty, it returns ifEmpty.
func Instead(got string, names []string, ifEmpty string) string {
	if len(names) == 0 {
		return ifEmpty
	}
	if near := Nearest(got, names); near != "" {
		return "did you mean " + Quoted(near) + "?"
	}
	shownNames := make([]string, 0, MaxListed)
	for _, name := range names[:min(len(names), MaxListed)] {
		shownNames = append(shownNames, Name(name))
	}
	switch {
	case len(names) == 1:
		return "there is only " + shownNames[0]
	case len(names) > MaxListed:
		return "there are " + strings.Join(shownNames, ", ") + " and others"
	default:
		return "there are " + strings.Join(shownNames, ", ")
	}
}

// Nearest returns the name that is most like got, or "" if none is: at most a third of the letters differ, or got is
// the beginning of exactly one name.
func Nearest(got string, names []string) string {
	got = normal(got)
	if got == "" || len(got) > maxSuggested {
		return ""
	}
	best, least := "", math.MaxInt
	begun, begins := "", 0 // a name that begins with got, and how many do
	for _, name := range names[:min(len(names), maxCompared)] {
		n := normal(name)
		if len(got) >= 3 && strings.HasPrefix(n, got) {
			begun = name
			begins++
		}
		most := max(len(got), len(n)) / 3
		if n == "" || max(len(got), len(n))-min(len(got), len(n)) > most {
			continue
		}
		if d := distance(got, n); d <= most && d < least {
			best, least = name, d
		}
	}
	if best == "" && begins == 1 {
		return begun
	}
	return best
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

// normal returns the same for maxRetries, max-retries and max_retries, and "" for a name that is too long to suggest.
func normal(name string) string {
	if len(name) > 2*maxSuggested {
		return ""
	}
	return separators.Replace(strings.ToLower(name))
}

// distance returns how many letters must be inserted, removed, replaced or swapped with a neighbour to turn a into b.
func distance(a, b string) int {
	var rows [3][2*maxSuggested + 1]int
	before, last, row := rows[0][:len(b)+1], rows[1][:len(b)+1], rows[2][:len(b)+1]
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, replaced)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
