package dashboard

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// A table writes lines whose cells are aligned. Each cell is made printable: a terminal obeys control characters.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, title string, head ...string) table {
	_, _ = io.WriteString(w, "\n"+strings.ToUpper(title)+"\n")
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(head) > 0 {
		t.row(head...)
	}
	return t
}

func (t table) row(cells ...string) {
	for i, c := range cells {
		if cells[i] = printable(c); cells[i] == "" {
			cells[i] = "-"
		}
	}
	_, _ = io.WriteString(t.w, strings.Join(cells, "\t")+"\n")
}

func (t table) end() { _ = t.w.Flush() }

// writeText writes a page as text.
func (v *view) writeText(b *bytes.Buffer) {
	fmt.Fprintf(b, "weir, %s, at %s\n", printable(v.Instance), v.Time.Format(time.RFC3339))
	if s := v.Summary; s != nil {
		rejecting := ""
		if s.Rejecting != nil {
			rejecting = fmt.Sprintf("%d rejecting of ", *s.Rejecting)
		}
		fmt.Fprintf(b, "%s%s%d running, %s%d limiters, %d of %d circuits not closed, %d of %d stores away\n",
			prefixedBy(plainRate(s.Granted), "/s granted, "), prefixedBy(plainRate(s.Rejected), "/s rejected, "), s.Running, rejecting, s.Limiters, s.Open, s.Circuits, s.Away, s.Stores)
	}
	if v.Trouble != nil {
		t := newTable(b, "trouble")
		for _, each := range v.Trouble {
			t.row(each.Level.String(), each.What, each.Name, each.Text, v.sinceText(each.Since))
		}
		t.end()
		if len(v.Trouble) == 0 {
			fmt.Fprintln(b, "none")
		}
	}
	v.writeLimiters(b)
	v.writePipelines(b)
	if len(v.Circuits) > 0 {
		t := newTable(b, "circuits", "CIRCUIT", "STATE", "SINCE", "FIGURES", "WHY")
		for _, c := range v.Circuits {
			t.row(c.Source, c.State, v.sinceText(c.Since), c.Figures, cmp.Or(prefixed("by ", c.IsolatedBy), c.Cause))
		}
		t.end()
	}
	if len(v.Keys) > 0 {
		t := newTable(b, "keys that are rejected most", "LIMITER", "KEY", "REJECTED", "ERROR")
		for _, l := range v.Keys {
			for _, k := range l.Keys {
				t.row(l.Limiter, k.Key, fmt.Sprint(k.Rejected), fmt.Sprint(k.Error))
			}
		}
		t.end()
	}
	v.writeRest(b)
	for _, name := range append([]string{"trouble"}, sectionNames...) {
		if n := v.hidden[name]; n > 0 {
			fmt.Fprintf(b, "\n%s: %d more\n", name, n)
		}
	}
}

func (v *view) writeLimiters(b *bytes.Buffer) {
	if len(v.Limiters) == 0 {
		return
	}
	t := newTable(b, "limiters", "LIMITER", "KIND", "IN", "FREE", "QUEUED", "GRANTED/S", "REJECTED/S", "GRANTED", "REJECTED", "LIMITS")
	for _, l := range v.Limiters {
		free, limits := optional(l.Available), cmp.Or(l.Limits, l.Options.String())
		if l.LastKnown {
			free += " (last known)"
		}
		if l.Partitions != nil {
			free = keysText(int64(*l.Partitions))
		}
		if o := l.Override; o != nil {
			limits += fmt.Sprintf(" (override by %s until %s: %s; the configuration says %s)", o.By, o.Until.Format(time.RFC3339), o.Reason, l.Configured)
		}
		rejected := plainRate(l.RejectedRate)
		if l.Shadow {
			rejected += " (shadow)"
		}
		t.row(l.Name, l.Kind, l.Place, free, optional(l.Queued), plainRate(l.GrantedRate), rejected,
			optional(l.Granted), optional(l.Rejected), limits+prefixed(" (", prefixedBy(l.Note, ")")))
	}
	t.end()
}

func (v *view) writePipelines(b *bytes.Buffer) {
	if len(v.Pipelines) == 0 {
		return
	}
	t := newTable(b, "pipelines", "PIPELINE", "VERSION", "RUNNING", "DRAINING", "RELOAD", "STRATEGIES", "OUT OF THE ORDINARY")
	for _, p := range v.Pipelines {
		var strategies, events []string
		for _, s := range p.Strategies {
			strategies = append(strategies, cmp.Or(s.Embeds, s.Name, s.Kind))
		}
		for _, e := range p.Events {
			events = append(events, fmt.Sprintf("%s %s/s (%d)", e.Name, plainRate(&e.Rate), e.Total))
		}
		t.row(p.Name, fmt.Sprint(p.Version), fmt.Sprint(p.Running), fmt.Sprint(p.Draining), cmp.Or(p.Error, prefixed("override of ", strings.Join(p.Overridden, ", ")), "ok"),
			strings.Join(strategies, " > "), strings.Join(events, ", "))
	}
	t.end()
}

// writeRest writes events, stores, files and jobs.
func (v *view) writeRest(b *bytes.Buffer) {
	if len(v.Events) > 0 {
		t := newTable(b, "events", "TIME", "SEVERITY", "EVENT", "COUNT", "WHERE", "TEXT")
		for _, e := range v.Events {
			t.row(e.Time.Format(time.RFC3339), e.Severity.String(), e.Name, fmt.Sprint(e.Count), e.Source+prefixed(" ", e.Operation),
				e.Text+prefixed(" key ", e.Key)+prefixed(", by ", e.User))
		}
		t.end()
	}
	if len(v.Stores) > 0 {
		t := newTable(b, "stores", "STORE", "HEALTH", "CALLS/S", "CALLS", "FAILED", "DECIDED WITHOUT IT")
		for _, s := range v.Stores {
			health := "available"
			if !s.Available {
				health = "away since " + s.Since.Format(time.RFC3339) + ": " + s.Error
			}
			t.row(s.Name, health, plainRate(s.CallRate), fmt.Sprint(s.Calls), fmt.Sprint(s.Failures), fmt.Sprint(s.Outages))
		}
		t.end()
	}
	if len(v.Files) > 0 {
		t := newTable(b, "configuration", "FILE", "STATE", "LOADED", "LOADS", "REFUSED")
		for _, f := range v.Files {
			t.row(f.Path, cmp.Or(strings.ReplaceAll(f.Error, "\n", "; "), "in force"), v.sinceText(f.LastLoad), fmt.Sprint(f.Loads), fmt.Sprint(f.Failures))
		}
		t.end()
	}
	if v.JobsError != "" {
		fmt.Fprintf(b, "\nthrottled jobs: %s\n", printable(v.JobsError))
	}
	if len(v.Jobs) > 0 {
		t := newTable(b, "throttled jobs", "LIMITER", "TYPE", "LIMITS", "KEYS", "HOLDERS", "WAITERS")
		for _, j := range v.Jobs {
			t.row(j.Name, j.Type, j.Options, fmt.Sprint(j.Keys), fmt.Sprint(j.Holders), fmt.Sprint(j.Waiters))
		}
		t.end()
	}
}

// sinceText returns "since" with the time and for how long, or nothing.
func (v *view) sinceText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "since " + t.Format(time.RFC3339) + " (" + ago(v.Time, t) + ")"
}

// plainRate is rateText without spaces, or "" if the rate is not known.
func plainRate(r *float64) string {
	if r == nil {
		return ""
	}
	return strings.ReplaceAll(rateText(*r), "\u202f", "")
}

// optional returns the number, or "-".
func optional(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
