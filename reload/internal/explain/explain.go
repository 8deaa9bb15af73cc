// Package explain describes the pipelines of a file in words, one line for each strategy.
//
//   - explain.go: Write, which pipelines share a limiter or budget, and the words for strategies.
//   - limiter.go: the words for limiters.
package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/retry"
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

// strategy returns the line of s. subject is what runs through s: each execution, or each attempt.
func (e *explainer) strategy(p *model.Pipeline, s *model.Strategy, subject string) string {
	words := subject + " "
	switch o := s.Options.(type) {
	case model.RetryOptions:
		words += explainRetry(o) + e.budget(p, s)
	case model.HedgingOptions:
		words += explainHedging(o) + e.budget(p, s)
	case model.CircuitBreakerOptions:
		words += explainCircuitBreaker(o)
	case model.FallbackOptions:
		words += "falls back to " + o.Action + when(o.Handle != "", " if %s says so", o.Handle)
	case model.ChaosFaultOptions:
		words = explainChaos(o.Options, subject, "fail"+when(o.Error != "", " with %s", o.Error))
	case model.ChaosLatencyOptions:
		longer := "no"
		if latency := cmp.Or(o.Latency, chaos.DefaultLatency); latency > 0 {
			longer = durationtext.Of(latency)
		}
		words = explainChaos(o.Options, subject, "take "+longer+" longer")
	case model.ChaosOutcomeOptions:
		words = explainChaos(o.Options, subject, "return what "+o.Outcome+" makes up")
	case model.ChaosBehaviorOptions:
		words = explainChaos(o.Options, subject, "run "+o.Behavior+" first")
	case model.TimeoutOptions:
		words += "may take " + durationtext.Of(o.Timeout)
	case model.RateLimiterOptions:
		words += e.rateLimiter(p, s.Limiter, o)
	case model.PipelineOptions:
		words += "runs through the pipeline " + document.Name(o.Name)
	default: // of the program
		words += "runs through " + explainOwn(s.Kind, s.Options)
	}
	return words + when(s.Name != s.DefaultName, "; called %s", document.Name(s.Name))
}

// explainOwn describes the options of a kind of the program.
func explainOwn(kind string, options any) string {
	if options == nil {
		return kind + ", which only the program knows"
	}
	if own, ok := options.(interface{ Explain() string }); ok {
		return own.Explain()
	}
	if set := fieldsSet(options, false); len(set) > 0 {
		return kind + " with " + strings.Join(set, ", ")
	}
	return kind
}

// fieldsSet describes each field that a file sets.
func fieldsSet(options any, withName bool) (set []string) {
	v := reflect.ValueOf(options)
	for _, f := range model.FieldsOf(v.Type()) {
		if !f.Function && (withName || !f.IsName()) && !v.FieldByIndex(f.Index).IsZero() {
			set = append(set, f.Name+": "+f.Format(v.FieldByIndex(f.Index)))
		}
	}
	return set
}

// explainRetry describes a retry, without its budget.
func explainRetry(o model.RetryOptions) string {
	full := retry.New(&o.Options).Options() // with the defaults
	var words string
	switch {
	case full.MaxRetries <= 0:
		return "is not retried"
	case full.MaxRetries == retry.Forever:
		words = "is retried until it succeeds"
	case full.MaxRetries == 1:
		words = "is retried once"
	default:
		words = fmt.Sprintf("is retried up to %d times", full.MaxRetries)
	}
	words += when(o.Handle != "", " if %s says so", o.Handle) + explainWaits(full) +
		when(full.MaxDuration > 0, ", for %s at most", durationtext.Of(full.MaxDuration))
	switch {
	case full.IgnoreRetryAfter:
		words += ", whatever a failure asks for"
	case full.MaxRetryAfter < 0:
		words += ", or as long as a failure asks for"
	case full.MaxRetryAfter != retry.DefaultMaxRetryAfter:
		words += ", or up to " + durationtext.Of(full.MaxRetryAfter) + " if a failure asks for it"
	}
	return words
}

