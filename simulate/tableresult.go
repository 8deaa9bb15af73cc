package simulate

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// tableRows is about how many rows the table over time has.
const tableRows = 20

// WriteTable writes r as text for a terminal, of at most 100 columns: the totals with percentages, latencies and waits as
// quantiles, rejections by strategy, failures by reason, the most permits in any window, the fairness to keys, come-backs, what was assumed, and
// what happened over time in about 20 rows. Names are shortened where they are too long, and characters that would move the
// cursor are replaced.
func (r *Result) WriteTable(w io.Writer) error { return r.report().writeText(w) }

func (r *Result) report() *report {
	return &report{title: r.title(), subtitle: r.subtitle(), tables: r.tables()}
}

// title says what was simulated.
func (r *Result) title() string {
	if r.Pipeline == "" {
		return "Simulation: " + formatMoment(r.For) + " of requests"
	}
	return "Simulation of pipeline " + printable(r.Pipeline) + ": " + formatMoment(r.For) + " of requests"
}

// subtitle says what is needed to simulate it again, and the most important numbers.
func (r *Result) subtitle() []string {
	return []string{
		fmt.Sprintf("%s, seed %d; the last request ended at %s", plural(int64(r.Instances), "instance", "instances"), r.Seed, formatMoment(r.Ended)),
		r.summary(),
	}
}

// summary is the result in a sentence.
func (r *Result) summary() string {
	t := &r.Total
	if t.Offered == 0 {
		return "no executions offered"
	}
	return fmt.Sprintf("%s, %s satisfied; %s, %s rejected, %s failed; %s of the service",
		plural(t.Requests, "request", "requests"), formatShare(t.Satisfied, t.Requests), plural(t.Offered, "execution", "executions"),
		formatShare(t.Rejected, t.Offered), formatShare(t.Failed, t.Offered), plural(t.Calls, "call", "calls"))
}

func (r *Result) tables() []table {
	tables := []table{
		r.totalsTable(), r.lengthsTable(), partsTable("Rejections by strategy", "rejections", "strategy", r.Rejections),
		partsTable("Failures by reason", "failures", "reason", r.Failures), r.mostTable(),
	}
	if len(r.Keys.MostOffered) > 0 {
		tables = append(tables, keysTable("Keys with the most executions", r.Keys.MostOffered))
	}
	if len(r.Keys.MostRejected) > 0 {
		tables = append(tables, keysTable("Keys with the most rejections", r.Keys.MostRejected))
	}
	return append(tables, r.fairnessTable(), r.comeBacksTable(), assumedTable(r.Assumed), r.timeTable())
}

func (r *Result) totalsTable() table {
	t := table{caption: "Totals", head: []column{{text: true, header: true}, {}, {}, {text: true}}}
	for _, total := range totals {
		n := total.count(r)
		if !total.inner() {
			t.rows = append(t.rows, []string{total.label, formatCount(n)})
			continue
		}
		if total.name != "unfinished" || n > 0 {
			t.rows = append(t.rows, []string{"  " + total.label, formatCount(n), formatShare(n, total.whole.count(r)), "of " + total.of})
		}
	}
	return t
}

