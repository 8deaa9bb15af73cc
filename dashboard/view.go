package dashboard

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"math"
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

// A query is what the parameters of a page say.
type query struct {
	Q    string // what names contain
	Sort string // trouble, name or rate
}

// sorts are the values of the parameter sort, the default first.
var sorts = []string{"trouble", "name", "rate"}

// maxFilter bounds the text that names are filtered by, in bytes. Without the rest of a longer text, a filter shows more.
const maxFilter = 200

func queryOf(v url.Values) query {
	q := query{Q: strings.TrimSpace(firstBytes(v.Get("q"), maxFilter)), Sort: v.Get("sort")}
	if !slices.Contains(sorts, q.Sort) {
		q.Sort = sorts[0]
	}
	return q
}

// values returns the parameters that are not the defaults.
func (q query) values() url.Values {
	v := url.Values{}
	if q.Q != "" {
		v.Set("q", q.Q)
	}
	if q.Sort != sorts[0] {
		v.Set("sort", q.Sort)
	}
	return v
}

// Suffix returns what the addresses of pages with the same parameters end in.
func (q query) Suffix() string {
	if v := q.values(); len(v) > 0 {
		return "?" + v.Encode()
	}
	return ""
}

// matches reports whether one of the words contains the text of the query.
func (q query) matches(words []string) bool {
	return q.Q == "" || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(w), strings.ToLower(q.Q)) })
}

// A rank is what rows are sorted by.
type rank struct {
	level  level
	urgent float64 // what comes first among those of one level
	rate   float64
	name   string
}

func (q query) compare(a, b rank) int {
	byName := cmp.Compare(a.name, b.name)
	switch q.Sort {
	case "name":
		return byName
	case "rate":
		return cmp.Or(cmp.Compare(b.rate, a.rate), byName)
	default:
		return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(b.urgent, a.urgent), byName)
	}
}

// A section is one part of a snapshot. Those with a title have a page of their own.
type section struct {
	name, title string
	optional    bool // the first page leaves it out if the program has nothing of the kind
	sorted      bool // by the query; else its rows have an order of their own
	rows        list
}

// A list is the rows of a section in a snapshot.
type list interface {
	empty(s *snapshot) bool
	// show filters, sorts and cuts the rows, and returns how many are left out.
	show(s *snapshot, q query, most int) (left int)
	drop(s *snapshot)
}

// rowsOf is a list of a type of rows.
type rowsOf[R any] struct {
	of    func(s *snapshot) *[]R
	words func(r R) []string // what the filter looks at
	rank  func(r R) rank     // nil: the rows are not sorted
}

func (l rowsOf[R]) empty(s *snapshot) bool { return len(*l.of(s)) == 0 }
func (l rowsOf[R]) drop(s *snapshot)       { *l.of(s) = nil }

func (l rowsOf[R]) show(s *snapshot, q query, most int) (left int) {
	all := l.of(s)
	if *all == nil {
		return 0
	}
	kept := []R{} // not in place: other pages show the same rows
	for _, r := range *all {
		if q.matches(l.words(r)) {
			kept = append(kept, r)
		}
	}
	if l.rank != nil {
		slices.SortStableFunc(kept, func(a, b R) int { return q.compare(l.rank(a), l.rank(b)) })
	}
	left = max(len(kept)-most, 0)
	*all = kept[:len(kept)-left]
	return left
}

// totals is the summary, which is neither filtered nor cut.
type totals struct{}

func (totals) empty(*snapshot) bool                  { return false }
func (totals) drop(s *snapshot)                      { s.Summary = nil }
func (totals) show(*snapshot, query, int) (left int) { return 0 }

