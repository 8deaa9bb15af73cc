package dashboard

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

const (
	// overviewRows bounds the rows of each table of the first page, and pageRows the rows of a page of its own. JSON and
	// text are not sent every two seconds and have up to dataRows.
	overviewRows = 12
	pageRows     = 200
	dataRows     = 1000
)

// sectionNames are the pages that are one part of a snapshot, in the order of the menu.
var sectionNames = []string{"limiters", "pipelines", "circuits", "keys", "events", "stores", "files", "jobs"}

func isSection(name string) bool { return slices.Contains(sectionNames, name) }

// A view is a snapshot as one page shows it: filtered, sorted, and without the parts of other pages.
type view struct {
	*snapshot
	Query  query
	name   string
	hidden map[string]int  // by section: how many rows were left out
	has    map[string]bool // the sections that have something before the filter
}

// newView returns the view of a page in a format.
func newView(snap *snapshot, name string, q query, f format) *view {
	mine := *snap
	v := &view{snapshot: &mine, Query: q, name: name, hidden: map[string]int{}, has: map[string]bool{
		"keys": len(snap.Keys) > 0, "stores": len(snap.Stores) > 0, "files": len(snap.Files) > 0, "circuits": len(snap.Circuits) > 0, "jobs": snap.Jobs != nil,
	}}
	needle := strings.ToLower(q.Q)
	has := func(texts ...string) bool {
		return needle == "" || slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), needle) })
	}
	mine.Trouble = filter(snap.Trouble, func(t trouble) bool { return has(t.Name, t.What, t.Text) })
	mine.Files = filter(snap.Files, func(f fileState) bool { return has(f.Path) || has(f.Pipelines...) })
	mine.Pipelines = filter(snap.Pipelines, func(p pipelineState) bool {
		return has(p.Name) || slices.ContainsFunc(p.Strategies, func(s strategyState) bool { return has(s.Name, s.Kind) })
	})
	mine.Limiters = filter(snap.Limiters, func(l limiterState) bool { return has(l.Name, l.Kind, l.Place) || has(l.Pipelines...) })
	mine.Circuits = filter(snap.Circuits, func(c circuitState) bool { return has(c.Source, c.State) })
	mine.Keys = filter(snap.Keys, func(k limiterKeys) bool {
		return has(k.Limiter) || slices.ContainsFunc(k.Keys, func(s keyState) bool { return has(s.Key) })
	})
	mine.Events = filter(snap.Events, func(e eventState) bool { return has(e.Name, e.Source, e.Text, e.User, e.Severity.String()) })
	mine.Stores = filter(snap.Stores, func(s storeState) bool { return has(s.Name) })
	if snap.Jobs != nil {
		mine.Jobs = filter(snap.Jobs, func(j jobState) bool { return has(j.Name, j.Type, j.Key) })
	}
	v.sort()
	v.cut(f)
	v.leaveOut()
	return v
}

