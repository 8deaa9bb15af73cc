package reload

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
)

// A Problem is one thing that is wrong with a file.
type Problem struct {
	// Line and Column are counted from 1; columns count characters. If an alias stands for a wrong value, they are the
	// line and the column of the value at the anchor.
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
			if b.Len()+len(line) > maxError-100 { // 100 bytes are left for the last line
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
func newFileError(file string, found document.Problems) error {
	if len(found) == 0 {
		return nil
	}
	e := &FileError{File: file}
	for _, p := range found.Sorted() {
		e.Problems = append(e.Problems, Problem{p.Line, p.Column, p.Path, p.Message})
	}
	return e
}

// maxError bounds the text of a FileError, in bytes.
const maxError = 64 << 10
