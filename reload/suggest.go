package reload

import (
	"math"
	"strings"
)

// mostListed is how many names a message lists.
const mostListed = 12

// mostCompared bounds the work for one name, and mostComparedInAll that for a file: one with
// thousands of misspelt names is something else, and suggestions for it help little.
const (
	mostCompared      = 1000
	mostComparedInAll = 20_000
)

// mostSuggested is how long a name may be for a suggestion.
const mostSuggested = 64

// A suggester finds what was meant by misspelt names, until it has done enough work.
type suggester struct{ compared int }

// instead says what could have been meant: the nearest of names, or all of them.
// none is what to say when there are none.
func (s *suggester) instead(got string, names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	if s.compared < mostComparedInAll {
		s.compared += min(len(names), mostCompared)
		if near := nearest(got, names); near != "" {
			return "did you mean " + shortened(near) + "?"
		}
	}
	shownNames := make([]string, 0, mostListed)
	for _, name := range names[:min(len(names), mostListed)] {
		shownNames = append(shownNames, shown(name))
	}
	switch {
	case len(names) == 1:
		return "there is only " + shownNames[0]
	case len(names) > mostListed:
		return "there are " + strings.Join(shownNames, ", ") + " and others"
	default:
		return "there are " + strings.Join(shownNames, ", ")
	}
}

// nearest returns the name that is most like got, "" if none is much like it: a
// third of the letters may differ, or got may be the beginning of just one.
func nearest(got string, names []string) string {
	if len(got) > 2*mostSuggested {
		return ""
	}
	got = normal(got)
	if len(got) > mostSuggested {
		return ""
	}
	best, least := "", math.MaxInt
	var begun []string
	for _, name := range names[:min(len(names), mostCompared)] {
		if len(name) > 2*mostSuggested {
			continue
		}
		n := normal(name)
		longer := max(len(got), len(n))
		most := longer / 3
		if len(got) >= 3 && strings.HasPrefix(n, got) {
			begun = append(begun, name)
		}
		if longer-min(len(got), len(n)) > most {
			continue
		}
		if d := distance(got, n); d <= most && d < least {
			best, least = name, d
		}
	}
	if best == "" && len(begun) == 1 {
		return begun[0]
	}
	return best
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

// normal makes maxRetries, max-retries and max_retries the same.
func normal(name string) string {
	return separators.Replace(strings.ToLower(name))
}

// distance is how many letters have to be inserted, removed, replaced or swapped
// with their neighbour to make b of a.
func distance(a, b string) int {
	var rows [3][2*mostSuggested + 1]int
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