func (r *Result) lengthsTable() table {
	t := table{caption: "Latencies and waits", head: []column{{text: true, header: true}, {name: "count"}}, empty: "nothing took any time"}
	for _, q := range quantiles {
		t.head = append(t.head, column{name: q.label})
	}
	for _, l := range lengths {
		of := l.of(r)
		if of.Max == 0 {
			continue
		}
		row := []string{l.label, formatCount(of.Count)}
		for _, q := range quantiles {
			row = append(row, orDash(of.Count > 0, formatDuration(q.value(of))))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// partsTable shows a count by names, the largest first.
func partsTable(caption, what, by string, parts map[string]int64) table {
	t := table{caption: caption, head: []column{{name: what}, {}, {name: by, text: true, header: true, key: true}}, empty: "none"}
	names := slices.SortedFunc(maps.Keys(parts), func(a, b string) int {
		return cmp.Or(cmp.Compare(parts[b], parts[a]), strings.Compare(a, b))
	})
	var sum int64
	for _, n := range parts {
		sum += n
	}
	for _, name := range names {
		t.rows = append(t.rows, []string{formatCount(parts[name]), formatShare(parts[name], sum), printable(name)})
	}
	return t
}

func (r *Result) mostTable() table {
	t := table{
		caption: "Most permits in any window",
		note:    "A window can begin at any time. The permits of one key are in the last three columns.",
		head: []column{
			{name: "window", header: true}, {name: "permits"}, {name: "from"},
			{name: "of one key"}, {name: "from"}, {name: "key", text: true, key: true},
		},
		empty: "not measured",
	}
	// Requests of one instant begin a nanosecond apart.
	from := func(at time.Duration) string { return formatMoment(at.Round(time.Microsecond)) }
	for _, m := range r.Most {
		t.rows = append(t.rows, []string{
			formatTime(m.Window), formatCount(m.Permits), orDash(m.Permits > 0, from(m.At)),
			formatCount(m.KeyPermits), orDash(m.KeyPermits > 0, from(m.KeyAt)), orDash(m.KeyPermits > 0, formatKey(m.Key)),
		})
	}
	return t
}

// keysTable shows what keys got.
func keysTable(caption string, keys []KeyCounts) table {
	t := table{
		caption: caption,
		head: []column{
			{name: "offered"}, {name: "admitted"}, {name: "rejected"}, {name: "fair share"}, {name: "got of it"},
			{name: "key", text: true, header: true, key: true},
		},
	}
	for _, k := range keys {
		got := "–"
		if k.Fair > 0 {
			got = formatPercent(float64(k.Admitted) / k.Fair * 100)
		}
		t.rows = append(t.rows, []string{
			formatCount(k.Offered), formatCount(k.Admitted), formatCount(k.Rejected), formatNumber(k.Fair), got, formatKey(k.Key),
		})
	}
	return t
}

func (r *Result) fairnessTable() table {
	k := &r.Keys
	t := keysTable("Fairness to keys", k.Worst)
	t.empty = "no keys"
	if k.Count > 0 {
		t.note = fmt.Sprintf("%s; Jain's index %s (1 is fair); %s starved.", plural(int64(k.Count), "key", "keys"), formatIndex(k.Jain), formatCount(int64(k.Starved)))
		t.empty = "no key got less than its fair share"
	}
	if k.Unkept > 0 {
		t.note += fmt.Sprintf(" %s had further keys, which are not compared.", plural(k.Unkept, "execution", "executions"))
	}
	if len(k.Worst) > 0 {
		t.note += " The keys that got least of their fair shares:"
	}
	return t
}

func (r *Result) comeBacksTable() table {
	c := &r.ComeBacks
	t := table{caption: "Come-backs when Retry-After had passed", empty: "none"}
	if c.Count > 0 {
		t.list = []string{fmt.Sprintf("%s, of which %s admitted (%s)", plural(c.Count, "execution", "executions"), formatCount(c.Admitted), formatShare(c.Admitted, c.Count))}
	}
	return t
}

func assumedTable(assumed []string) table {
	t := table{caption: "Assumed", empty: "nothing"}
	for _, sentence := range assumed {
		t.list = append(t.list, printable(sentence))
	}
	return t
}

func (r *Result) timeTable() table {
	points, interval := r.merged(tableRows + 4) // as many as the load's 120 intervals and a few for the last requests make
	t := table{
		caption: "Over time",
		head: []column{
			{name: "from", header: true}, {name: "offered"}, {name: "rejected"}, {name: "succeeded"}, {name: "failed"}, {name: "calls"}, {name: "waiting"}, {name: "p99"},
		},
		empty: "nothing happened",
	}
	if len(points) > 0 {
		t.note = "A row is " + formatStep(interval, interval) + "; waiting is the most at the same time."
		if interval > r.Interval {
			t.note = fmt.Sprintf("A row is %s; waiting is the most at the same time, and p99 the largest of any %s.", formatStep(interval, interval), formatStep(r.Interval, r.Interval))
		}
	}
	for i := range points {
		p := &points[i]
		t.rows = append(t.rows, []string{
			formatStep(p.At, interval), formatShort(p.Offered), formatShort(p.Rejected), formatShort(p.Succeeded), formatShort(p.Failed), formatShort(p.Calls),
			formatShort(p.Waiting), orDash(p.Latency.Max > 0, formatDuration(p.Latency.P99)),
		})
	}
	return t
}

// orDash returns text if it means something, and otherwise a dash.
func orDash(means bool, text string) string {
	if means {
		return text
	}
	return "–"
}

// formatKey returns key as a table shows it.
func formatKey(key string) string {
	if key == "" {
		return "(no key)"
	}
	return printable(key)
}

// formatIndex returns Jain's index with three digits. Only 1 is "1".
func formatIndex(v float64) string {
	if v > 0.9995 && v < 1 {
		return ">0.999"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.3f", v), ".000")
}

// until returns when the last interval or the load ends, whichever is later.
func (r *Result) until() time.Duration {
	end := max(r.For, 1)
	if n := len(r.Series); n > 0 {
		end = max(end, r.Series[n-1].At+max(r.Interval, 1))
	}
	return end
}
