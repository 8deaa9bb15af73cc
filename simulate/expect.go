package simulate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/simulate/internal/render"
)

// An Expectation is a condition on a [Result] or a [Comparison], such as "rejected < 1%". Make one with
// [ParseExpectation]. The zero Expectation is met by everything. An Expectation is safe for concurrent use.
type Expectation struct {
	text     string
	metric   *metric
	window   time.Duration // of most(1s); 0 if it was not said
	operator *operator
	kind     valueKind
	value    float64 // nanoseconds if kind is a duration, percent if it is a percentage
}

// An UnmetError says which [Expectation] is not met, and why.
type UnmetError struct {
	// Expectation is the text of the Expectation.
	Expectation string
	// Reason is what is instead, such as "rejected is 3.2% (32 of 1,000)".
	Reason string
}

// Error says what was expected, and what is instead.
func (e *UnmetError) Error() string { return "expected " + e.Expectation + ", but " + e.Reason }

type operator struct {
	name  string
	holds func(got, expected float64) bool
}

var operators = []operator{
	{"<=", func(a, b float64) bool { return a <= b }},
	{">=", func(a, b float64) bool { return a >= b }},
	{"!=", func(a, b float64) bool { return a != b }},
	{"<", func(a, b float64) bool { return a < b }},
	{">", func(a, b float64) bool { return a > b }},
	{"=", func(a, b float64) bool { return a == b }},
}

// ParseExpectation reads an expectation: a metric, an operator (<, <=, >, >=, = or !=) and a value, which is a number, a
// percentage such as 1% or a duration such as 250ms.
//
// These metrics are counts, and can be compared with a percentage of what they are a part of:
//
//   - admitted, queued, rejected, succeeded, failed, tried_again: executions, of those offered
//   - satisfied, unfinished: requests, of all requests
//   - retried: calls of the service, of all calls
//   - starved: keys that got nothing, see [KeyResult], of all keys
//   - newly_refused, no_longer_refused: requests of a [Comparison], of all requests
//
// These are counts only: requests, offered, calls, keys, most (permits in any window), most_of_key (permits of
// one key in any window). If Scenario.Windows has several lengths, the metric says which, as in "most(1s) <= 100".
//
// These are durations: latency_mean, latency_p50, latency_p90, latency_p95, latency_p99, latency_p999, latency_max, and
// wait_mean to wait_max and service_mean to service_max in the same way.
//
// jain, the fairness to keys, is a number from 0 to 1, see [KeyResult].
//
// A percentage of nothing, a quantile of nothing, and jain and starved where nothing was admitted meet no expectation: a
// simulation without requests does not pass.
func ParseExpectation(text string) (Expectation, error) {
	e, err := parseExpectation(text)
	if err != nil {
		return Expectation{}, fmt.Errorf("simulate: expectation %q: %w", render.Shorten(render.Printable(text), 100), err)
	}
	return e, nil
}

func parseExpectation(text string) (Expectation, error) {
	at := strings.IndexAny(text, "<>=!")
	if at < 0 {
		return Expectation{}, fmt.Errorf(`write a metric, an operator (<, <=, >, >=, = or !=) and a value, such as "rejected < 1%%"`)
	}
	end := at
	for end < len(text) && strings.IndexByte("<>=!~", text[end]) >= 0 {
		end++
	}
	i := slices.IndexFunc(operators, func(o operator) bool { return o.name == text[at:end] })
	if i < 0 {
		return Expectation{}, fmt.Errorf("there is no operator %q: write <, <=, >, >=, = or !=", text[at:end])
	}
	e := Expectation{operator: &operators[i]}
	name := strings.TrimSpace(text[:at])
	if err := e.setMetric(name); err != nil {
		return Expectation{}, err
	}
	value := strings.TrimSpace(text[end:])
	if err := e.setValue(value); err != nil {
		return Expectation{}, err
	}
	e.text = name + " " + e.operator.name + " " + value
	return e, nil
}

// setMetric finds the metric that a name stands for, such as "rejected" or "most(1s)".
func (e *Expectation) setMetric(text string) error {
	name, inside, brackets := strings.Cut(text, "(")
	name = strings.TrimSpace(name)
	e.metric = findMetric(name)
	switch {
	case name == "":
		return fmt.Errorf("there is no metric before the operator, such as rejected")
	case e.metric == nil:
		return fmt.Errorf("there is no metric %q; there are %s", render.Shorten(render.Printable(name), 40), metricNames())
	}
	if !brackets {
		return nil
	}
	inside, closed := strings.CutSuffix(inside, ")")
	inside = strings.TrimSpace(inside)
	if e.metric.most == nil {
		return fmt.Errorf("%s is a whole: write %s without brackets", e.metric.name, e.metric.name)
	}
	d, err := time.ParseDuration(inside)
	if err != nil || d <= 0 || !closed {
		return fmt.Errorf("the window of %s must be a duration, such as %s(1s)", e.metric.name, e.metric.name)
	}
	e.window = d
	return nil
}

