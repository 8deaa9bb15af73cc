package simulate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir/simulate/internal/render"
)

// WriteTable writes c as text for a terminal, of at most 100 columns: as [Result.WriteTable] does, with both results and
// their difference.
func (c *Comparison) WriteTable(w io.Writer) error { return c.report().WriteText(w) }

// WriteSVG writes c as a picture: both results beside each other, with the same scales. See [Result.WriteSVG].
func (c *Comparison) WriteSVG(w io.Writer) error { return c.report().WriteSVG(w) }

// WriteHTML writes c as a page. See [Result.WriteHTML].
func (c *Comparison) WriteHTML(w io.Writer) error { return c.report().WriteHTML(w) }

type comparisonReport struct {
	*Comparison
	names [2]string // as they are shown
}

func (c *Comparison) report() *render.Report {
	r := comparisonReport{c, [2]string{"before", "after"}}
	for i, result := range []*Result{c.Before, c.After} {
		if strings.TrimSpace(result.Name) != "" {
			r.names[i] = shownName(result.Name, 40)
		}
	}
	assumed := slices.Concat(c.Before.Assumed, c.After.Assumed)
	slices.Sort(assumed)
	assumed = slices.Compact(assumed)
	return &render.Report{
		Title: "Comparison of " + r.names[0] + " and " + r.names[1], Subtitle: r.subtitle(),
		Charts: r.charts(), Columns: 2, Footer: assumedText(assumed),
		Tables: append(r.tables(), assumedTable(assumed)),
	}
}

func (c *comparisonReport) subtitle() []string {
	before, after := setting(c.Before), setting(c.After)
	both := []string{"Both: " + before}
	if before != after {
		both = []string{c.names[0] + ": " + before, c.names[1] + ": " + after}
	}
	return append(both, c.summary(), c.verdict())
}

// setting says what was simulated, in short.
func setting(r *Result) string {
	text := fmt.Sprintf("%s of requests, %s, seed %d", render.Moment(r.For), instances(r), r.Seed)
	if r.Pipeline != "" {
		text = "pipeline " + shownName(r.Pipeline, 60) + ", " + text
	}
	return text
}

// summary is the comparison in a sentence: what clients get, and what it costs the service.
func (c *comparisonReport) summary() string {
	before, after := &c.Before.Total, &c.After.Total
	var text strings.Builder
	fmt.Fprintf(&text, "From %s to %s: satisfied %s → %s of the requests, calls of the service %s → %s", c.names[0], c.names[1],
		render.Share(before.Satisfied, before.Requests), render.Share(after.Satisfied, after.Requests), render.Count(before.Calls), render.Count(after.Calls))
	for _, n := range []struct {
		name    string
		was, is int64
	}{{"rejected", before.Rejected, after.Rejected}, {"failed", before.Failed, after.Failed}} {
		if n.was > 0 || n.is > 0 {
			fmt.Fprintf(&text, ", executions %s %s → %s", n.name, render.Share(n.was, before.Offered), render.Share(n.is, after.Offered))
		}
	}
	return text.String()
}

// verdict says what changes for requests, in a sentence.
func (c *Comparison) verdict() string {
	switch {
	case c.OneByOne:
		verb := "are"
		if c.NewlyRefused == 1 {
			verb = "is"
		}
		all := c.Before.Total.Requests
		return fmt.Sprintf("%s (%s) %s newly refused, %s (%s) no longer", render.Plural(c.NewlyRefused, "request", "requests"), render.Share(c.NewlyRefused, all),
			verb, render.Count(c.NoLongerRefused), render.Share(c.NoLongerRefused, all))
	case !c.Before.open && !c.Before.closed || !c.After.open && !c.After.closed:
		return "requests cannot be compared one by one: a result that was read from JSON does not have them"
	case c.Before.closed || c.After.closed:
		return "requests of a closed load cannot be compared one by one: when each is sent depends on the answers before it"
	}
	return "requests cannot be compared one by one: the loads are different"
}

// charts returns those of both results in turn, with the same scales.
func (c *comparisonReport) charts() (all []render.Chart) {
	calls := hasRetries(c.Before) || hasRetries(c.After)
	after := charts(c.After, calls)
	for i, was := range charts(c.Before, calls) {
		is := after[i]
		was.Title += ": " + c.names[0]
		is.Title += ": " + c.names[1]
		render.SameScale(&was, &is)
		all = append(all, was, is)
	}
	return all
}