func explainWaits(o retry.Options) string {
	if o.Delay <= 0 {
		return ", at once"
	}
	const most = 3 // how many waits are listed; if all further ones are the same, the list ends with the first of these
	var waits []string
	more := o.MaxRetries > most
	for attempt := range min(o.MaxRetries, most) {
		d := durationtext.Of(wait(o, attempt))
		if wait(o, attempt) == wait(o, attempt+1) && o.MaxRetries > attempt+1 {
			waits, more = []string{strings.Join(append(waits, d+" each"), ", then ")}, false
			break
		}
		waits = append(waits, d)
	}
	words := ", after " + strings.Join(waits, ", ") + when(more, " and so on") +
		when(more && o.MaxDelay > 0, ", up to %s", durationtext.Of(o.MaxDelay))
	switch {
	case o.Jitter && o.Backoff == retry.Exponential:
		words += " (full jitter: a random part of that)"
	case o.Jitter:
		words += " (jitter: up to a quarter more or less)"
	}
	return words
}

// wait returns the backoff after that attempt, counted from 0, without jitter.
func wait(o retry.Options, attempt int) time.Duration {
	d := o.Backoff.Delay(o.Delay, attempt)
	if o.MaxDelay > 0 {
		d = min(d, o.MaxDelay)
	}
	return d
}

// explainHedging describes hedging, without its budget.
func explainHedging(o model.HedgingOptions) string {
	hedges := cmp.Or(o.MaxHedges, hedge.DefaultMaxHedges)
	failed, refused := accordingTo(o.Handle), when(o.AfterRefusal, ", also after a refusal")
	switch delay := cmp.Or(o.Delay, hedge.DefaultDelay); {
	case hedges < 0:
		return "is not hedged"
	case o.AtOnce:
		return fmt.Sprintf("is hedged: %d attempts at once", hedges+1) + when(o.Handle != "", ", and one that failed%s does not win", failed)
	case delay < 0:
		return fmt.Sprintf("is hedged: another attempt when one has failed%s, %d at most", failed, hedges) + refused
	case hedges == 1:
		return fmt.Sprintf("is hedged: a second attempt after %s or a failure%s, 1 at most", durationtext.Of(delay), failed) + refused
	default:
		return fmt.Sprintf("is hedged: another attempt after %s each or a failure%s, %d at most", durationtext.Of(delay), failed, hedges) + refused
	}
}

// accordingTo names the function that reports failures, if there is one.
func accordingTo(handle string) string { return when(handle != "", " as %s tells", handle) }

// budget describes the budget that further attempts of s are taken from.
func (e *explainer) budget(p *model.Pipeline, s *model.Strategy) string {
	m := s.Budget
	if m == nil || !e.retries(s) {
		return ""
	}
	o := m.WithDefaults()
	var parts []string
	if o.Ratio > 0 {
		parts = append(parts, percent(o.Ratio)+" of the executions")
	}
	if o.MinPerSecond > 0 {
		parts = append(parts, fmt.Sprintf("%d a second", o.MinPerSecond))
	}
	size := "which has none"
	if len(parts) > 0 {
		size = strings.Join(parts, " and ") + ", over " + durationtext.Of(o.Window)
	}
	return fmt.Sprintf(", out of the budget %s%s (%s)", document.Name(m.Name), e.sharedWith(m, p), size)
}

func explainCircuitBreaker(o model.CircuitBreakerOptions) string {
	full := circuitbreaker.New(&o.Options).Options() // with the defaults
	var rules []string
	if full.FailureRatio > 0 {
		rules = append(rules, fmt.Sprintf("%s of at least %d in %s", percent(full.FailureRatio), full.MinimumThroughput, durationtext.Of(full.SamplingDuration)))
	}
	if full.ConsecutiveFailures > 0 {
		rules = append(rules, fmt.Sprintf("%d in a row", full.ConsecutiveFailures))
	}
	words := "fails fast"
	if len(rules) > 0 {
		words += fmt.Sprintf(" for %s once %s have failed%s", durationtext.Of(full.BreakDuration), document.Alternatives(rules), accordingTo(o.Handle)) +
			when(full.HalfOpenProbes > 1, ", and then until %d probes have succeeded", full.HalfOpenProbes) +
			when(full.RetryRejections, "; a retry outside waits until then") +
			when(o.Control != "", ", and")
	}
	return words + when(o.Control != "", " while isolated with %s", o.Control)
}