// filter returns the elements that keep returns true for, in a slice that is not nil.
func filter[T any](all []T, keep func(T) bool) []T {
	kept := make([]T, 0, len(all))
	for _, e := range all {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// sort sorts the lists that are not in an order of time.
func (v *view) sort() {
	by := v.Query.Sort
	sortBy(v.Limiters, by, func(l limiterState) (level, float64, string) {
		if by == "rate" {
			return l.Level, orZero(l.GrantedRate) + orZero(l.RejectedRate), l.Name
		}
		return l.Level, magnitude(orZero(l.RejectedRate)), l.Name
	})
	sortBy(v.Pipelines, by, func(p pipelineState) (level, float64, string) {
		if by == "rate" {
			return p.Level, float64(p.Running), p.Name
		}
		return p.Level, 0, p.Name
	})
	sortBy(v.Circuits, by, func(c circuitState) (level, float64, string) { return c.Level, 0, c.Source })
	sortBy(v.Stores, by, func(s storeState) (level, float64, string) {
		return levelOf(!s.Available, levelCritical), orZero(s.CallRate), s.Name
	})
	sortBy(v.Jobs, by, func(j jobState) (level, float64, string) { return j.Level, float64(j.Waiters), j.String() })
}

// magnitude returns the order of magnitude of a rate. By it, rows do not change places with each small change of a rate.
func magnitude(rate float64) float64 {
	if rate <= 0 {
		return -1
	}
	return max(math.Floor(math.Log10(rate)), 0)
}

func levelOf(bad bool, l level) level {
	if bad {
		return l
	}
	return levelNone
}

// sortBy sorts by trouble, name or rate. what returns all three of an element.
func sortBy[T any](all []T, by string, what func(T) (level, float64, string)) {
	slices.SortStableFunc(all, func(a, b T) int {
		levelA, rateA, nameA := what(a)
		levelB, rateB, nameB := what(b)
		byName, byRate := cmp.Compare(nameA, nameB), cmp.Compare(rateB, rateA)
		switch by {
		case "name":
			return byName
		case "rate":
			return cmp.Or(byRate, byName)
		default:
			return cmp.Or(cmp.Compare(levelB, levelA), byRate, byName)
		}
	})
}

// cut bounds the lists.
func (v *view) cut(f format) {
	n := dataRows
	switch {
	case v.name == pageOverview:
		n = overviewRows
	case f == formatHTML:
		n = pageRows
	}
	v.Limiters = cut(v, "limiters", v.Limiters, n)
	v.Pipelines = cut(v, "pipelines", v.Pipelines, n)
	v.Circuits = cut(v, "circuits", v.Circuits, n)
	v.Keys = cut(v, "keys", v.Keys, n)
	v.Events = cut(v, "events", v.Events, n)
	v.Stores = cut(v, "stores", v.Stores, n)
	v.Files = cut(v, "files", v.Files, n)
	v.Jobs = cut(v, "jobs", v.Jobs, n)
	v.Trouble = cut(v, "trouble", v.Trouble, 50)
}

func cut[T any](v *view, section string, all []T, n int) []T {
	if len(all) <= n {
		return all
	}
	v.hidden[section] = len(all) - n
	return all[:n]
}

// leaveOut drops what belongs to other pages.
func (v *view) leaveOut() {
	if v.name == pageOverview {
		return
	}
	only := func(section string) bool { return v.name == section }
	if !only("limiters") {
		v.Limiters = nil
	}
	if !only("pipelines") {
		v.Pipelines = nil
	}
	if !only("circuits") {
		v.Circuits = nil
	}
	if !only("keys") {
		v.Keys = nil
	}
	if !only("events") {
		v.Events = nil
	}
	if !only("stores") {
		v.Stores = nil
	}
	if !only("files") {
		v.Files = nil
	}
	if !only("jobs") {
		v.Jobs, v.JobsError = nil, ""
	}
	v.Trouble, v.Summary = nil, nil
}

// A section is a part of a page that is updated by itself.
type section struct {
	ID   string        `json:"id"`
	HTML template.HTML `json:"html"`
}

// sectionData is what the template of a section gets.
type sectionData struct {
	*view
	Section  string
	Overview bool
	Hidden   int
	Suffix   string // the parameters of links to other pages, with the "?"
}

// sections renders the sections of the page.
func (v *view) sections() []section {
	names := []string{v.name}
	if v.name == pageOverview {
		names = []string{"trouble", "summary", "limiters", "pipelines", "circuits", "keys", "events", "stores", "files", "jobs"}
	}
	var all []section
	for _, name := range names {
		if v.name == pageOverview && v.isEmpty(name) {
			continue
		}
		data := sectionData{view: v, Section: name, Overview: v.name == pageOverview, Hidden: v.hidden[name]}
		if q := v.Query.encode(); q != "" {
			data.Suffix = "?" + q
		}
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, "section-"+name, data); err != nil {
			b.Reset()
			fmt.Fprintf(&b, "<p>This part could not be made: %s</p>", template.HTMLEscapeString(err.Error()))
		}
		all = append(all, section{ID: "section-" + name, HTML: template.HTML(bytes.ToValidUTF8(b.Bytes(), replacement))}) //nolint:gosec // made by html/template
	}
	return all
}

// isEmpty reports whether the first page leaves a section out, because the program has nothing of the kind. A section that
// is only filtered stays, so that a page that is updated keeps its sections.
func (v *view) isEmpty(name string) bool {
	has, optional := v.has[name]
	return optional && !has
}
