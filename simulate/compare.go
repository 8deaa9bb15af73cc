package simulate

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// A Comparison is two results beside each other, such as of two configurations under the same load. Make one with
// [Compare]. Its JSON form is for programs, and has durations in nanoseconds.
type Comparison struct {
	// BeforeName and AfterName are what tables and pictures call the results, "before" and "after" by default. A program
	// can change them.
	BeforeName string `json:"before_name"`
	AfterName  string `json:"after_name"`
	// Before and After are the results.
	Before *Result `json:"before"`
	After  *Result `json:"after"`
	// Change is what is more in After than in Before.
	Change Change `json:"change"`
	// OneByOne reports whether requests can be compared one by one: both loads are open or recordings, with the same For,
	// Seed and number of requests. In a closed load, when a request is sent depends on the answer to the one before it.
	OneByOne bool `json:"one_by_one"`
	// NewlyRefused is how many requests succeeded in Before and do not in After. A request counts as refused if it did not
	// succeed in the end, however often its client tried and whatever the error was. It is 0 if OneByOne is false.
	NewlyRefused int64 `json:"newly_refused"`
	// NoLongerRefused is how many requests did not succeed in Before and do in After. It is 0 if OneByOne is false.
	NoLongerRefused int64 `json:"no_longer_refused"`
	// Losers are the keys of which fewer executions are admitted in After, the greatest loss first, at most ten.
	Losers []KeyChange `json:"losers,omitempty"`
	// Winners are the keys of which more executions are admitted in After, the greatest gain first, at most ten.
	Winners []KeyChange `json:"winners,omitempty"`
}

// A Change is the difference of two results: what the second has more than the first. A number is negative if the second
// has less.
type Change struct {
	// Total is the difference of Result.Total.
	Total Counts `json:"total"`
	// Latency is how much longer executions took that succeeded: the difference of each quantile.
	Latency Quantiles `json:"latency"`
	// Wait is how much longer executions waited for a permit that they got: the difference of each quantile.
	Wait Quantiles `json:"wait"`
	// Service is how much longer the service took: the difference of each quantile.
	Service Quantiles `json:"service"`
	// Rejections has the difference for each strategy that rejected in one of the results.
	Rejections map[string]int64 `json:"rejections,omitempty"`
	// Failures has the difference for each reason for which an execution failed in one of the results.
	Failures map[string]int64 `json:"failures,omitempty"`
}

// A KeyChange is what a key got before and after. Offered and admitted are those of [Counts].
type KeyChange struct {
	// Key is the key.
	Key string `json:"key"`
	// OfferedBefore is how many executions the key had before, and OfferedAfter how many it has after.
	OfferedBefore int64 `json:"offered_before"`
	OfferedAfter  int64 `json:"offered_after"`
	// AdmittedBefore is how many of them were admitted before, and AdmittedAfter how many are after.
	AdmittedBefore int64 `json:"admitted_before"`
	AdmittedAfter  int64 `json:"admitted_after"`
}

// change returns how many more executions are admitted.
func (k *KeyChange) change() int64 { return k.AdmittedAfter - k.AdmittedBefore }

// Compare compares two results of [Run], which must not be nil. With a Result that was decoded from JSON, OneByOne is false
// and there are no Losers and Winners: the JSON form does not have each request and each key.
func Compare(before, after *Result) *Comparison {
	c := &Comparison{BeforeName: "before", AfterName: "after", Before: before, After: after}
	c.Change = Change{
		Total: after.Total.minus(before.Total), Latency: after.Latency.minus(before.Latency), Wait: after.Wait.minus(before.Wait),
		Service:    after.Service.minus(before.Service),
		Rejections: differences(before.Rejections, after.Rejections), Failures: differences(before.Failures, after.Failures),
	}
	c.OneByOne = before.open && after.open && before.For == after.For && before.Seed == after.Seed && before.Total.Requests == after.Total.Requests
	if c.OneByOne {
		c.NewlyRefused = before.satisfied.without(after.satisfied)
		c.NoLongerRefused = after.satisfied.without(before.satisfied)
	}
	c.compareKeys()
	return c
}

// differences returns what is more in after than in before, by name. It returns nil if there are no names.
func differences(before, after map[string]int64) map[string]int64 {
	if len(before)+len(after) == 0 {
		return nil
	}
	all := make(map[string]int64, len(after))
	for name, n := range before {
		all[name] -= n
	}
	for name, n := range after {
		all[name] += n
	}
	return all
}

// compareKeys finds the keys with the greatest losses and gains.
func (c *Comparison) compareKeys() {
	const most = 10
	if c.Before.keyed == nil || c.After.keyed == nil {
		return // all keys of the other one would have won or lost everything
	}
	changes := map[string]KeyChange{}
	for key, n := range c.Before.keyed {
		changes[key] = KeyChange{Key: key, OfferedBefore: n.offered, AdmittedBefore: n.admitted}
	}
	for key, n := range c.After.keyed {
		k := changes[key]
		k.Key, k.OfferedAfter, k.AdmittedAfter = key, n.offered, n.admitted
		changes[key] = k
	}
	order := slices.SortedFunc(maps.Values(changes), func(a, b KeyChange) int {
		return cmp.Or(cmp.Compare(a.change(), b.change()), strings.Compare(a.Key, b.Key))
	})
	for _, k := range order {
		if k.change() < 0 && len(c.Losers) < most {
			c.Losers = append(c.Losers, k)
		}
	}
	slices.SortFunc(order, func(a, b KeyChange) int {
		return cmp.Or(cmp.Compare(b.change(), a.change()), strings.Compare(a.Key, b.Key))
	})
	for _, k := range order {
		if k.change() > 0 && len(c.Winners) < most {
			c.Winners = append(c.Winners, k)
		}
	}
}

