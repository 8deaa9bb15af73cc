package reload

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

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
// for at most 100,000 values. The first 200 problems are reported. Messages shorten what they quote from the file.
func Parse(name string, data []byte, k *Kinds) (f *File, err error) {
	k = cmp.Or(k, ownKinds)
	if err := k.wrong.Err("reload"); err != nil {
		return nil, err
	}
	// A file must not end a running program, even if it makes the YAML library or a Validate method panic.
	defer func() {
		if p := recover(); p != nil {
			var found document.Problems
			found.Add(document.Place{Line: 1, Column: 1}, "reading it panicked: %v", p)
			f, err = nil, newFileError(name, found)
		}
	}()
	root, found := document.Parse(data, cmp.Or(k.maxFileSize, document.MaxSize))
	if root == nil {
		return nil, newFileError(name, found)
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

// A LimiterInfo describes a limiter of a file.
type LimiterInfo struct {
	Name string
	// Kind is the kind, such as "token_bucket"; of a partitioned limiter the kind of the limiter of each key.
	Kind string
	// Options are the options as the file sets them: of the kind, such as a [limiter.TokenBucketOptions], and for a
	// partitioned limiter those of each key. If nil, the kind has no options, or the file has problems there.
	Options any
	// Partitioned reports whether each key has a limiter of its own, and Key is the name of the key function.
	Partitioned bool
	Key         string
	// MaxPartitions bounds how many keys there can be; 0: nothing does, or they are in a store.
	MaxPartitions int
	// Store is the name of the store with its state; "": it is in the process.
	Store string
	// Members are the names of the limiters in a chain.
	Members []string
}

// Limiter returns what the file says about a shared limiter. ok is false if there is none of that name.
func (f *File) Limiter(name string) (info LimiterInfo, ok bool) {
	l := f.content.LimiterNamed[name]
	if l == nil {
		return info, false
	}
	return infoOf(name, l), true
}

// AllLimiters returns what the file says about its limiters: the shared ones and then the limiters that are written in
// strategies, whose names are pipeline/strategy.
func (f *File) AllLimiters() iter.Seq[LimiterInfo] {
	return func(yield func(LimiterInfo) bool) {
		for _, l := range f.content.Limiters {
			if !yield(infoOf(l.Name, l)) {
				return
			}
		}
		for _, p := range f.content.Pipelines {
			for _, s := range p.Strategies {
				if l := s.Limiter; l != nil && l.Name == "" && !yield(infoOf(p.RegistryName(s, ""), l)) {
					return
				}
			}
		}
	}
}

func infoOf(name string, l *model.Limiter) LimiterInfo {
	info := LimiterInfo{Name: name, Kind: l.Kind, Options: l.Options}
	if o, is := l.Options.(model.PartitionedOptions); is {
		info.Partitioned, info.Key, info.MaxPartitions, info.Options = true, o.Key, o.MaxPartitions, nil
		if l.Each != nil {
			info.Kind, info.Options = l.Each.Kind, l.Each.Options
		}
	}
	if l.Store != nil {
		info.Store = l.Store.Name
	}
	for _, m := range l.Members {
		info.Members = append(info.Members, m.Name)
	}
	return info
}

// ExplainLimiter returns the limits of a shared limiter in words, as [File.Explain] writes them. It returns "" if there
// is no limiter of that name, and during [Section.Check], when limiters can have problems.
func (f *File) ExplainLimiter(name string) string {
	l := f.content.LimiterNamed[name]
	if l == nil || f.unchecked {
		return ""
	}
	return document.Visible(explain.Limits(l))
}

// A StrategyInfo describes a strategy of a file.
type StrategyInfo struct {
	Kind, Name string
	// Limiter is the limiter of a rate limiter. It is called "pipeline/strategy" if it is written in the strategy.
	Limiter LimiterInfo
	// Pipeline is the name of the pipeline that the strategy embeds.
	Pipeline string
}

// Strategies returns what the file says about the strategies of one of its pipelines, the outermost first.
func (f *File) Strategies(pipeline string) (all []StrategyInfo) {
	for _, p := range f.content.Pipelines {
		if p.Name != pipeline {
			continue
		}
		for _, s := range p.Strategies {
			info := StrategyInfo{Kind: s.Kind, Name: s.Name}
			if o, embeds := s.Options.(model.PipelineOptions); embeds {
				info.Pipeline = o.Name
			}
			if l := s.Limiter; l != nil {
				info.Limiter = infoOf(cmp.Or(l.Name, p.RegistryName(s, "")), l)
			}
			all = append(all, info)
		}
	}
	return all
}

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

// Error returns one line for each problem: "file:line:column: path: message".
func (e *FileError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		if lines[i] = p.String(); e.File != "" {
			lines[i] = e.File + ":" + lines[i]
		}
	}
	return strings.Join(lines, "\n")
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

// at returns err with the place in the file.
func (f *File) at(p document.Place, err error) error {
	return fmt.Errorf("%s:%d:%d: %s: %w", cmp.Or(f.name, "(file)"), p.Line, p.Column, p.Path, err)
}
