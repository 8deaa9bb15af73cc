package reload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Problem is one thing that is wrong with a file.
type Problem struct {
	// Line and Column are counted from 1; columns count characters. A problem in what an alias stands for is at its
	// anchor.
	Line, Column int
	// Path is the place in the structure, such as "pipelines.orders.strategies[1].retry.max_retries"; it is empty for
	// the file as a whole.
	Path string
	// Message says what is wrong and what would be right.
	Message string
}

// String returns "line:column: path: message".
func (p Problem) String() string {
	if p.Path == "" {
		return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message)
	}
	return fmt.Sprintf("%d:%d: %s: %s", p.Line, p.Column, p.Path, p.Message)
}

// FileError is the error of a file that cannot be used. Find it in an error with [errors.AsType].
type FileError struct {
	// File is the name that [Parse] was given.
	File string
	// Problems are all problems that were found, in the order of the file. There is at least one.
	Problems []Problem
}

// Error returns one line for each problem: "file:line:column: path: message". The text has at most 64 KiB; the last
// line then says how many problems are left out.
func (e *FileError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		line := p.String()
		if e.File != "" {
			line = e.File + ":" + line
		}
		if i > 0 {
			if b.Len()+len(line) > maxError-100 { // room for the line that says so
				fmt.Fprintf(&b, "\nand %d other problems", len(e.Problems)-i)
				break
			}
			b.WriteByte('\n')
		}
		b.WriteString(line)
	}
	return b.String()
}

// newFileError returns nil if there is no problem.
func newFileError(file string, problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	// What an anchor stands for is looked at once for each alias, and mended once.
	many := len(problems) >= maxProblems
	seen := make(map[Problem]bool, len(problems))
	problems = slices.DeleteFunc(problems, func(p Problem) bool {
		p.Path = ""
		known := seen[p]
		seen[p] = true
		return known
	})
	if many {
		last := problems[len(problems)-1]
		last.Path, last.Message = "", "there are more problems, those that were found first are listed"
		problems = append(problems, last)
	}
	return &FileError{File: file, Problems: problems}
}

// problems collects what is wrong with a file.
type problems []Problem

// maxProblems bounds the work for a file that is something else altogether.
const maxProblems = 1000

// The bounds of texts, in bytes. What a message shows of the file is shortened where the message is made; a
// message of the YAML library, or of an option's own Validate or UnmarshalText, is only cut.
const (
	maxMessage = 4 << 10
	maxPath    = 1 << 10
	maxError   = 64 << 10 // of FileError.Error
)

// setOf returns the names as a set.
func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

func (p *problems) add(at *node, path, format string, args ...any) {
	if len(*p) >= maxProblems {
		return
	}
	message := visible(cut(fmt.Sprintf(format, args...), maxMessage))
	*p = append(*p, Problem{Line: at.line, Column: at.column, Path: cut(path, maxPath), Message: cut(message, maxMessage)})
}

// cut is text of at most that many bytes, or one … more.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// child is the path of what stands under a key. A key that is longer than a name may be is shortened.
func child(path, key string) string {
	if len(key) > maxNameLength {
		return fmt.Sprintf("%s[%s]", path, shortened(key))
	}
	if !plainKey(key) {
		return fmt.Sprintf("%s[%q]", path, key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// element is the path of an element of a list.
func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// plainKey tells whether a key needs no quotes in a path.
func plainKey(key string) bool {
	for _, r := range key {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
		default:
			return false
		}
	}
	return key != ""
}
