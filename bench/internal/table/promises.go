package main

import (
	"fmt"
	"path"
	"strings"
)

const explanation = `
The values of ours and of the peer are medians. What is measured in relation to a peer is the median over the rounds of the
ratio, or of the difference, of the two in the same round. If one of them ran more often than the other, it is the ratio or
difference of their medians.
`

// printPromises prints the result of each promise with a measurement, and reports whether all of these are kept.
func (m *measurements) printPromises(w *strings.Builder) bool {
	fmt.Fprint(w, "| | ours | peer | measured | promised | |\n|---|--:|--:|--:|--:|---|\n")
	all := true
	for _, p := range promises {
		for _, s := range m.subjects {
			if matches, _ := path.Match(p.of, string(s)); matches {
				all = m.printPromise(w, &p, s) && all
			}
		}
	}
	fmt.Fprint(w, explanation)
	return all
}

func (m *measurements) printPromise(w *strings.Builder, p *promise, ours subject) (kept bool) {
	peer := ours.with(p.peer)
	v, ok := m.measured(p, ours, peer)
	if !ok {
		return true
	}
	verdict := "kept"
	switch {
	case p.relation == shown:
		verdict = ""
	case !p.kept(v):
		verdict = "**missed**"
	}
	_, rest := ours.by()
	if p.peer == "" {
		peer = ""
	}
	fmt.Fprintf(w, "| %s: %s | %s | %s | %s | %s | %s |\n",
		p.what, rest, m.contender(ours, p.unit), m.contender(peer, p.unit), p.format(v), p.promised(), verdict)
	return p.kept(v)
}

// measured returns the value that a promise is about. ok is false if it was not measured.
func (m *measurements) measured(p *promise, ours, peer subject) (v float64, ok bool) {
	us, them := m.runs[ours][p.unit], m.runs[peer][p.unit]
	switch {
	case p.peer == "":
		return median(us)
	case p.relation == atMostMore:
		return compare(us, them, func(us, them float64) float64 { return us - them })
	default:
		return compare(us, them, func(us, them float64) float64 { return us / them })
	}
}

// contender returns the name of a contender with its median.
func (m *measurements) contender(s subject, unit string) string {
	v, ok := m.median(s, unit)
	if !ok {
		return ""
	}
	by, _ := s.by()
	return by + " " + amount(v, unit)
}

func (p *promise) promised() string {
	switch p.relation {
	case shown:
		return ""
	case atLeast:
		return "≥ " + p.format(p.value)
	default:
		return "≤ " + p.format(p.value)
	}
}

func (p *promise) format(v float64) string {
	if p.peer == "" || p.relation == atMostMore {
		return amount(v, p.unit)
	}
	if v > 0 && v < 0.2 {
		return fmt.Sprintf("1/%.3g", 1/v)
	}
	return fmt.Sprintf("%.3g ×", v)
}

// amount formats a number of a benchmark.
func amount(v float64, unit string) string {
	switch {
	case unit == "ns/op", unit == "ns/key", strings.HasSuffix(unit, "-ns"):
		return duration(v)
	case strings.HasSuffix(unit, "/s"):
		return rounded(v) + "/s"
	case strings.HasPrefix(unit, "bytes"):
		return rounded(v) + " B"
	default:
		return fmt.Sprintf("%.3g", v)
	}
}
