package reload

import (
	"math"
	"strings"
)

// mostListed is how many names a message lists.
const mostListed = 12

// mostCompared bounds the work for one name.
const mostCompared = 1000

// instead says what could have been meant: the nearest of names, or all of them.
// none is what to say when there are none.
func instead(got string, names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	if near := nearest(got, names); near != "" {
		return "did you mean " + shortened(near) + "?"
	}
	switch {
	case len(names) == 1:
		return "there is only " + names[0]
	case len(names) > mostListed:
		return "there are " + strings.Join(names[:mostListed], ", ") + " and others"
	default:
		return "there are " + strings.Join(names, ", ")
	}
}

// nearest returns the name that is most like got, "" if none is much like it: a
// third of the letters may differ, or got may be the beginning of just one.
func nearest(got string, names []string) string {
	got = normal(got)
	if len(got) > 64 {
		return ""
	}
	best, least := "", math.MaxInt
	var begun []string
	for _, name := range names[:min(len(names), mostCompared)] {
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

// normal makes maxRetries, max-retries and max_retries the same.
func normal(name string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(name))
}

// distance is how many letters have to be inserted, removed, replaced or swapped
// with their neighbour to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
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