// setValue reads a value, which must be of a kind that the metric has.
func (e *Expectation) setValue(text string) error {
	m := e.metric
	if text == "" {
		return fmt.Errorf("there is no value: %s", m.rightValue())
	}
	number, percent := strings.CutSuffix(text, "%")
	number = strings.TrimSpace(number)
	if v, ok := parseDecimal(number); ok {
		e.value, e.kind = v, kindNumber
		if percent {
			e.kind = kindPercent
		}
	} else if d, err := time.ParseDuration(text); err == nil {
		e.value, e.kind = float64(d), kindDuration
	} else {
		return fmt.Errorf("%q is no value: %s", text, m.rightValue())
	}
	switch {
	case e.kind == kindPercent && m.whole == nil, e.kind == kindDuration && m.kind != kindDuration,
		e.kind == kindNumber && m.kind == kindDuration && e.value != 0:
		return fmt.Errorf("%s is %s: %s", m.name, m.kind.describe(), m.rightValue())
	case e.value < 0:
		return fmt.Errorf("%s is never negative: %s", m.name, m.rightValue())
	case m.name == "jain" && e.value > 1:
		return fmt.Errorf("jain is never more than 1: %s", m.rightValue())
	case e.kind == kindNumber && m.kind == kindDuration:
		e.kind = kindDuration // 0 is a duration, too
	}
	return nil
}

// parseDecimal reads a decimal number. Commas would be read differently in different countries.
func parseDecimal(text string) (float64, bool) {
	if strings.Trim(text, "+-.0123456789eE") != "" {
		return 0, false
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil && !math.IsInf(v, 0)
}

// String returns the expectation as it was written, with a space on each side of the operator.
func (e Expectation) String() string { return e.text }

// NeedsComparison reports whether only [Expectation.CheckComparison] can check e.
func (e Expectation) NeedsComparison() bool { return e.metric != nil && e.metric.compared != nil }

// Check returns nil if r is as expected, and otherwise an [*UnmetError]. It returns another error if e needs a comparison,
// or a window that is not in Scenario.Windows.
func (e Expectation) Check(r *Result) error {
	if e.NeedsComparison() {
		return fmt.Errorf("simulate: expectation %q: %s needs a comparison of two results", e.text, e.metric.name)
	}
	return e.check(r, nil)
}

// CheckComparison is [Expectation.Check] for c.After. It also checks newly_refused and no_longer_refused. It returns an
// error that is not an UnmetError if e has one of these and c.OneByOne is false.
func (e Expectation) CheckComparison(c *Comparison) error {
	if e.NeedsComparison() && !c.OneByOne {
		return fmt.Errorf("simulate: expectation %q: %s", e.text, c.verdict())
	}
	return e.check(c.After, c)
}

func (e Expectation) check(r *Result, c *Comparison) error {
	m := e.metric
	if m == nil {
		return nil
	}
	var value, whole float64
	switch {
	case m.most != nil:
		most, err := e.mostOf(r)
		if err != nil {
			return fmt.Errorf("simulate: expectation %q: %w", e.text, err)
		}
		value = float64(m.most(most))
	case m.compared != nil:
		value = float64(m.compared(c))
	default:
		value = m.value(r)
	}
	if m.whole != nil {
		whole = float64(m.whole(r))
	}
	if math.IsNaN(value) || e.kind == kindPercent && whole == 0 {
		return &UnmetError{Expectation: e.text, Reason: "there is nothing to measure: " + m.nothing}
	}
	got, expected := value, e.value
	if e.kind == kindPercent {
		got, expected = value*100, e.value*whole // exact for whole numbers
	}
	if !e.operator.holds(got, expected) {
		return &UnmetError{Expectation: e.text, Reason: m.name + " is " + e.format(value, whole)}
	}
	return nil
}

func (e Expectation) mostOf(r *Result) (*Most, error) {
	windows := make([]string, len(r.Most))
	for i := range r.Most {
		if r.Most[i].Window == e.window || e.window == 0 && len(r.Most) == 1 {
			return &r.Most[i], nil
		}
		windows[i] = e.metric.name + "(" + render.Time(r.Most[i].Window) + ")"
	}
	if len(windows) == 0 {
		return nil, fmt.Errorf("the scenario has no windows")
	}
	if e.window != 0 {
		return nil, fmt.Errorf("the scenario has no window of %s; it has %s", render.Time(e.window), strings.Join(windows, " and "))
	}
	return nil, fmt.Errorf("write which window is meant: %s", strings.Join(windows, " or "))
}

// format returns a value in the kind of e.
func (e Expectation) format(value, whole float64) string {
	switch e.kind {
	case kindPercent:
		return render.Digits(value/whole*100, 4) + "% (" + render.Count(int64(value)) + " of " + render.Count(int64(whole)) + ")"
	case kindDuration:
		return time.Duration(value).String()
	}
	if e.metric.kind == kindIndex {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return render.Count(int64(value))
}

func (k valueKind) describe() string {
	return [...]string{"a count", "a percentage", "a duration", "a number from 0 to 1"}[k]
}

// rightValue says what can be compared with the metric.
func (m *metric) rightValue() string {
	switch {
	case m.kind == kindDuration:
		return "write a duration such as 250ms"
	case m.kind == kindIndex:
		return "write a number such as 0.95"
	case m.whole != nil:
		return "write a count such as 10, or a percentage of " + m.of + " such as 1%"
	}
	return "write a count such as 10"
}
