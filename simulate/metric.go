package simulate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/simulate/internal/render"
)

// A metric is a number of a [Result] or a [Comparison]: what expectations and tables call it, and where it is.
type metric struct {
	name     string // as in an Expectation and in JSON
	label    string // as in a table; "": it is in none
	kind     valueKind
	count    func(*Result) int64     // nil: it is no count
	measured func(*Result) float64   // in place of the count; NaN if there was nothing to measure
	whole    func(*Result) int64     // what it is a part of; nil: it is no part
	of       string                  // the whole, in words
	nothing  string                  // why there was nothing to measure
	most     func(*Most) int64       // of a window, in place of count and measured
	compared func(*Comparison) int64 // of a comparison, in place of count and measured
}

type valueKind int

const (
	kindNumber valueKind = iota
	kindPercent
	kindDuration
	kindIndex // a number from 0 to 1
)

func (m *metric) value(r *Result) float64 {
	if m.measured != nil {
		return m.measured(r)
	}
	return float64(m.count(r))
}

// text returns the value as tables show it.
func (m *metric) text(r *Result) string {
	v := m.value(r)
	switch {
	case math.IsNaN(v):
		return "–"
	case m.kind == kindDuration:
		return render.Duration(time.Duration(v))
	case m.kind == kindIndex:
		return formatIndex(v)
	}
	return render.Count(m.count(r))
}

