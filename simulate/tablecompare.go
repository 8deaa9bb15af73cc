package simulate

import (
	"maps"
	"slices"
	"time"
)

func (c *Comparison) tables() []table {
	tables := []table{c.totalsTable()}
	for _, l := range lengths {
		if l.of(c.Before).Max > 0 || l.of(c.After).Max > 0 {
			tables = append(tables, c.lengthTable(l))
		}
	}
	noLosers, noWinners := "no key loses anything", "no key wins anything"
	if c.Before.keyed == nil || c.After.keyed == nil {
		noLosers = "a result that was read from JSON does not have all keys"
		noWinners = noLosers
	}
	return append(tables, c.partsTable("Rejections by strategy", "strategy", c.Before.Rejections, c.After.Rejections),
		c.partsTable("Failures by reason", "reason", c.Before.Failures, c.After.Failures), c.mostTable(), c.fairnessTable(),
		c.keysTable("Keys that lose most", noLosers, c.Losers), c.keysTable("Keys that win most", noWinners, c.Winners),
		assumedTable(c.assumed()), c.timeTable())
}

// head returns the columns of a table that has both results, after that of the names.
func (c *Comparison) head() []column {
	return []column{{text: true, header: true}, {name: c.name(0), key: true}, {name: c.name(1), key: true}, {name: "change"}}
}

func (c *Comparison) totalsTable() table {
	t := table{
		caption: "Totals", note: "Changes of percentages are in points.",
		head: []column{{text: true, header: true}, {name: c.name(0), key: true}, {}, {name: c.name(1), key: true}, {}, {name: "change"}, {name: "points"}},
	}
	for _, total := range totals {
		before, after := total.count(c.Before), total.count(c.After)
		row := []string{total.label, formatCount(before), "", formatCount(after), "", formatChange(after - before)}
		if total.inner() {
			row[0] = "  " + total.label
			wasOf, isOf := total.whole.count(c.Before), total.whole.count(c.After)
			row[2], row[4] = formatShare(before, wasOf), formatShare(after, isOf)
			row = append(row, orDash(wasOf > 0 && isOf > 0, formatPoints(percent(before, wasOf), percent(after, isOf))))
		}
		if total.name != "unfinished" || before+after > 0 {
			t.rows = append(t.rows, row)
		}
	}
	if c.OneByOne {
		for _, n := range []struct {
			name  string
			count int64
		}{{"newly refused", c.NewlyRefused}, {"no longer refused", c.NoLongerRefused}} {
			t.rows = append(t.rows, []string{"Requests " + n.name, "", "", formatCount(n.count), formatShare(n.count, c.Before.Total.Requests)})
		}
	}
	return t
}

// percent returns part as a percentage of whole, and 0 of 0.
func percent(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole) * 100
}

func (c *Comparison) lengthTable(l length) table {
	t := table{caption: l.label, head: c.head()}
	before, after := l.of(c.Before), l.of(c.After)
	t.rows = append(t.rows, []string{"count", formatCount(before.Count), formatCount(after.Count), formatChange(after.Count - before.Count)})
	for _, q := range quantiles {
		was, is := q.value(before), q.value(after)
		t.rows = append(t.rows, []string{
			q.label, orDash(before.Count > 0, formatDuration(was)), orDash(after.Count > 0, formatDuration(is)),
			orDash(before.Count > 0 && after.Count > 0, formatDurationChange(is-was)),
		})
	}
	return t
}

// partsTable shows counts by names.
func (c *Comparison) partsTable(caption, by string, before, after map[string]int64) table {
	t := table{
		caption: caption, empty: "none",
		head: []column{{name: c.name(0), key: true}, {name: c.name(1), key: true}, {name: "change"}, {name: by, text: true, header: true, key: true}},
	}
	change := differences(before, after)
	for _, name := range slices.Sorted(maps.Keys(change)) {
		t.rows = append(t.rows, []string{formatCount(before[name]), formatCount(after[name]), formatChange(change[name]), printable(name)})
	}
	return t
}

