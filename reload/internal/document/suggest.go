package document

import (
	"math"
	"strings"
)

// maxCompared bounds how many names one name is compared with, and maxComparedTotal the comparisons for a file, so that
// a file with thousands of misspelt names does not take long.
const (
	maxCompared      = 1000
	maxComparedTotal = 20_000
)

// maxSuggested bounds the length of names that are suggested, in bytes.
const maxSuggested = 64

// A Suggester suggests names for misspelt ones, until it has compared maxComparedTotal names.
type Suggester struct{ compared int }

// Instead returns the end of a message about the unknown name got: "did you mean" the nearest of the names or, if no
// name is near, a list of the names. If names is empty, it returns ifEmpty.
func (s *Suggester) Instead(got string, names []string, ifEmpty string) string {
	if len(names) == 0 {
		return ifEmpty
	}
	if s.compared < maxComparedTotal {
		s.compared += min(len(names), maxCompared)
		if near := Nearest(got, names); near != "" {
			return "did you mean " + Quoted(near) + "?"
		}
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
