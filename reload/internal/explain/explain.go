// Package explain describes the pipelines of a file in words, one line for each strategy.
//
//   - explain.go: Write, and which pipelines share a limiter or budget.
//   - strategy.go, limiter.go: the words for their options.
package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// Write writes what the named pipelines and sections of f do, or all of them if there are no names. It returns an error
// if w returns one, or if f has neither a pipeline nor a section with one of the names.
func Write(w io.Writer, f *model.File, kinds map[string]model.SectionKind, names ...string) error {
	e := explainer{file: f, byName: make(map[string]*model.Pipeline), retrying: make(map[string]bool)}
	var all []string
	for _, p := range f.Pipelines {
		e.byName[p.Name] = p
		all = append(all, p.Name)
	}
	for _, s := range f.Sections {
		all = append(all, s.Name)
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("reload: there is no pipeline %s in the file, %s", document.Quoted(name), new(document.Suggester).Instead(name, all, "nor any other"))
		}
	}
	e.findUsers()
	var b strings.Builder
	for _, s := range f.Sections {
		if len(names) == 0 || slices.Contains(names, s.Name) {
			e.section(&b, s, kinds[s.Name])
		}
	}
	for _, p := range f.Pipelines {
		if len(names) == 0 || slices.Contains(names, p.Name) {
			e.pipeline(&b, p)
		}
	}
	if len(names) == 0 {
		e.unused(&b)
	}
	_, err := io.WriteString(w, document.Visible(b.String()))
	return err
}

// An explainer has what the description of one pipeline says about the others.
type explainer struct {
	file     *model.File
	byName   map[string]*model.Pipeline
	users    map[any][]string // the sections and pipelines that use a *model.Limiter or *model.Budget, in the order of the file
	retrying map[string]bool  // pipelines in which a strategy makes further attempts
}

// findUsers sets users.
func (e *explainer) findUsers() {
	e.users = make(map[any][]string)
	for _, s := range e.file.Sections {
		for _, name := range slices.Sorted(maps.Keys(s.Limiters)) {
			e.addLimiterUser(s.Limiters[name], s.Name)
		}
	}
	for _, p := range e.file.Pipelines {
		for _, s := range p.Strategies {
			if s.Limiter != nil {
				e.addLimiterUser(s.Limiter, p.Name)
			}
			if s.Budget != nil {
				e.addUser(s.Budget, p.Name)
			}
		}
	}
}

// addUser adds a user of a limiter or budget. All uses of one user are added before those of the next.
func (e *explainer) addUser(of any, user string) {
	if users := e.users[of]; len(users) == 0 || users[len(users)-1] != user {
		e.users[of] = append(users, user)
	}
}

func (e *explainer) addLimiterUser(l *model.Limiter, user string) {
	e.addUser(l, user)
	for _, m := range l.Members {
		e.addUser(m, user)
	}
}

// sharedWith names the users of a limiter or budget other than the pipeline p.
func (e *explainer) sharedWith(of any, p *model.Pipeline) string {
	var others []string
	for _, name := range e.users[of] {
		if name != p.Name {
			others = append(others, document.Name(name))
		}
	}
	return when(len(others) > 0, ", shared with %s", strings.Join(others, ", "))
}

// unused writes the limiters and budgets that no pipeline uses.
func (e *explainer) unused(b *strings.Builder) {
	for _, l := range e.file.Limiters {
		if len(e.users[l]) == 0 {
			fmt.Fprintf(b, "limiter %s is used by no pipeline\n", document.Name(l.Name))
		}
	}
	for _, m := range e.file.Budgets {
		if len(e.users[m]) == 0 {
			fmt.Fprintf(b, "budget %s is used by no pipeline\n", document.Name(m.Name))
		}
	}
}

// section writes what the program says of its section or, if it says nothing, what the file sets in it.
func (e *explainer) section(b *strings.Builder, s *model.Section, kind model.SectionKind) {
	fmt.Fprintf(b, "%s\n", document.Name(s.Name))
	text := ""
	if own, ok := s.Options.(interface{ Explain() string }); kind.Explain != nil {
		text = kind.Explain(e.file, s.Options)
	} else if ok {
		text = own.Explain()
	} else {
		text = strings.Join(fieldsSet(s.Options, true), "\n")
	}
	for line := range strings.Lines(text) {
		b.WriteString("  " + strings.TrimRight(line, "\n") + "\n")
	}
}

// pipeline writes one pipeline. The strategies inside a retry or hedging run for each attempt.
func (e *explainer) pipeline(b *strings.Builder, p *model.Pipeline) {
	fmt.Fprintf(b, "%s\n", document.Name(p.Name))
	if len(p.Strategies) == 0 {
		b.WriteString("  nothing but the call\n")
	}
	subject := "each execution"
	for i, s := range p.Strategies {
		fmt.Fprintf(b, "  %d. %s\n", i+1, e.strategy(p, s, subject))
		if e.retries(s) {
			subject = "each attempt"
		}
	}
}

// retries reports whether s can run what is inside it more than once.
func (e *explainer) retries(s *model.Strategy) bool {
	switch o := s.Options.(type) {
	case model.RetryOptions:
		return o.MaxRetries != int(model.Off.Value)
	case model.HedgingOptions:
		return o.MaxHedges != int(model.Off.Value)
	case model.PipelineOptions:
		known, ok := e.retrying[o.Name]
		if !ok {
			known = slices.ContainsFunc(e.byName[o.Name].Strategies, e.retries)
			e.retrying[o.Name] = known
		}
		return known
	default:
		return false
	}
}

// Limits describes the limits of a limiter of the file, and its store.
func Limits(l *model.Limiter) string {
	return new(explainer).limits(&model.Pipeline{}, l)
}

// when returns the text if the condition holds, and otherwise nothing.
func when(condition bool, format string, args ...any) string {
	if !condition {
		return ""
	}
	return fmt.Sprintf(format, args...)
}