func (c *Comparison) mostTable() table {
	t := table{caption: "Most permits in any window", head: c.head(), empty: "not measured"}
	t.head[0].name = "window"
	for _, was := range c.Before.Most {
		i := slices.IndexFunc(c.After.Most, func(m Most) bool { return m.Window == was.Window })
		if i < 0 {
			continue
		}
		is := c.After.Most[i]
		t.rows = append(t.rows,
			[]string{formatTime(was.Window), formatCount(was.Permits), formatCount(is.Permits), formatChange(is.Permits - was.Permits)},
			[]string{formatTime(was.Window) + ", one key", formatCount(was.KeyPermits), formatCount(is.KeyPermits), formatChange(is.KeyPermits - was.KeyPermits)})
	}
	return t
}

func (c *Comparison) fairnessTable() table {
	t := table{caption: "Fairness to keys, and come-backs when Retry-After had passed", head: c.head()}
	before, after := &c.Before.Keys, &c.After.Keys
	jain := func(k *KeyResult) string { return orDash(k.Count > 0, formatIndex(k.Jain)) }
	difference := ""
	if before.Count > 0 && after.Count > 0 {
		difference = formatNumber(after.Jain - before.Jain)
	}
	whole := func(label string, was, is int64) []string {
		return []string{label, formatCount(was), formatCount(is), formatChange(is - was)}
	}
	t.rows = [][]string{
		whole("keys", int64(before.Count), int64(after.Count)),
		{"Jain's index", jain(before), jain(after), difference},
		whole("starved keys", int64(before.Starved), int64(after.Starved)),
		whole("come-backs", c.Before.ComeBacks.Count, c.After.ComeBacks.Count),
		whole("come-backs admitted", c.Before.ComeBacks.Admitted, c.After.ComeBacks.Admitted),
	}
	return t
}

func (c *Comparison) keysTable(caption, empty string, keys []KeyChange) table {
	t := table{
		caption: caption, empty: empty,
		head: []column{
			{name: "offered"}, {name: "then"}, {name: "admitted"}, {name: "then"}, {name: "change"}, {name: "key", text: true, header: true, key: true},
		},
	}
	for _, k := range keys {
		t.rows = append(t.rows, []string{
			formatCount(k.OfferedBefore), formatCount(k.OfferedAfter), formatCount(k.AdmittedBefore), formatCount(k.AdmittedAfter),
			formatChange(k.change()), formatKey(k.Key),
		})
	}
	return t
}

// timeTable has both results over time. Their intervals are usually the same; where one has fewer rows, it ended earlier.
func (c *Comparison) timeTable() table {
	t := table{
		caption: "Over time", empty: "nothing happened",
		head: []column{
			{name: "from", header: true}, {name: "offered"}, {name: "then"}, {name: "rejected"}, {name: "then"}, {name: "succeeded"}, {name: "then"}, {name: "p99"}, {name: "then"},
		},
	}
	before, after, interval, ok := c.together()
	if !ok {
		t.empty = "the intervals of the two results are different"
		return t
	}
	if len(before)+len(after) > 0 {
		t.note = "A row is " + formatStep(interval, interval) + "; p99 is the largest of any " + formatStep(c.Before.Interval, c.Before.Interval) + ". The second of each pair is " + c.name(1) + "."
	}
	for i := range max(len(before), len(after)) {
		row := []string{formatStep(time.Duration(i)*interval, interval)}
		var was, is Point
		if i < len(before) {
			was = before[i]
		}
		if i < len(after) {
			is = after[i]
		}
		for _, count := range []func(*Point) int64{
			func(p *Point) int64 { return p.Offered }, func(p *Point) int64 { return p.Rejected }, func(p *Point) int64 { return p.Succeeded },
		} {
			row = append(row, formatShort(count(&was)), formatShort(count(&is)))
		}
		for _, q := range []Quantiles{was.Latency, is.Latency} {
			row = append(row, orDash(q.Max > 0, formatDuration(q.P99)))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// together returns both series in rows of the same length, and false if their intervals are different.
func (c *Comparison) together() (before, after []Point, interval time.Duration, ok bool) {
	if len(c.Before.Series) > 0 && len(c.After.Series) > 0 && c.Before.Interval != c.After.Interval {
		return nil, nil, 0, false
	}
	n := (max(len(c.Before.Series), len(c.After.Series)) + tableRows + 3) / (tableRows + 4)
	before, interval = c.Before.mergedBy(n)
	after, other := c.After.mergedBy(n)
	return before, after, max(interval, other), true
}
