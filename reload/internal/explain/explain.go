// Package explain describes the pipelines of a file, one line for each strategy: its kind, and its fields with their defaults.
// Only limiters have words of their own, and what pipelines share.
package explain

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/limiter"
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
			return fmt.Errorf("reload: there is no pipeline %s in the file, %s", document.Quoted(name), document.Instead(name, all, "nor any other"))
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
	var text string
	if own, ok := s.Options.(interface{ Explain() string }); kind.Explain != nil {
		text = kind.Explain(e.file, s.Options)
	} else if ok {
		text = own.Explain()
	} else {
		text = strings.Join(fields(s.Options, nil), "\n")
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
		fmt.Fprintf(b, "  %d. %s: %s\n", i+1, subject, e.strategy(p, s))
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

// strategy describes s.
func (e *explainer) strategy(p *model.Pipeline, s *model.Strategy) string {
	shared := make(map[string]string)
	if s.Limiter != nil {
		shared[model.LimiterField] = e.limiter(p, s.Limiter)
	}
	if m := s.Budget; m != nil {
		shared["budget"] = fmt.Sprintf("%s%s (%s)", document.Name(m.Name), e.sharedWith(m, p), strings.Join(fields(m.Options, nil), ", "))
	}
	return explainKind(s.Kind, s.Options, shared)
}

// explainKind describes the options of a kind, in which the file gives something else for the fields in shared.
func explainKind(kind string, options any, shared map[string]string) string {
	if options == nil {
		return kind + ", which only the program knows"
	}
	if own, ok := options.(interface{ Explain() string }); ok {
		return own.Explain()
	}
	set := strings.Join(fields(options, shared), ", ")
	return kind + when(set != "", " with %s", set)
}

// fields describes each field that a file sets or that has a default. For those in shared it has the text there.
func fields(options any, shared map[string]string) (all []string) {
	v := reflect.ValueOf(options)
	for _, f := range model.FieldsOf(v.Type()) {
		text, value := shared[f.Name], v.FieldByIndex(f.Index)
		switch {
		case text != "":
		case f.Function:
			continue
		case !value.IsZero() || f.Name == "enabled": // chaos strategies do nothing unless they are enabled
			text = format(f, value)
		case f.Default != "":
			text = f.Default
		default:
			continue
		}
		all = append(all, f.Name+": "+text)
	}
	return all
}

// format returns the value of a field, with the word that a file has for it if there is one.
func format(f model.Field, v reflect.Value) string {
	for _, w := range f.Words {
		if v.CanInt() && v.Int() == w.Value || v.CanFloat() && v.Float() == float64(w.Value) {
			return w.Text
		}
	}
	v = reflect.Indirect(v)
	if d, ok := reflect.TypeAssert[time.Duration](v); ok {
		return durationtext.Of(d)
	}
	if text, ok := reflect.TypeAssert[string](v); ok {
		return document.Name(text)
	}
	return fmt.Sprint(v)
}

// limiter describes the limiter of a strategy of p.
func (e *explainer) limiter(p *model.Pipeline, l *model.Limiter) string {
	if l.Name == "" {
		return "its own " + e.limits(p, l)
	}
	return fmt.Sprintf("%s%s (%s)", document.Name(l.Name), e.sharedWith(l, p), e.limits(p, l))
}

// limits describes the limits of l and its store.
func (e *explainer) limits(p *model.Pipeline, l *model.Limiter) string {
	text := e.limitsAlone(p, l)
	if l.Store != nil {
		set := strings.TrimSpace(model.Text(l.Store.LimiterOptions)) // without defaults, which depend on the kind of the limiter
		text += "; in the store " + document.Name(l.Store.Name) + when(set != "{}", " with %s", strings.ReplaceAll(set, "\n", ", "))
	}
	return text
}

// limitsAlone describes the limits of l.
func (e *explainer) limitsAlone(p *model.Pipeline, l *model.Limiter) string {
	switch o := l.Options.(type) {
	case limiter.Options:
		return o.Limits().String()
	case model.PartitionedOptions:
		text := "limiter for each " + document.Name(o.Key)
		if l.Store == nil { // a store does not keep unused keys
			text = explainKind(text, o.PartitionedOptions, nil)
		}
		return text + ", a " + e.limitsAlone(p, l.Each)
	}
	if describe := model.Learning[l.Kind].Describe; describe != nil {
		return describe(l.Options)
	}
	if l.Kind != model.ChainKind {
		return explainKind(l.Kind, l.Options, nil)
	}
	var members []string
	for _, m := range l.Members {
		members = append(members, e.limiter(p, m))
	}
	return "chain: " + strings.Join(members, " and then ")
}
