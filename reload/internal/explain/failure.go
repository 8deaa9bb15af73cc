package explain

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/hedge"
)

// explainCircuitBreaker describes a circuit breaker.
func explainCircuitBreaker(o model.CircuitBreakerOptions, subject string) string {
	full := circuitbreaker.New(&o.Options).Options() // with the defaults
	words := subject + " fails fast"
	if rules := explainCircuitRules(full); rules != "" {
		words += fmt.Sprintf(" for %s once %s have failed%s", briefly(full.BreakDuration), rules, as(o.Handle))
		if full.HalfOpenProbes > 1 {
			words += fmt.Sprintf(", and then until %d probes have succeeded", full.HalfOpenProbes)
		}
		if o.Control != "" {
			words += ", and"
		}
	}
	if o.Control != "" {
		words += " while isolated with " + o.Control
	}
	return words
}

// explainCircuitRules describes what opens the circuit.
func explainCircuitRules(o circuitbreaker.Options) string {
	var rules []string
	if o.FailureRatio > 0 {
		rules = append(rules, fmt.Sprintf("%s of at least %d in %s", percent(o.FailureRatio), o.MinimumThroughput, briefly(o.SamplingDuration)))
	}
	if o.ConsecutiveFailures > 0 {
		rules = append(rules, fmt.Sprintf("%d in a row", o.ConsecutiveFailures))
	}
	return document.Alternatives(rules)
}

// as names the function that reports failures, if there is one.
func as(handle string) string {
	if handle == "" {
		return ""
	}
	return " as " + handle + " tells"
}

// percent returns a ratio as a percentage: 0.001 is 0.1%.
func percent(ratio float64) string { return strconv.FormatFloat(ratio*100, 'g', 6, 64) + "%" }

// explainFallback describes a fallback.
func explainFallback(o model.FallbackOptions, subject string) string {
	words := subject + " falls back to " + o.Action
	if o.Handle != "" {
		words += " if " + o.Handle + " says so"
	}
	return words
}

// explainHedging describes hedging, without its budget.
func explainHedging(o model.HedgingOptions, subject string) string {
	hedges := cmp.Or(o.MaxHedges, hedge.DefaultMaxHedges)
	if hedges < 0 {
		return subject + " is not hedged"
	}
	words := subject + " is hedged: "
	switch delay := cmp.Or(o.Delay, hedge.DefaultDelay); {
	case o.AtOnce:
		words += fmt.Sprintf("%d attempts at once", hedges+1)
		if o.Handle != "" {
			words += ", and one that failed" + as(o.Handle) + " does not win"
		}
	case delay < 0:
		words += fmt.Sprintf("another attempt when one has failed%s, %d at most", as(o.Handle), hedges)
	case hedges == 1:
		words += fmt.Sprintf("a second attempt after %s or a failure%s, 1 at most", briefly(delay), as(o.Handle))
	default:
		words += fmt.Sprintf("another attempt after %s each or a failure%s, %d at most", briefly(delay), as(o.Handle), hedges)
	}
	return words
}

// budget describes the budget that further attempts of s are taken from.
func (e *explainer) budget(p *model.Pipeline, s *model.Strategy) string {
	m := s.Budget
	if m == nil || !e.retries(s) {
		return ""
	}
	return fmt.Sprintf(", out of the budget %s%s (%s)", document.Name(m.Name), sharedWith(e.spenders[m], p.Name), explainBudget(m))
}

// explainBudget describes the options of a budget.
func explainBudget(m *model.Budget) string {
	o := m.Full()
	var parts []string
	if o.Ratio > 0 {
		parts = append(parts, percent(o.Ratio)+" of the executions")
	}
	if o.MinPerSecond > 0 {
		parts = append(parts, fmt.Sprintf("%d a second", o.MinPerSecond))
	}
	if len(parts) == 0 {
		return "which has none"
	}
	return strings.Join(parts, " and ") + ", over " + briefly(o.Window)
}
