package reload

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
)

// writeExplanation writes what the named pipelines of f do, or all of them without names.
func writeExplanation(w io.Writer, f fileModel, names ...string) error {
	e := explainer{file: f, byName: make(map[string]*pipelineModel), retrying: make(map[string]bool)}
	var all []string
	for _, p := range f.pipelines {
		e.byName[p.name] = p
		all = append(all, p.name)
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
	file     fileModel
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
		words = explainHedging(o, subject) + e.budget(p, s)
	case circuitBreakerOptions:
		words = explainCircuitBreaker(o, subject)
	case fallbackOptions:
		words = explainFallback(o, subject)
	case chaosFaultOptions:
		words = explainFault(o, subject)
	case chaosLatencyOptions:
		words = explainLatency(o, subject)
	case chaosOutcomeOptions:
		words = explainChaos(o.Options, subject, "return what "+o.Outcome+" makes up")
	case chaosBehaviorOptions:
		words = explainChaos(o.Options, subject, "run "+o.Behavior+" first")
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
	if s.name != s.usual {
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
