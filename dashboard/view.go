package dashboard

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	// overviewRows bounds the rows of each list of the first page, and pageRows those of a page of its own. JSON and text are
	// not sent every two seconds and have up to dataRows.
	overviewRows = 12
	troubleRows  = 50
	pageRows     = 200
	dataRows     = 1000
)

// A filter is what the names on a page contain.
type filter string

// maxFilter bounds a filter, in bytes. Without the rest of a longer text, a filter shows more.
const maxFilter = 200

// filterOf returns the parameter q.
func filterOf(r *http.Request) filter {
	return filter(strings.TrimSpace(firstBytes(r.URL.Query().Get("q"), maxFilter)))
}

// Suffix returns what the addresses of pages with the same filter end in.
func (f filter) Suffix() string {
	if f == "" {
		return ""
	}
	return "?q=" + url.QueryEscape(string(f))
}

func (f filter) matches(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(w), strings.ToLower(string(f))) })
}

// A rank is what rows are sorted by: the worst first.
type rank struct {
	level  level
	urgent float64 // what comes first among those of one level
	name   string
}

func (a rank) compare(b rank) int {
	return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(b.urgent, a.urgent), cmp.Compare(a.name, b.name))
}

// A section is one part of a snapshot. Those with a title have a page of their own.
type section struct {
	name, title string
	optional    bool // the first page leaves it out if the program has nothing of the kind
	// show filters, sorts and cuts the rows. It returns how many rows there were before the filter, and how many it has left
	// out to have at most most. If most is 0, the snapshot has no rows of the section any more.
	show func(s *snapshot, f filter, most int) (all, left int)
}

// rows returns the function show for a type of rows. words returns what the filter looks at. If rankOf is nil, the rows have
// an order of their own.
func rows[R any](of func(s *snapshot) *[]R, words func(r R) []string, rankOf func(r R) rank) func(*snapshot, filter, int) (int, int) {
	return func(s *snapshot, f filter, most int) (all, left int) {
		list := of(s)
		if all = len(*list); most == 0 || *list == nil {
			*list = nil
			return all, 0
		}
		kept := []R{} // not in place: other pages show the same rows
		for _, r := range *list {
			if f.matches(words(r)) {
				kept = append(kept, r)
			}
		}
		if rankOf != nil {
			slices.SortStableFunc(kept, func(a, b R) int { return rankOf(a).compare(rankOf(b)) })
		}
		left = max(len(kept)-most, 0)
		*list = kept[:len(kept)-left]
		return all, left
	}
}

// showSummary is the function show of the summary, which is neither filtered nor cut.
func showSummary(s *snapshot, _ filter, most int) (all, left int) {
	if most == 0 {
		s.Summary = nil
	}
	return 1, 0
}

// sections are in the order of the first page and of the menu.
var sections = []section{
	{name: "trouble", show: rows(
		func(s *snapshot) *[]trouble { return &s.Trouble },
		func(t trouble) []string { return []string{t.Name, t.What, t.Text} },
		nil,
	)},
	{name: "summary", show: showSummary},
	{name: "limiters", title: "Limiters", show: rows(
		func(s *snapshot) *[]limiterState { return &s.Limiters },
		func(l limiterState) []string { return append([]string{l.Name, l.Kind, l.Place}, l.Pipelines...) },
		func(l limiterState) rank { // rows do not change places with each small change of a rate
			return rank{l.Level, math.Floor(math.Log10(max(orZero(l.RejectedRate), 0.1))), l.Name}
		},
	)},
	{name: "pipelines", title: "Pipelines", show: rows(
		func(s *snapshot) *[]pipelineState { return &s.Pipelines },
		func(p pipelineState) []string {
			words := []string{p.Name}
			for _, s := range p.Strategies {
				words = append(words, s.Name, s.Kind)
			}
			return words
		},
		func(p pipelineState) rank { return rank{p.Level, 0, p.Name} },
	)},
	{name: "circuits", title: "Circuits", optional: true, show: rows(
		func(s *snapshot) *[]circuitState { return &s.Circuits },
		func(c circuitState) []string { return []string{c.Source, c.State} },
		func(c circuitState) rank { return rank{c.Level, 0, c.Source} },
	)},
	{name: "keys", title: "Keys", optional: true, show: rows(
		func(s *snapshot) *[]limiterKeys { return &s.Keys },
		func(l limiterKeys) []string {
			words := []string{l.Limiter}
			for _, k := range l.Keys {
				words = append(words, k.Key)
			}
			return words
		},
		nil,
	)},
	{name: "events", title: "Events", show: rows(
		func(s *snapshot) *[]eventState { return &s.Events },
		func(e eventState) []string { return []string{e.Name, e.Source, e.Text, e.User, e.Severity.String()} },
		nil,
	)},
	{name: "stores", title: "Stores", optional: true, show: rows(
		func(s *snapshot) *[]storeState { return &s.Stores },
		func(s storeState) []string { return []string{s.Name} },
		func(s storeState) rank { return rank{s.level(), 0, s.Name} },
	)},
	{name: "files", title: "Configuration", optional: true, show: rows(
		func(s *snapshot) *[]fileState { return &s.Files },
		func(f fileState) []string { return append([]string{f.Path}, f.Pipelines...) },
		nil,
	)},
	{name: "jobs", title: "Jobs", optional: true, show: rows(
		func(s *snapshot) *[]jobState { return &s.Jobs },
		func(j jobState) []string { return []string{j.Name, j.Type, j.Key} },
		func(j jobState) rank { return rank{j.Level, float64(j.Waiters), targetOf(j.JobRef)} },
	)},
}

// sectionOf returns the section that has a page of that name.
func sectionOf(page string) *section {
	for i := range sections {
		if s := &sections[i]; s.name == page && s.title != "" {
			return s
		}
	}
	return nil
}

// A view is a snapshot as one page shows it: filtered, sorted, and without the sections of other pages. Its JSON is the API.
type view struct {
	*snapshot

	Filter   filter `json:"-"`
	Overview bool   `json:"-"`
	Parts    []part `json:"-"`
}

// A part is a section of a page.
type part struct {
	*view

	Section string
	Hidden  int // how many rows are left out
}

func newView(snap *snapshot, name string, q filter, f format) *view {
	mine := *snap
	v := &view{snapshot: &mine, Filter: q, Overview: name == pageOverview}
	for _, s := range sections {
		most := dataRows
		switch {
		case !v.Overview && s.name != name:
			most = 0
		case s.name == "trouble":
			most = troubleRows
		case v.Overview:
			most = overviewRows
		case f == formatHTML:
			most = pageRows
		}
		// A section that is only filtered stays, so that a page that is updated keeps its sections.
		if all, left := s.show(&mine, q, most); most > 0 && (all > 0 || !v.Overview || !s.optional) {
			v.Parts = append(v.Parts, part{v, s.name, left})
		}
	}
	if !v.Overview && name != "jobs" {
		mine.JobsError = ""
	}
	return v
}

// ID returns the ID of the part in the page.
func (p part) ID() string { return "section-" + p.Section }

// HTML renders the part.
func (p part) HTML() template.HTML {
	var b bytes.Buffer
	if err := htmlTemplates.ExecuteTemplate(&b, p.ID(), p); err != nil {
		b.Reset()
		fmt.Fprintf(&b, "<p>This part could not be made: %s</p>", template.HTMLEscapeString(err.Error()))
	}
	return template.HTML(bytes.ToValidUTF8(b.Bytes(), replacement)) //nolint:gosec // made by html/template
}
