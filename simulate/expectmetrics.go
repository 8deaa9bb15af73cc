package simulate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-go/weir/simulate/internal/render"
)

// A kind is what values are.
type kind int

const (
	kindNumber kind = iota
	kindPercent
	kindDuration
	kindIndex // a number from 0 to 1
)

// describe says what a metric of that kind is.
func (k kind) describe() string {
	return [...]string{"a count", "a percentage", "a duration", "a number from 0 to 1"}[k]
}

// A metric is what an Expectation is about.
type metric struct {
	name     string
	kind     kind
	value    func(*Result) (float64, bool) // false if there was nothing to measure
	whole    func(*Result) int64           // what it is a part of; nil if it is no part
	of       string                        // the whole, in words
	nothing  string                        // why there is nothing to measure
	windowed bool
	most     func(*Most) int64
	compared func(*Comparison) int64
	parts    func(*Result) map[string]int64 // what it is made of, by names; nil if there are none
	reasons  bool                           // the names can be reasons
	example  string                         // of an expectation of a part

	inService string // the metric of the part that the service takes; "" if there is none
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

// metrics are all metrics, in the order of the documentation.
var metrics = makeMetrics()

func makeMetrics() []*metric {
	count := func(of func(*Result) int64) func(*Result) (float64, bool) {
		return func(r *Result) (float64, bool) { return float64(of(r)), true }
	}
	var all []*metric
	for _, t := range totals {
		m := &metric{name: t.name, value: count(t.count)}
		if t.whole != nil {
			m.whole, m.of, m.nothing = t.whole.count, t.of, "there were no "+strings.TrimPrefix(t.of, "the ")
		}
		switch t.name {
		case "rejected":
			m.parts, m.example = func(r *Result) map[string]int64 { return r.Rejections }, "rejected(orders/RateLimiter)"
		case "failed":
			m.parts, m.example, m.reasons = func(r *Result) map[string]int64 { return r.Failures }, "failed(orders/Timeout)", true
		}
		all = append(all, m)
	}
	for _, l := range lengths {
		for _, q := range quantiles {
			m := &metric{name: l.name + "_" + q.name, kind: kindDuration, nothing: l.none, value: func(r *Result) (float64, bool) {
				of := l.of(r)
				return float64(q.value(of)), of.Count > 0
			}}
			if l.name == "latency" {
				m.inService = "service_" + q.name
			}
			all = append(all, m)
		}
	}
	keys := func(r *Result) int64 { return int64(r.Keys.Count) }
	comeBacks := func(r *Result) int64 { return r.ComeBacks.Count }
	return append(
		all,
		&metric{name: "keys", value: count(keys)},
		&metric{name: "jain", kind: kindIndex, nothing: "there were no keys", value: func(r *Result) (float64, bool) { return r.Keys.Jain, r.Keys.Count > 0 }},
		&metric{name: "starved", value: count(func(r *Result) int64 { return int64(r.Keys.Starved) }), whole: keys, of: "the keys", nothing: "there were no keys"},
		&metric{name: "most", windowed: true, most: func(m *Most) int64 { return m.Permits }},
		&metric{name: "most_of_key", windowed: true, most: func(m *Most) int64 { return m.KeyPermits }},
		&metric{name: "come_backs", value: count(comeBacks)},
		&metric{
			name: "come_backs_admitted", value: count(func(r *Result) int64 { return r.ComeBacks.Admitted }), whole: comeBacks, of: "the come-backs",
			nothing: "no client came back when the Retry-After of a rejection had passed",
		},
		&metric{
			name: "newly_refused", compared: func(c *Comparison) int64 { return c.NewlyRefused }, whole: requests.count, of: "the requests", nothing: "there were no requests",
		},
		&metric{
			name: "no_longer_refused", compared: func(c *Comparison) int64 { return c.NoLongerRefused }, whole: requests.count, of: "the requests", nothing: "there were no requests",
		},
	)
}

func findMetric(name string) *metric {
	for _, m := range metrics {
		if m.name == name {
			return m
		}
	}
	return nil
}

// unknownMetric says what name could mean.
func unknownMetric(name string) error {
	if name == "" {
		return fmt.Errorf("there is no metric before the operator, such as rejected")
	}
	if m := findMetric(normal(name)); m != nil {
		return fmt.Errorf("there is no metric %q: did you mean %s?", name, m.name)
	}
	names := make([]string, len(metrics))
	var near []string
	for i, m := range metrics {
		names[i] = m.name
		if len(name) <= 40 && similar(normal(name), m.name) {
			near = append(near, m.name)
		}
	}
	if len(near) > 0 {
		return fmt.Errorf("there is no metric %q: did you mean %s?", render.Shorten(render.Printable(name), 40), strings.Join(near, " or "))
	}
	return fmt.Errorf("there is no metric %q; there are %s", render.Shorten(render.Printable(name), 40), strings.Join(names, ", "))
}

// normal returns name as metrics are written.
func normal(name string) string {
	return strings.NewReplacer(".", "_", "-", "_", " ", "_").Replace(strings.ToLower(name))
}

// similar reports whether a name could have been meant: all its words are in it, or it differs by a letter or two.
func similar(name, metric string) bool {
	if distance(name, metric) <= 1+len(name)/6 {
		return true
	}
	parts := strings.Split(metric, "_")
	for word := range strings.SplitSeq(name, "_") {
		if !slices.Contains(parts, word) {
			return false
		}
	}
	return true
}

// distance returns how many letters must be inserted, removed or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := diagonal
			if a[i] != b[j] {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
