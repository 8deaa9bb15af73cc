package document

import (
	"cmp"
	"fmt"
	"slices"
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

// Add adds a problem at a [Node] or an [Entry], unless there are maxProblems already.
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
