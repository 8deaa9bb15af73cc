package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/simulate/internal/render"
)

// WriteTable writes r as text for a terminal, of at most 100 columns: the totals with percentages, latencies and waits as
// quantiles, rejections by strategy, failures by reason, the most permits in any window, the fairness to keys, and what was
// assumed. What happened over time is in [Result.Series] and in pictures. Names are shortened where they are too long, and
// characters that would move the cursor are replaced.
func (r *Result) WriteTable(w io.Writer) error { return reportOf(r).WriteText(w) }

// WriteSVG writes r as a picture: how many executions per second there were and how they ended, how many of them waited and
// how many calls ran at the same time, and latencies, over time. If the pipeline called the service more than once for an
// execution, the calls per second are there, too. The picture needs no script, font or other file, and follows the viewer's
// choice of light or dark. Names are escaped.
func (r *Result) WriteSVG(w io.Writer) error { return reportOf(r).WriteSVG(w) }

// WriteHTML writes r as a page with the charts of [Result.WriteSVG] and the tables of [Result.WriteTable]. The page is one
// file without scripts, follows the viewer's choice of light or dark, and can be read on a phone. It forbids everything but
// its own style by a Content-Security-Policy.
func (r *Result) WriteHTML(w io.Writer) error { return reportOf(r).WriteHTML(w) }

func reportOf(r *Result) *render.Report {
	p := &render.Report{
		Title: "Simulation: " + render.Moment(r.For) + " of requests",
		Subtitle: []string{
			fmt.Sprintf("%s, seed %d; the last request ended at %s", instances(r), r.Seed, render.Moment(r.Ended)),
			summary(r),
		},
		Charts: charts(r, hasRetries(r)), Columns: 1, Footer: assumedText(r.Assumed), Tables: tables(r),
	}
	if r.Pipeline != "" {
		p.Title = "Simulation of pipeline " + shownName(r.Pipeline, 60) + ": " + render.Moment(r.For) + " of requests"
	}
	return p
}

// shownName returns a name of the program or its users as titles show it.
func shownName(name string, most int) string { return render.Shorten(render.Printable(name), most) }

func instances(r *Result) string { return render.Plural(int64(r.Instances), "instance", "instances") }

func summary(r *Result) string {
	t := &r.Total
	if t.Offered == 0 {
		return "no executions offered"
	}
	return fmt.Sprintf("%s, %s satisfied; %s, %s rejected, %s failed; %s of the service",
		render.Plural(t.Requests, "request", "requests"), render.Share(t.Satisfied, t.Requests), render.Plural(t.Offered, "execution", "executions"),
		render.Share(t.Rejected, t.Offered), render.Share(t.Failed, t.Offered), render.Plural(t.Calls, "call", "calls"))
}

func assumedText(assumed []string) string {
	if len(assumed) == 0 {
		return "Nothing was assumed."
	}
	return "Assumed: " + render.Printable(strings.Join(assumed, " "))
}

// hasRetries reports whether there were notably more calls of the service than executions that reached it.
func hasRetries(r *Result) bool { return r.Total.Retried > r.Total.Admitted/50 }

// until returns when the last interval or the load ends, whichever is later.
func until(r *Result) time.Duration {
	end := max(r.For, 1)
	if n := len(r.Series); n > 0 {
		end = max(end, r.Series[n-1].At+max(r.Interval, 1))
	}
	return end
}

// chartPoints is how many points a chart has at most. With more intervals, several are one point.
const chartPoints = 250