// explainChaos describes a chaos strategy. what says what the executions that it affects do, such as "fail".
func explainChaos(o chaos.Options, subject, what string) string {
	part := "none"
	if rate := cmp.Or(o.Rate, chaos.DefaultRate); rate > 0 {
		part = percent(rate)
	}
	return "chaos: " + part + " of the " + strings.TrimPrefix(subject, "each ") + "s " + what +
		when(!o.Enabled, ", when enabled; it is off")
}

// percent returns a ratio as a percentage: 0.001 is 0.1%.
func percent(ratio float64) string { return strconv.FormatFloat(ratio*100, 'g', 6, 64) + "%" }

func (e *explainer) rateLimiter(p *model.Pipeline, l *model.Limiter, o model.RateLimiterOptions) string {
	words := "takes a permit"
	if o.Permits != "" {
		words = "takes as many permits as " + o.Permits + " says"
	}
	return words + when(o.Shadow, " if it can, and goes on if not (shadow),") + " of " + e.limiter(p, l) +
		when(o.Handle != "", "; %s reports what a failure is", document.Name(o.Handle))
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
	return e.limitsAlone(p, l) + explainStore(l.Store)
}

// limitsAlone describes the limits of l.
func (e *explainer) limitsAlone(p *model.Pipeline, l *model.Limiter) string {
	switch o := l.Options.(type) {
	case limiter.Options:
		return o.Limits().String()
	case adaptive.LimiterOptions:
		return explainAdaptive(o) + rate.QueueText(o.QueueLimit, o.QueueOrder)
	case adaptive.ThrottlerOptions:
		return explainThrottler(o)
	case model.PartitionedOptions:
		return fmt.Sprintf("limiter for each %s, a %s", o.Key, e.limitsAlone(p, l.Each)) + partitions(o.PartitionedOptions)
	case nil:
		if l.Kind == "chain" {
			return e.chain(p, l)
		}
	case struct{}:
		if l.Kind == "unlimited" {
			return "unlimited limiter: it only counts"
		}
	}
	return explainOwn(l.Kind, l.Options)
}

func explainAdaptive(o adaptive.LimiterOptions) string {
	// Only options whose defaults depend on each other are passed on: others can make a limiter that needs much memory.
	l, err := adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: o.MinLimit, MaxLimit: o.MaxLimit, InitialLimit: o.InitialLimit})
	if err == nil { // Parse has refused options that cause an error
		o = l.Options()
	}
	return fmt.Sprintf("adaptive limiter: %d to %d at once, %d at first", o.MinLimit, o.MaxLimit, o.InitialLimit)
}

func explainThrottler(o adaptive.ThrottlerOptions) string {
	if t, err := adaptive.NewThrottler(&o); err == nil { // Parse has refused options that cause an error
		o = t.Options()
	}
	return fmt.Sprintf("throttler: it rejects up to %s while more than %s of at least %d in %s fail",
		percent(o.MaxRejectionRate), percent(o.FailureRate), max(o.MinExecutions, 1), durationtext.Of(o.Period))
}

func (e *explainer) chain(p *model.Pipeline, l *model.Limiter) string {
	var members []string
	for _, m := range l.Members {
		members = append(members, e.limiter(p, m))
	}
	return "chain: " + strings.Join(members, " and then ")
}

func partitions(o limiter.PartitionedOptions) string {
	return when(o.MaxPartitions > 0, "; up to %d of them", o.MaxPartitions) +
		when(o.IdleTimeout > 0, "; forgotten when idle for %s", durationtext.Of(o.IdleTimeout))
}

// explainStore describes the store of a limiter.
func explainStore(m *model.Store) string {
	if m == nil {
		return ""
	}
	outage := "rejects"
	switch m.Outage {
	case store.FailOpen:
		outage = "grants everything"
	case store.FallBackLocally:
		outage = percent(m.LocalShare) + " of the limit in the process"
	}
	return "; in the store " + m.Name + ", " + outage + " while the store is unavailable" +
		when(m.Block > 1, ", takes up to %d permits at once", m.Block) +
		when(m.CacheRejections, ", remembers rejections") +
		when(m.Generation > 0, ", generation %d", m.Generation) +
		when(m.LeaseTTL > 0, ", leases of an instance that has died end after %s", durationtext.Of(m.LeaseTTL))
}