// WriteTable writes c as text for a terminal, of at most 100 columns: as [Result.WriteTable] does, with both results and
// their difference.
func (c *Comparison) WriteTable(w io.Writer) error { return c.report().writeText(w) }

// WriteSVG writes c as a picture: both results beside each other, with the same scales. See [Result.WriteSVG].
func (c *Comparison) WriteSVG(w io.Writer) error { return c.figure().write(w, "weir", svgWidth) }

func (c *Comparison) report() *report {
	return &report{title: c.title(), subtitle: c.subtitle(), tables: c.tables()}
}

func (c *Comparison) title() string {
	return "Comparison of " + c.name(0) + " and " + c.name(1)
}

// name returns the name of the result before or after as it is shown.
func (c *Comparison) name(i int) string {
	name := [...]string{c.BeforeName, c.AfterName}[i]
	if strings.TrimSpace(name) == "" {
		name = [...]string{"before", "after"}[i]
	}
	return isolated(shorten(printable(name), 40))
}

func (c *Comparison) subtitle() []string {
	before, after := c.Before.setting(), c.After.setting()
	if before == after {
		return []string{"Both: " + before, c.summary(), c.verdict()}
	}
	return []string{c.name(0) + ": " + before, c.name(1) + ": " + after, c.summary(), c.verdict()}
}

// summary is the comparison in a sentence: what clients get, and what it costs the service.
func (c *Comparison) summary() string {
	before, after := &c.Before.Total, &c.After.Total
	var text strings.Builder
	fmt.Fprintf(&text, "From %s to %s: satisfied %s → %s of the requests, calls of the service %s → %s", c.name(0), c.name(1),
		formatShare(before.Satisfied, before.Requests), formatShare(after.Satisfied, after.Requests), formatCount(before.Calls), formatCount(after.Calls))
	for _, n := range []struct {
		name    string
		was, is int64
	}{{"rejected", before.Rejected, after.Rejected}, {"failed", before.Failed, after.Failed}} {
		if n.was > 0 || n.is > 0 {
			fmt.Fprintf(&text, ", executions %s %s → %s", n.name, formatShare(n.was, before.Offered), formatShare(n.is, after.Offered))
		}
	}
	return text.String()
}

// setting says what was simulated, in short.
func (r *Result) setting() string {
	text := fmt.Sprintf("%s of requests, %s, seed %d", formatMoment(r.For), plural(int64(r.Instances), "instance", "instances"), r.Seed)
	if r.Pipeline != "" {
		text = "pipeline " + isolated(shorten(printable(r.Pipeline), 60)) + ", " + text
	}
	return text
}

// verdict says what changes for requests, in a sentence.
func (c *Comparison) verdict() string {
	switch {
	case c.OneByOne:
		verb := "are"
		if c.NewlyRefused == 1 {
			verb = "is"
		}
		return fmt.Sprintf("%s (%s) %s newly refused, %s (%s) no longer", plural(c.NewlyRefused, "request", "requests"), formatShare(c.NewlyRefused, c.Before.Total.Requests),
			verb, formatCount(c.NoLongerRefused), formatShare(c.NoLongerRefused, c.Before.Total.Requests))
	case !c.Before.open && !c.Before.closed || !c.After.open && !c.After.closed:
		return "Requests cannot be compared one by one: a result that was read from JSON does not have them."
	case c.Before.closed || c.After.closed:
		return "Requests of a closed load cannot be compared one by one: when each is sent depends on the answers before it."
	}
	return "Requests cannot be compared one by one: the loads are different."
}

func (c *Comparison) figure() *figure {
	f := &figure{title: c.title(), subtitle: c.subtitle(), summary: strings.Join(c.subtitle(), ". "), columns: 2, height: 110}
	f.footer = assumedText(c.assumed())
	calls := c.Before.retries() || c.After.retries()
	before, after := c.Before.panels(svgWidth/2, calls), c.After.panels(svgWidth/2, calls)
	end := max(c.Before.until(), c.After.until())
	for i := range before {
		before[i].end, after[i].end = end, end
		before[i].title += ": " + c.name(0)
		after[i].title += ": " + c.name(1)
		sameScale(&before[i], &after[i])
		f.panels = append(f.panels, before[i], after[i])
	}
	return f
}

// assumed returns what was assumed in either simulation.
func (c *Comparison) assumed() []string {
	all := slices.Concat(c.Before.Assumed, c.After.Assumed)
	slices.Sort(all)
	return slices.Compact(all)
}