// charts returns what happened over time. calls says that the calls of the service are shown.
func charts(r *Result, calls bool) []render.Chart {
	s := r.resampled(chartPoints)
	executions := render.Chart{
		Title: "Executions per second", Step: s.step, Until: until(r), Empty: "no executions",
		Series: []render.Series{
			{Name: "succeeded", Color: render.Blue, Values: s.rates(func(p *Point) int64 { return p.Succeeded })},
			{Name: "rejected", Color: render.Orange, Values: s.rates(func(p *Point) int64 { return p.Rejected })},
			{Name: "failed", Color: render.Wine, Values: s.rates(func(p *Point) int64 { return p.Failed })},
			{Name: "offered", Shape: render.Line, Color: render.Black, Values: s.rates(func(p *Point) int64 { return p.Offered })},
		},
	}
	if calls {
		executions.Title = "Executions and calls per second"
		executions.Series = append(executions.Series, render.Series{
			Name: "calls of the service", Shape: render.Line, Color: render.Teal, Values: s.rates(func(p *Point) int64 { return p.Calls }),
		})
	}
	largest := ""
	if s.each > 1 {
		largest = "the largest of any " + render.Time(r.Interval) + " in each " + render.Time(s.step)
	}
	quantile := func(of func(*Quantiles) time.Duration) []float64 {
		return s.most(func(p *Point) float64 {
			if p.Latency.Count == 0 {
				return math.NaN()
			}
			return float64(of(&p.Latency))
		})
	}
	return []render.Chart{
		executions,
		{
			Title: "At the same time, at most", Unit: render.Whole, Step: s.step, Until: until(r), Empty: "nothing waited or ran",
			Series: []render.Series{
				{Name: "running in the service", Color: render.Pale, Values: s.most(func(p *Point) float64 { return float64(p.Running) })},
				{Name: "waiting for a permit", Color: render.Wine, Values: s.most(func(p *Point) float64 { return float64(p.Waiting) })},
			},
		},
		{
			Title: "Latency of what succeeded", Note: largest, Unit: render.Nanoseconds, Step: s.step, Until: until(r), Empty: "nothing succeeded",
			Series: []render.Series{
				{Name: "p50", Shape: render.Line, Color: render.Blue, Values: quantile(func(q *Quantiles) time.Duration { return q.P50 })},
				{Name: "p99", Shape: render.Line, Color: render.Orange, Values: quantile(func(q *Quantiles) time.Duration { return q.P99 })},
			},
		},
	}
}

// WriteResultsSVG writes a picture of several results beside each other, such as what different limiters do under the
// same load: for each, by its Name, how many executions per second were admitted and how many more were offered, with the
// same scales. The window with the most permits is marked, by the first of Result.Most. It returns an error if there are no
// results, or one is nil, or w does.
func WriteResultsSVG(w io.Writer, title string, results ...*Result) error {
	if len(results) == 0 || slices.Contains(results, nil) {
		return errors.New("simulate: a picture of results needs at least one, and none that is nil")
	}
	p := render.Report{Title: shownName(title, 150), Columns: min(len(results), 2), Subtitle: []string{"Executions per second, with the same scales"}}
	all := make([]*render.Chart, len(results))
	for i, r := range results {
		c := admittedChart(r)
		all[i] = &c
	}
	render.SameScale(all...)
	for _, c := range all {
		p.Charts = append(p.Charts, *c)
	}
	return p.WriteSVG(w)
}

// admittedChart shows how many of the offered executions were admitted.
func admittedChart(r *Result) render.Chart {
	s := r.resampled(chartPoints)
	admitted := s.rates(func(p *Point) int64 { return p.Admitted })
	others := s.rates(func(p *Point) int64 { return p.Offered })
	for i, v := range admitted {
		others[i] = max(others[i]-v, 0)
	}
	c := render.Chart{
		Title: shownName(r.Name, 80), Step: s.step, Until: until(r), Empty: "no executions",
		Series: []render.Series{{Name: "admitted", Color: render.Blue, Values: admitted}, {Name: "offered", Color: render.Grey, Values: others}},
		Note:   fmt.Sprintf("%s of %s admitted", render.Share(r.Total.Admitted, r.Total.Offered), render.Count(r.Total.Offered)),
	}
	if len(r.Most) > 0 && r.Most[0].Permits > 0 {
		m := r.Most[0]
		c.Mark = render.Mark{From: m.At, To: m.At + m.Window, Text: "most in any " + render.Time(m.Window) + ": " + render.Count(m.Permits)}
	}
	return c
}

func tables(r *Result) []render.Table {
	all := []render.Table{
		totalsTable(r), lengthsTable(r), partsTable("Rejections by strategy", "rejections", "strategy", r.Rejections),
		partsTable("Failures by reason", "failures", "reason", r.Failures), mostTable(r),
	}
	if len(r.Keys.MostOffered) > 0 {
		all = append(all, keysTable("Keys with the most executions", r.Keys.MostOffered))
	}
	if len(r.Keys.MostRejected) > 0 {
		all = append(all, keysTable("Keys with the most rejections", r.Keys.MostRejected))
	}
	return append(all, fairnessTable(r), assumedTable(r.Assumed))
}

