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
// their difference, but not what happened over time, which [Comparison.WriteSVG] shows.
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
	for i, name := range []string{c.BeforeName, c.AfterName} {
		if strings.TrimSpace(name) != "" {
			r.names[i] = shownName(name, 40)
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
	all := []render.Table{c.totalsTable()}
	for _, l := range lengths {
		if l.of(c.Before).Max > 0 || l.of(c.After).Max > 0 {
			all = append(all, c.lengthTable(l))
		}
	}
	noLosers, noWinners := "no key loses anything", "no key wins anything"
	if c.Before.keyed == nil || c.After.keyed == nil {
		noLosers = "a result that was read from JSON does not have all keys"
		noWinners = noLosers
	}
	return append(all, c.partsTable("Rejections by strategy", "strategy", c.Before.Rejections, c.After.Rejections),
		c.partsTable("Failures by reason", "reason", c.Before.Failures, c.After.Failures), c.mostTable(), c.fairnessTable(),
		changesTable("Keys that lose most", noLosers, c.Losers), changesTable("Keys that win most", noWinners, c.Winners))
}

// head returns the columns of a table that has both results, after that of the names.
func (c *comparisonReport) head() []render.Column {
	return []render.Column{{Text: true, Header: true}, {Name: c.names[0], Key: true}, {Name: c.names[1], Key: true}, {Name: "change"}}
}

func counts(label string, was, is int64) []string {
	return []string{label, render.Count(was), render.Count(is), render.Change(is-was, render.Count)}
}

func (c *comparisonReport) totalsTable() render.Table {
	t := render.Table{
		Caption: "Totals", Note: "Changes of percentages are in points.",
		Head: []render.Column{
			{Text: true, Header: true}, {Name: c.names[0], Key: true}, {}, {Name: c.names[1], Key: true}, {}, {Name: "change"}, {Name: "points"},
		},
	}
	for _, total := range totals {
		was, is := total.count(c.Before), total.count(c.After)
		row := []string{total.label, render.Count(was), "", render.Count(is), "", render.Change(is-was, render.Count)}
		if total.whole != nil {
			row[0] = "  " + total.label
			wasOf, isOf := total.whole.count(c.Before), total.whole.count(c.After)
			row[2], row[4] = render.Share(was, wasOf), render.Share(is, isOf)
			points := "–"
			if wasOf > 0 && isOf > 0 {
				points = render.Points(float64(is)/float64(isOf)*100 - float64(was)/float64(wasOf)*100)
			}
			row = append(row, points)
		}
		if total.name != "unfinished" || was+is > 0 {
			t.Rows = append(t.Rows, row)
		}
	}
	if c.OneByOne {
		all := c.Before.Total.Requests
		t.Rows = append(t.Rows,
			[]string{"Requests newly refused", "", "", render.Count(c.NewlyRefused), render.Share(c.NewlyRefused, all)},
			[]string{"Requests no longer refused", "", "", render.Count(c.NoLongerRefused), render.Share(c.NoLongerRefused, all)})
	}
	return t
}

func (c *comparisonReport) lengthTable(l length) render.Table {
	before, after := l.of(c.Before), l.of(c.After)
	t := render.Table{Caption: l.label, Head: c.head(), Rows: [][]string{counts("count", before.Count, after.Count)}}
	for _, q := range quantiles {
		was, is := q.value(before), q.value(after)
		t.Rows = append(t.Rows, []string{
			q.label, orDash(before.Count > 0, render.Duration(was)), orDash(after.Count > 0, render.Duration(is)),
			orDash(before.Count > 0 && after.Count > 0, render.Change(is-was, render.Duration)),
		})
	}
	return t
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
	t := render.Table{Caption: "Most permits in any window", Head: c.head(), Empty: "not measured"}
	t.Head[0].Name = "window"
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

func (c *comparisonReport) fairnessTable() render.Table {
	before, after := &c.Before.Keys, &c.After.Keys
	jain := func(k *KeyResult) string { return orDash(k.given(), formatIndex(k.Jain)) }
	difference := ""
	if before.given() && after.given() {
		difference = render.Number(after.Jain - before.Jain)
	}
	return render.Table{Caption: "Fairness to keys, and come-backs when Retry-After had passed", Head: c.head(), Rows: [][]string{
		counts("keys", int64(before.Count), int64(after.Count)),
		{"Jain's index", jain(before), jain(after), difference},
		counts("starved keys", int64(before.Starved), int64(after.Starved)),
		counts("come-backs", c.Before.ComeBacks.Count, c.After.ComeBacks.Count),
		counts("come-backs admitted", c.Before.ComeBacks.Admitted, c.After.ComeBacks.Admitted),
	}}
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