// formatIndex returns Jain's index with three digits. Only 1 is "1".
func formatIndex(v float64) string {
	if v > 0.9995 && v < 1 {
		return ">0.999"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.3f", v), ".000")
}

// share returns the value as a percentage of its whole, or "" if it has none.
func (m *metric) share(r *Result) string {
	if m.whole == nil {
		return ""
	}
	return render.Share(m.count(r), m.whole(r))
}

// change returns the difference of two values as tables show it.
func (m *metric) change(before, after *Result) string {
	was, is := m.value(before), m.value(after)
	switch {
	case math.IsNaN(is - was):
		return "–"
	case m.kind == kindDuration:
		return render.Change(time.Duration(is)-time.Duration(was), render.Duration)
	case m.kind == kindIndex:
		return render.Number(is - was)
	}
	return render.Change(m.count(after)-m.count(before), render.Count)
}

func total(name, label string, count func(*Counts) int64) *metric {
	return &metric{name: name, label: label, count: func(r *Result) int64 { return count(&r.Total) }}
}

// partOf says what m is a part of.
func (m *metric) partOf(whole *metric, words string) *metric {
	m.label, m.whole, m.of, m.nothing = "  "+m.label, whole.count, "the "+words, "there were no "+words
	return m
}

var (
	requests = total("requests", "Requests", func(c *Counts) int64 { return c.Requests })
	offered  = total("offered", "Executions offered", func(c *Counts) int64 { return c.Offered })
	calls    = total("calls", "Calls of the service", func(c *Counts) int64 { return c.Calls })
)

// totals are the counts of a Result in the order of its tables.
var totals = []*metric{
	requests,
	total("satisfied", "satisfied", func(c *Counts) int64 { return c.Satisfied }).partOf(requests, "requests"),
	total("unfinished", "unfinished", func(c *Counts) int64 { return c.Unfinished }).partOf(requests, "requests"),
	offered,
	total("admitted", "admitted", func(c *Counts) int64 { return c.Admitted }).partOf(offered, "executions"),
	total("queued", "queued", func(c *Counts) int64 { return c.Queued }).partOf(offered, "executions"),
	total("rejected", "rejected", func(c *Counts) int64 { return c.Rejected }).partOf(offered, "executions"),
	total("succeeded", "succeeded", func(c *Counts) int64 { return c.Succeeded }).partOf(offered, "executions"),
	total("failed", "failed", func(c *Counts) int64 { return c.Failed }).partOf(offered, "executions"),
	total("tried_again", "tried again by clients", func(c *Counts) int64 { return c.TriedAgain }).partOf(offered, "executions"),
	calls,
	total("retried", "retried by the pipeline", func(c *Counts) int64 { return c.Retried }).partOf(calls, "calls"),
}

// refusals are the metrics of a Comparison whose requests can be compared one by one.
var refusals = []*metric{
	{
		name: "newly_refused", label: "Requests newly refused", compared: func(c *Comparison) int64 { return c.NewlyRefused },
		whole: requests.count, of: "the requests", nothing: "there were no requests",
	},
	{
		name: "no_longer_refused", label: "Requests no longer refused", compared: func(c *Comparison) int64 { return c.NoLongerRefused },
		whole: requests.count, of: "the requests", nothing: "there were no requests",
	},
}

var quantiles = []struct {
	name  string // as in an Expectation and in JSON
	label string // as in a table
	value func(*Quantiles) time.Duration
}{
	{"mean", "mean", func(q *Quantiles) time.Duration { return q.Mean }},
	{"p50", "p50", func(q *Quantiles) time.Duration { return q.P50 }},
	{"p90", "p90", func(q *Quantiles) time.Duration { return q.P90 }},
	{"p95", "p95", func(q *Quantiles) time.Duration { return q.P95 }},
	{"p99", "p99", func(q *Quantiles) time.Duration { return q.P99 }},
	{"p999", "p99.9", func(q *Quantiles) time.Duration { return q.P999 }},
	{"max", "max", func(q *Quantiles) time.Duration { return q.Max }},
}

// A length is a length of time that is measured, with a metric for each of the quantiles.
type length struct {
	label   string
	of      func(*Result) *Quantiles
	metrics []*metric
}

func newLength(name, label, nothing string, of func(*Result) *Quantiles) length {
	l := length{label: label, of: of}
	for _, q := range quantiles {
		l.metrics = append(l.metrics, &metric{name: name + "_" + q.name, label: q.label, kind: kindDuration, nothing: nothing, measured: func(r *Result) float64 {
			if of(r).Count == 0 {
				return math.NaN()
			}
			return float64(q.value(of(r)))
		}})
	}
	return l
}

var lengths = []length{
	newLength("latency", "Latency", "no execution succeeded", func(r *Result) *Quantiles { return &r.Latency }),
	newLength("wait", "Wait for a permit", "no execution got a permit", func(r *Result) *Quantiles { return &r.Wait }),
	newLength("service", "Time in the service", "the service served no call", func(r *Result) *Quantiles { return &r.Service }),
}

var keys = &metric{name: "keys", label: "keys", count: func(r *Result) int64 { return int64(r.Keys.Count) }}

// fairnesses say how keys fare.
var fairnesses = []*metric{
	keys,
	{name: "jain", label: "Jain's index", kind: kindIndex, nothing: nothingShared, measured: func(r *Result) float64 { return r.Keys.ifGiven(r.Keys.Jain) }},
	{
		name: "starved", label: "starved keys", count: func(r *Result) int64 { return int64(r.Keys.Starved) }, nothing: nothingShared,
		measured: func(r *Result) float64 { return r.Keys.ifGiven(float64(r.Keys.Starved)) }, whole: keys.count, of: "the keys",
	},
}

const nothingShared = "nothing was admitted that keys could share"

// ifGiven returns v, or NaN if nothing was admitted that keys could share.
func (result *KeyResult) ifGiven(v float64) float64 {
	if result.given() {
		return v
	}
	return math.NaN()
}

// metrics are all metrics, in the order of the documentation.
var metrics = slices.Concat(totals, lengths[0].metrics, lengths[1].metrics, lengths[2].metrics, fairnesses, []*metric{
	{name: "most", most: func(m *Most) int64 { return m.Permits }},
	{name: "most_of_key", most: func(m *Most) int64 { return m.KeyPermits }},
}, refusals)

func findMetric(name string) *metric {
	i := slices.IndexFunc(metrics, func(m *metric) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return metrics[i]
}

// metricNames are the names of all metrics, for messages.
func metricNames() string {
	names := make([]string, len(metrics))
	for i, m := range metrics {
		names[i] = m.name
	}
	return strings.Join(names, ", ")
}