func totalsTable(r *Result) render.Table {
	t := render.Table{Caption: "Totals", Head: []render.Column{{Text: true, Header: true}, {}, {}, {Text: true}}}
	for _, total := range totals {
		row := []string{total.label, total.text(r)}
		if total.whole != nil {
			row = append(row, total.share(r), "of "+total.of)
		}
		if total.name != "unfinished" || r.Total.Unfinished > 0 {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func lengthsTable(r *Result) render.Table {
	t := render.Table{Caption: "Latencies and waits", Head: []render.Column{{Text: true, Header: true}, {Name: "count"}}, Empty: "nothing took any time"}
	for _, q := range quantiles {
		t.Head = append(t.Head, render.Column{Name: q.label})
	}
	for _, l := range lengths {
		of := l.of(r)
		if of.Max == 0 {
			continue
		}
		row := []string{l.label, render.Count(of.Count)}
		for _, m := range l.metrics {
			row = append(row, m.text(r))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func partsTable(caption, what, by string, parts map[string]int64) render.Table {
	t := render.Table{Caption: caption, Head: []render.Column{{Name: what}, {}, {Name: by, Text: true, Header: true, Key: true}}, Empty: "none"}
	names := slices.SortedFunc(maps.Keys(parts), func(a, b string) int {
		return cmp.Or(cmp.Compare(parts[b], parts[a]), strings.Compare(a, b))
	})
	var sum int64
	for _, n := range parts {
		sum += n
	}
	for _, name := range names {
		t.Rows = append(t.Rows, []string{render.Count(parts[name]), render.Share(parts[name], sum), render.Printable(name)})
	}
	return t
}

func mostTable(r *Result) render.Table {
	t := render.Table{
		Caption: "Most permits in any window",
		Note:    "A window can begin at any time. The permits of one key are in the last three columns.",
		Head: []render.Column{
			{Name: "window", Header: true}, {Name: "permits"}, {Name: "from"},
			{Name: "of one key"}, {Name: "from"}, {Name: "key", Text: true, Key: true},
		},
		Empty: "not measured",
	}
	// Requests of one instant begin a nanosecond apart.
	from := func(at time.Duration) string { return render.Moment(at.Round(time.Microsecond)) }
	for _, m := range r.Most {
		t.Rows = append(t.Rows, []string{
			render.Time(m.Window), render.Count(m.Permits), orDash(m.Permits > 0, from(m.At)),
			render.Count(m.KeyPermits), orDash(m.KeyPermits > 0, from(m.KeyAt)), orDash(m.KeyPermits > 0, formatKey(m.Key)),
		})
	}
	return t
}

func keysTable(caption string, keys []KeyCounts) render.Table {
	t := render.Table{
		Caption: caption,
		Head: []render.Column{
			{Name: "offered"}, {Name: "admitted"}, {Name: "rejected"}, {Name: "fair share"}, {Name: "got of it"},
			{Name: "key", Text: true, Header: true, Key: true},
		},
	}
	for _, k := range keys {
		got := "–"
		if k.Fair > 0 {
			got = render.Percent(float64(k.Admitted) / k.Fair * 100)
		}
		t.Rows = append(t.Rows, []string{
			render.Count(k.Offered), render.Count(k.Admitted), render.Count(k.Rejected), render.Number(k.Fair), got, formatKey(k.Key),
		})
	}
	return t
}

func fairnessTable(r *Result) render.Table {
	k := &r.Keys
	t := keysTable("Fairness to keys", k.Worst)
	t.Empty = "no keys"
	switch {
	case k.given():
		t.Note = fmt.Sprintf("%s; Jain's index %s (1 is fair); %s starved.", render.Plural(int64(k.Count), "key", "keys"), formatIndex(k.Jain), render.Count(int64(k.Starved)))
		t.Empty = "no key got less than its fair share"
	case k.Count > 0:
		t.Empty = render.Plural(int64(k.Count), "key", "keys") + "; nothing was admitted to compare"
	}
	if k.Unkept > 0 {
		t.Note += fmt.Sprintf(" %s had further keys, which are not compared.", render.Plural(k.Unkept, "execution", "executions"))
	}
	if len(k.Worst) > 0 {
		t.Note += " The keys that got least of their fair shares:"
	}
	return t
}

func assumedTable(assumed []string) render.Table {
	t := render.Table{Caption: "Assumed", Empty: "nothing"}
	for _, sentence := range assumed {
		t.List = append(t.List, render.Printable(sentence))
	}
	return t
}

func orDash(means bool, text string) string {
	if means {
		return text
	}
	return "–"
}

func formatKey(key string) string {
	if key == "" {
		return "(no key)"
	}
	return render.Printable(key)
}
