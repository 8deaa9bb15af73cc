package reload

import (
	"cmp"
	"errors"
	"io"

	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir/reload/internal/decode"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/explain"
	"github.com/weir-go/weir/reload/internal/model"
)

// A File is a file that was parsed without problems. Make one with [Parse]. It does not change, and is safe for
// concurrent use.
type File struct {
	name    string
	kinds   *Kinds
	content model.File
	// unchecked is set for a section's Check: the rest of the file can have problems.
	unchecked bool
}

// Parse reads a file, YAML or JSON, and checks everything in it that can be checked without building pipelines:
// names, types, values, references, cycles. It has no side effects. name is the name of the file in errors. k has the
// kinds and functions of the program; nil stands for weir's own kinds and no functions.
//
// The error is a [*FileError] with every problem, or a [weir.OptionsError] that says what is wrong with k.
//
// The work is bounded. A file has at most 1 MiB, unless [Kinds.MaxFileSize] sets another bound, 10,000 limiters, 10,000
// budgets and 10,000 pipelines. Values are nested at most 100 deep, names have at most 256 bytes, all aliases together stand
// for at most 100,000 values. The first 1000 problems are reported. Messages shorten what they quote from the file.
func Parse(name string, data []byte, k *Kinds) (f *File, err error) {
	k = k.orOwn()
	if err := k.wrong.Err("reload"); err != nil {
		return nil, err
	}
	// A file must not end a running program, even if it makes the YAML library or a Validate method panic.
	defer func() {
		if p := recover(); p != nil {
			var found document.Problems
			found.AddAt(document.Place{Line: 1, Column: 1}, "reading it panicked: %v", p)
			f, err = nil, newFileError(name, found)
		}
	}()
	root, found := document.Parse(data, cmp.Or(k.maxFileSize, document.MaxSize))
	if root == nil && len(found) > 0 {
		return nil, newFileError(name, found)
	}
	if root == nil { // an empty document
		root = &document.Node{Node: &yaml.Node{Tag: document.Mapping, Line: 1, Column: 1}}
	}
	content, found := decode.File(root, found, k.known())
	if err := newFileError(name, found); err != nil {
		return nil, err
	}
	return &File{name: name, kinds: k, content: *content}, nil
}

// Name returns the name that Parse was given.
func (f *File) Name() string { return f.name }

// Explain writes to w what the named sections and pipelines do, in words, or all of them if there are no names. Each
// strategy is one line, the outermost first. If the options of a program's own kind have a method Explain() string, its
// result is used. Explain returns an error if w returns one, if the file has nothing with one of the names, and during
// [Section.Check], when the file can have problems.
func (f *File) Explain(w io.Writer, names ...string) error {
	if f.unchecked {
		return errors.New("reload: Explain during Section.Check, when the file can have problems")
	}
	return explain.Write(w, &f.content, f.kinds.sections, names...)
}

// Pipelines returns the names of the pipelines, in the order of the file, without the pipelines of sections.
func (f *File) Pipelines() []string {
	return namesOf(f.content.Pipelines, func(p *model.Pipeline) string { return p.Name })
}

// defined returns the names of all pipelines that f defines, those of sections last.
func (f *File) defined() []string {
	names := f.Pipelines()
	for _, s := range f.content.Sections {
		names = append(names, s.Pipelines()...)
	}
	return names
}

// Limiters returns the names of the shared limiters, in the order of the file.
func (f *File) Limiters() []string {
	return namesOf(f.content.Limiters, func(l *model.Limiter) string { return l.Name })
}

// Budgets returns the names of the budgets, in the order of the file.
func (f *File) Budgets() []string {
	return namesOf(f.content.Budgets, func(b *model.Budget) string { return b.Name })
}

func namesOf[T any](all []*T, name func(*T) string) []string {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = name(one)
	}
	return names
}
