package reload

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
)

// Explain writes to w what the named pipelines do, in words, or all pipelines if there are no names. Each strategy is
// one line, the outermost first. If the options of a program's own kind have a method Explain() string, its result is
// used. The error is that of w, or says that the file has no pipeline of a name.
func (f *File) Explain(w io.Writer, names ...string) error {
	e := explainer{file: f, byName: make(map[string]*pipelineModel), retrying: make(map[string]bool)}
	for _, p := range f.pipelines {
		e.byName[p.name] = p
	}
	wanted := setOf(names)
	for _, name := range names {
		if e.byName[name] == nil {
			return fmt.Errorf("reload: there is no pipeline %s in the file, %s", document.Quoted(name), new(document.Suggester).Instead(name, f.Pipelines(), "nor any other"))
		}
	}
	e.findUsers()
	var b strings.Builder
	for _, p := range f.pipelines {
		if len(names) == 0 || wanted[p.name] {
			e.pipeline(&b, p)
		}
	}
	if len(names) == 0 {
		e.unused(&b)
	}
	_, err := io.WriteString(w, document.Visible(b.String()))
	return err
}

// An explainer knows what stands elsewhere in the file.
type explainer struct {
	file     *File
	byName   map[string]*pipelineModel
	users    map[*limiterModel][]string // pipelines that use a shared limiter
	spenders map[*budgetModel][]string  // pipelines that use a budget
	retrying map[string]bool            // pipelines that run what is inside more than once
}

func (e *explainer) findUsers() {
	e.users = make(map[*limiterModel][]string)
	e.spenders = make(map[*budgetModel][]string)
	for _, p := range e.file.pipelines {
		seen := make(map[*limiterModel]bool)
		for _, s := range p.strategies {
			e.use(s.limiter, p.name, seen)
			if s.budget != nil && !slices.Contains(e.spenders[s.budget], p.name) {
				e.spenders[s.budget] = append(e.spenders[s.budget], p.name)
			}
		}
	}
}

func (e *explainer) use(l *limiterModel, by string, seen map[*limiterModel]bool) {
	if l == nil || seen[l] {
		return
	}
	seen[l] = true
	e.users[l] = append(e.users[l], by)
	for _, m := range l.members {
		e.use(m, by, seen)
	}
}

func (e *explainer) unused(b *strings.Builder) {
	for _, l := range e.file.limiters {
		if len(e.users[l]) == 0 {
			fmt.Fprintf(b, "limiter %s is used by no pipeline\n", document.Name(l.name))
		}
	}
	for _, m := range e.file.budgets {
		if len(e.spenders[m]) == 0 {
			fmt.Fprintf(b, "budget %s is used by no pipeline\n", document.Name(m.name))
		}
	}
}

// pipeline writes one pipeline. What is inside of a retry, or of
// hedging, happens for each attempt.
func (e *explainer) pipeline(b *strings.Builder, p *pipelineModel) {
	fmt.Fprintf(b, "%s\n", document.Name(p.name))
	if len(p.strategies) == 0 {
		b.WriteString("  nothing but the call\n")
	}
	subject := "each execution"
	for i, s := range p.strategies {
		fmt.Fprintf(b, "  %d. %s\n", i+1, e.strategy(p, s, subject))
		if e.retries(s) {
			subject = "each attempt"
		}
	}
}

// retries tells whether what is inside of s may run more than once.
func (e *explainer) retries(s *strategyModel) bool {
	switch o := s.options.(type) {
	case retryOptions:
		return o.MaxRetries != int(off.value)
	case hedgingOptions:
		return o.MaxHedges != int(off.value)
	case pipelineOptions:
		known, ok := e.retrying[o.Name]
		if !ok {
			known = slices.ContainsFunc(e.byName[o.Name].strategies, e.retries)
			e.retrying[o.Name] = known
		}
		return known
	default:
		return false
	}
}

func (e *explainer) strategy(p *pipelineModel, s *strategyModel, subject string) string {
	var words string
	switch o := s.options.(type) {
	case retryOptions:
		words = subject + " " + explainRetry(o) + e.budget(p, s)
	case hedgingOptions:
		words = o.explain(subject) + e.budget(p, s)
	case interface{ explain(subject string) string }:
		words = o.explain(subject)
	case timeoutOptions:
		words = fmt.Sprintf("%s may take %s", subject, briefly(o.Timeout))
	case rateLimiterOptions:
		words = subject + " " + explainRateLimiter(o) + " of " + e.limiter(p, s.limiter)
		if o.Handle != "" {
			words += "; a failure is what " + document.Name(o.Handle) + " takes for one"
		}
	case pipelineOptions:
		words = fmt.Sprintf("%s runs through the pipeline %s", subject, document.Name(o.Name))
	default:
		words = fmt.Sprintf("%s runs through %s", subject, explainOwn(s.kind, s.options))
	}
	if kind := e.file.kinds.strategy(s.kind); kind != nil && s.name != kind.usual {
		words += fmt.Sprintf("; called %s", document.Name(s.name))
	}
	return words
}

// explainOwn is for kinds of the program.
func explainOwn(kind string, options any) string {
	if options == nil {
		return kind + ", which only the program knows"
	}
	if own, ok := options.(interface{ Explain() string }); ok {
		return own.Explain()
	}
	v := reflect.ValueOf(options)
	var set []string
	for _, f := range fieldsOf(v.Type()) {
		if f.function || f.isName() || v.FieldByIndex(f.index).IsZero() {
			continue
		}
		set = append(set, f.name+": "+f.written(v.FieldByIndex(f.index)))
	}
	if len(set) == 0 {
		return kind
	}
	return kind + " with " + strings.Join(set, ", ")
}

// written is a value as it could be written in a file, or nearly.
func (f field) written(v reflect.Value) string {
	for _, w := range f.words {
		if v.CanInt() && v.Int() == w.value || v.CanFloat() && v.Float() == float64(w.value) {
			return w.text
		}
	}
	return fmt.Sprint(reflect.Indirect(v))
}