func (c *comparisonReport) tables() []render.Table {
	shown := slices.Clone(totals)
	if c.Before.Total.Unfinished+c.After.Total.Unfinished == 0 {
		shown = slices.DeleteFunc(shown, func(m *metric) bool { return m.name == "unfinished" })
	}
	if c.OneByOne {
		shown = append(shown, refusals...)
	}
	all := []render.Table{c.metricsTable("Totals", "Changes of percentages are in points.", shown)}
	for _, l := range lengths {
		if l.of(c.Before).Max > 0 || l.of(c.After).Max > 0 {
			all = append(all, c.metricsTable(l.label, "", l.metrics))
		}
	}
	noLosers, noWinners := "no key loses anything", "no key wins anything"
	if c.Before.keyed == nil || c.After.keyed == nil {
		noLosers = "a result that was read from JSON does not have all keys"
		noWinners = noLosers
	}
	return append(all, c.partsTable("Rejections by strategy", "strategy", c.Before.Rejections, c.After.Rejections),
		c.partsTable("Failures by reason", "reason", c.Before.Failures, c.After.Failures), c.mostTable(),
		c.metricsTable("Fairness to keys", "", fairnesses),
		changesTable("Keys that lose most", noLosers, c.Losers), changesTable("Keys that win most", noWinners, c.Winners))
}

// metricsTable has a row for each metric, with percentages if some of them are parts of a whole.
func (c *comparisonReport) metricsTable(caption, note string, shown []*metric) render.Table {
	t := render.Table{Caption: caption, Note: note, Head: []render.Column{
		{Text: true, Header: true}, {Name: c.names[0], Key: true}, {}, {Name: c.names[1], Key: true}, {}, {Name: "change"}, {Name: "points"},
	}}
	for _, m := range shown {
		if m.compared != nil {
			n := m.compared(c.Comparison)
			t.Rows = append(t.Rows, []string{m.label, "", "", render.Count(n), render.Share(n, m.whole(c.Before))})
			continue
		}
		row := []string{m.label, m.text(c.Before), m.share(c.Before), m.text(c.After), m.share(c.After), m.change(c.Before, c.After)}
		if m.whole != nil {
			wasOf, isOf := float64(m.whole(c.Before)), float64(m.whole(c.After))
			points := render.Points(float64(m.count(c.After))/isOf*100 - float64(m.count(c.Before))/wasOf*100)
			row = append(row, orDash(wasOf > 0 && isOf > 0, points))
		}
		t.Rows = append(t.Rows, row)
	}
	if !slices.ContainsFunc(shown, func(m *metric) bool { return m.whole != nil }) {
		for i, row := range t.Rows {
			t.Rows[i] = []string{row[0], row[1], row[3], row[5]}
		}
		t.Head = []render.Column{t.Head[0], t.Head[1], t.Head[3], t.Head[5]}
	}
	return t
}

func counts(label string, was, is int64) []string {
	return []string{label, render.Count(was), render.Count(is), render.Change(is-was, render.Count)}
}

func (c *comparisonReport) partsTable(caption, by string, before, after map[string]int64) render.Table {
	t := render.Table{
		Caption: caption, Empty: "none",
		Head: []render.Column{{Name: c.names[0], Key: true}, {Name: c.names[1], Key: true}, {Name: "change"}, {Name: by, Text: true, Header: true, Key: true}},
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		t.Rows = append(t.Rows, append(counts("", before[name], after[name])[1:], render.Printable(name)))
	}
	return t
}

func (c *comparisonReport) mostTable() render.Table {
	t := render.Table{Caption: "Most permits in any window", Empty: "not measured", Head: []render.Column{
		{Name: "window", Text: true, Header: true}, {Name: c.names[0], Key: true}, {Name: c.names[1], Key: true}, {Name: "change"},
	}}
	for _, was := range c.Before.Most {
		i := slices.IndexFunc(c.After.Most, func(m Most) bool { return m.Window == was.Window })
		if i < 0 {
			continue
		}
		is := c.After.Most[i]
		t.Rows = append(t.Rows, counts(render.Time(was.Window), was.Permits, is.Permits), counts(render.Time(was.Window)+", one key", was.KeyPermits, is.KeyPermits))
	}
	return t
}

func changesTable(caption, empty string, keys []KeyChange) render.Table {
	t := render.Table{
		Caption: caption, Empty: empty,
		Head: []render.Column{
			{Name: "offered"}, {Name: "then"}, {Name: "admitted"}, {Name: "then"}, {Name: "change"}, {Name: "key", Text: true, Header: true, Key: true},
		},
	}
	for _, k := range keys {
		t.Rows = append(t.Rows, append([]string{render.Count(k.OfferedBefore), render.Count(k.OfferedAfter)},
			append(counts("", k.AdmittedBefore, k.AdmittedAfter)[1:], formatKey(k.Key))...))
	}
	return t
}
