// Package explain describes the pipelines of a file in words, one line for each strategy.
//
//   - explain.go: Write, and what is said of pipelines and strategies.
//   - limiter.go, store.go, retry.go, failure.go, chaos.go: what is said of their options.
package explain

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// Write writes what the named pipelines of f do, or all pipelines if there are no names. The error is that of w, or
// says that f has no pipeline of a name.
func Write(w io.Writer, f *model.File, names ...string) error {
	e := explainer{file: f, byName: make(map[string]*model.Pipeline), retrying: make(map[string]bool)}
	var all []string
	for _, p := range f.Pipelines {
		e.byName[p.Name] = p
		all = append(all, p.Name)
	}
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		if e.byName[name] == nil {
			return fmt.Errorf("reload: there is no pipeline %s in the file, %s", document.Quoted(name), new(document.Suggester).Instead(name, all, "nor any other"))
		}
		wanted[name] = true
	}
	e.findUsers()
	var b strings.Builder
	for _, p := range f.Pipelines {
		if len(names) == 0 || wanted[p.Name] {
			e.pipeline(&b, p)
		}
	}
	if len(names) == 0 {
		e.unused(&b)
	}
	_, err := io.WriteString(w, document.Visible(b.String()))
	return err
}

// An explainer has what the lines of one pipeline need of the others.
type explainer struct {
	file     *model.File
	byName   map[string]*model.Pipeline
	users    map[*model.Limiter][]string // the pipelines that use a shared limiter
	spenders map[*model.Budget][]string  // the pipelines that use a budget
	retrying map[string]bool             // pipelines in which a strategy makes further attempts
}

// findUsers sets users and spenders.
func (e *explainer) findUsers() {
	e.users = make(map[*model.Limiter][]string)
	e.spenders = make(map[*model.Budget][]string)
	for _, p := range e.file.Pipelines {
		seen := make(map[*model.Limiter]bool)
		for _, s := range p.Strategies {
			e.use(s.Limiter, p.Name, seen)
			if s.Budget != nil && !slices.Contains(e.spenders[s.Budget], p.Name) {
				e.spenders[s.Budget] = append(e.spenders[s.Budget], p.Name)
			}
		}
	}
}

// use adds a pipeline to the users of l and of the members of l.
func (e *explainer) use(l *model.Limiter, by string, seen map[*model.Limiter]bool) {
	if l == nil || seen[l] {
		return
	}
	seen[l] = true
	e.users[l] = append(e.users[l], by)
	for _, m := range l.Members {
		e.use(m, by, seen)
	}
}

// unused writes the limiters and budgets that no pipeline uses.
func (e *explainer) unused(b *strings.Builder) {
	for _, l := range e.file.Limiters {
		if len(e.users[l]) == 0 {
			fmt.Fprintf(b, "limiter %s is used by no pipeline\n", document.Name(l.Name))
		}
	}
	for _, m := range e.file.Budgets {
		if len(e.spenders[m]) == 0 {
			fmt.Fprintf(b, "budget %s is used by no pipeline\n", document.Name(m.Name))
		}
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

// strategy returns the line of s. subject is what runs through s: each execution, or each attempt.
func (e *explainer) strategy(p *model.Pipeline, s *model.Strategy, subject string) string {
	var words string
	switch o := s.Options.(type) {
	case model.RetryOptions:
		words = subject + " " + explainRetry(o) + e.budget(p, s)
	case model.HedgingOptions:
		words = explainHedging(o, subject) + e.budget(p, s)
	case model.CircuitBreakerOptions:
		words = explainCircuitBreaker(o, subject)
	case model.FallbackOptions:
		words = explainFallback(o, subject)
	case model.ChaosFaultOptions:
		words = explainFault(o, subject)
	case model.ChaosLatencyOptions:
		words = explainLatency(o, subject)
	case model.ChaosOutcomeOptions:
		words = explainChaos(o.Options, subject, "return what "+o.Outcome+" makes up")
	case model.ChaosBehaviorOptions:
		words = explainChaos(o.Options, subject, "run "+o.Behavior+" first")
	case model.TimeoutOptions:
		words = fmt.Sprintf("%s may take %s", subject, briefly(o.Timeout))
	case model.RateLimiterOptions:
		words = subject + " " + explainRateLimiter(o) + " of " + e.limiter(p, s.Limiter)
		if o.Handle != "" {
			words += "; a failure is what " + document.Name(o.Handle) + " takes for one"
		}
	case model.PipelineOptions:
		words = fmt.Sprintf("%s runs through the pipeline %s", subject, document.Name(o.Name))
	default:
		words = fmt.Sprintf("%s runs through %s", subject, explainOwn(s.Kind, s.Options))
	}
	if s.Name != s.DefaultName {
		words += fmt.Sprintf("; called %s", document.Name(s.Name))
	}
	return words
}

// explainOwn describes the options of a kind of the program.
func explainOwn(kind string, options any) string {
	if options == nil {
		return kind + ", which only the program knows"
	}
	if own, ok := options.(interface{ Explain() string }); ok {
		return own.Explain()
	}
	v := reflect.ValueOf(options)
	var set []string
	for _, f := range model.FieldsOf(v.Type()) {
		if f.Function || f.IsName() || v.FieldByIndex(f.Index).IsZero() {
			continue
		}
		set = append(set, f.Name+": "+f.Written(v.FieldByIndex(f.Index)))
	}
	if len(set) == 0 {
		return kind
	}
	return kind + " with " + strings.Join(set, ", ")
}
