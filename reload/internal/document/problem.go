package document

import (
	"cmp"
	"fmt"
	"slices"
)

// A Problem is one thing that is wrong with a document. Line and Column are counted from 1.
type Problem struct {
	Line, Column int
	Path         string // the place in the structure, made by Child and Element
	Message      string
}

// Problems collects what is wrong with a document.
type Problems []Problem

// maxProblems bounds the work for a file that is something else altogether.
const maxProblems = 1000

// The bounds of texts, in bytes. Messages shorten what they quote from the file. Messages of the YAML library, and of a
// Validate or UnmarshalText method, are only cut.
const (
	maxMessage = 4 << 10
	maxPath    = 1 << 10
)

// Add adds a problem at that node, unless there are maxProblems already.
func (p *Problems) Add(at *Node, path, format string, args ...any) {
	if len(*p) >= maxProblems {
		return
	}
	message := Visible(cut(fmt.Sprintf(format, args...), maxMessage))
	*p = append(*p, Problem{Line: at.Line, Column: at.Column, Path: cut(path, maxPath), Message: cut(message, maxMessage)})
}

// Sorted returns the problems in the order of the file. A problem in what an anchor stands for is found once for each
// alias, and returned once.
func (p Problems) Sorted() []Problem {
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

// A Place is where something stands in a document.
type Place struct {
	Node *Node
	Path string
}

// Child returns the path of the value under a key of the mapping at path.
func Child(path, key string) string {
	if len(key) > MaxName {
		return fmt.Sprintf("%s[%s]", path, Quoted(key))
	}
	if !PlainKey(key) {
		return fmt.Sprintf("%s[%q]", path, key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// Element returns the path of an element of the list at path.
func Element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// PlainKey reports whether a key needs no quotes in a path.
func PlainKey(key string) bool {
	for _, r := range key {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
		default:
			return false
		}
	}
	return key != ""
}