// sections are in the order of the first page and of the menu.
var sections = []section{
	{name: "trouble", rows: rowsOf[trouble]{
		of:    func(s *snapshot) *[]trouble { return &s.Trouble },
		words: func(t trouble) []string { return []string{t.Name, t.What, t.Text} },
	}},
	{name: "summary", rows: totals{}},
	{name: "limiters", title: "Limiters", sorted: true, rows: rowsOf[limiterState]{
		of:    func(s *snapshot) *[]limiterState { return &s.Limiters },
		words: func(l limiterState) []string { return append([]string{l.Name, l.Kind, l.Place}, l.Pipelines...) },
		rank: func(l limiterState) rank {
			granted, rejected := orZero(l.GrantedRate), orZero(l.RejectedRate)
			urgent := math.Floor(math.Log10(max(rejected, 0.1))) // rows do not change places with each small change of a rate
			return rank{l.Level, urgent, granted + rejected, l.Name}
		},
	}},
	{name: "pipelines", title: "Pipelines", sorted: true, rows: rowsOf[pipelineState]{
		of: func(s *snapshot) *[]pipelineState { return &s.Pipelines },
		words: func(p pipelineState) []string {
			words := []string{p.Name}
			for _, s := range p.Strategies {
				words = append(words, s.Name, s.Kind)
			}
			return words
		},
		rank: func(p pipelineState) rank { return rank{p.Level, 0, float64(p.Running), p.Name} },
	}},
	{name: "circuits", title: "Circuits", sorted: true, optional: true, rows: rowsOf[circuitState]{
		of:    func(s *snapshot) *[]circuitState { return &s.Circuits },
		words: func(c circuitState) []string { return []string{c.Source, c.State} },
		rank:  func(c circuitState) rank { return rank{c.Level, 0, 0, c.Source} },
	}},
	{name: "keys", title: "Keys", optional: true, rows: rowsOf[limiterKeys]{
		of: func(s *snapshot) *[]limiterKeys { return &s.Keys },
		words: func(l limiterKeys) []string {
			words := []string{l.Limiter}
			for _, k := range l.Keys {
				words = append(words, k.Key)
			}
			return words
		},
	}},
	{name: "events", title: "Events", rows: rowsOf[eventState]{
		of:    func(s *snapshot) *[]eventState { return &s.Events },
		words: func(e eventState) []string { return []string{e.Name, e.Source, e.Text, e.User, e.Severity.String()} },
	}},
	{name: "stores", title: "Stores", sorted: true, optional: true, rows: rowsOf[storeState]{
		of:    func(s *snapshot) *[]storeState { return &s.Stores },
		words: func(s storeState) []string { return []string{s.Name} },
		rank:  func(s storeState) rank { return rank{s.level(), 0, orZero(s.CallRate), s.Name} },
	}},
	{name: "files", title: "Configuration", optional: true, rows: rowsOf[fileState]{
		of:    func(s *snapshot) *[]fileState { return &s.Files },
		words: func(f fileState) []string { return append([]string{f.Path}, f.Pipelines...) },
	}},
	{name: "jobs", title: "Jobs", sorted: true, optional: true, rows: rowsOf[jobState]{
		of:    func(s *snapshot) *[]jobState { return &s.Jobs },
		words: func(j jobState) []string { return []string{j.Name, j.Type, j.Key} },
		rank: func(j jobState) rank {
			return rank{j.Level, float64(j.Waiters), float64(j.Waiters), targetOf(j.JobRef)}
		},
	}},
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

	Query    query  `json:"-"`
	Overview bool   `json:"-"`
	Parts    []part `json:"-"`
}

// A part is a section of a page.
type part struct {
	*view

	Section string
	Hidden  int // how many rows are left out
}

func newView(snap *snapshot, name string, q query, f format) *view {
	mine := *snap
	v := &view{snapshot: &mine, Query: q, Overview: name == pageOverview}
	for _, s := range sections {
		most := dataRows
		switch {
		case s.name == "trouble":
			most = troubleRows
		case v.Overview:
			most = overviewRows
		case f == formatHTML:
			most = pageRows
		}
		switch {
		case !v.Overview && s.name != name:
			s.rows.drop(&mine)
		case v.Overview && s.optional && s.rows.empty(snap):
		default: // a section that is only filtered stays, so that a page that is updated keeps its sections
			v.Parts = append(v.Parts, part{v, s.name, s.rows.show(&mine, q, most)})
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
