package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/pipeline"
)

//go:embed templates assets
var embedded embed.FS

// templates are those of all pages.
var templates = template.Must(template.New("").Funcs(functions).ParseFS(embedded, "templates/*.html"))

// An asset is a file that pages refer to.
type asset struct {
	name    string
	content []byte
	kind    string
}

// assets are the assets by name, and assetsHash is in their addresses, so that a browser that keeps them gets new ones
// with a new version.
var assets, assetsHash = func() (map[string]asset, string) {
	all := map[string]asset{}
	h := sha256.New()
	kinds := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}
	files, err := embedded.ReadDir("assets")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		content, err := embedded.ReadFile("assets/" + f.Name())
		if err != nil {
			panic(err)
		}
		_, _ = h.Write(content)
		all[f.Name()] = asset{f.Name(), content, kinds[path.Ext(f.Name())]}
	}
	return all, hex.EncodeToString(h.Sum(nil)[:8])
}()

// serveAsset serves a file. A browser can keep it forever if the address has its hash.
func serveAsset(w http.ResponseWriter, r *http.Request, a asset) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		write(w, formatText, http.StatusMethodNotAllowed, []byte("Only GET and HEAD.\n"))
		return
	}
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == assetsHash {
		h.Set("Cache-Control", "max-age=31536000, immutable")
	}
	h.Set("Content-Type", a.kind)
	h.Set("ETag", `"`+assetsHash+`"`)
	http.ServeContent(w, r, a.name, time.Time{}, strings.NewReader(string(a.content)))
}

// A page is what the templates of pages get.
type page struct {
	Name     string
	Title    string
	Instance string
	ReadOnly bool
	Nav      []navItem
	Hash     string
	Suffix   string // the parameters of links to other pages, with the "?"
	Query    query
	Sorts    []string

	// Of pages that are updated:
	Live     bool
	Time     time.Time
	Stream   string
	Trouble  int
	Sections []section

	// Of the others:
	Text string
	Code string // what can be copied
	Back string
	Data any
}

// A navItem is an entry of the menu.
type navItem struct{ Name, Title string }

// titles are the titles of the pages.
var titles = map[string]string{
	pageOverview: "Overview", "limiters": "Limiters", "pipelines": "Pipelines", "circuits": "Circuits", "keys": "Keys",
	"events": "Events", "stores": "Stores", "files": "Configuration", "jobs": "Jobs", pageCheck: "Check",
}

// page returns a page with what all of them have.
func (d *Dashboard) page(name string, q query) *page {
	p := &page{
		Name: name, Title: titles[name], Instance: d.options.Instance, ReadOnly: d.options.Authorize == nil,
		Hash: assetsHash, Query: q, Sorts: sorts, Time: time.Now().UTC(),
	}
	if s := q.encode(); s != "" {
		p.Suffix = "?" + s
	}
	if name == "events" || name == "keys" || name == "files" {
		p.Sorts = nil // these are in their own order
	}
	p.Nav = append(p.Nav, navItem{pageOverview, titles[pageOverview]})
	for _, each := range sectionNames {
		if each == "jobs" && d.options.Jobs == nil || each == "stores" && len(d.options.Stores) == 0 || each == "files" && len(d.options.Watchers) == 0 {
			continue
		}
		p.Nav = append(p.Nav, navItem{each, titles[each]})
	}
	p.Nav = append(p.Nav, navItem{pageCheck, titles[pageCheck]})
	return p
}

// A moment is a time, and the time of the page that shows it.
type moment struct{ Now, At time.Time }

// functions are those of the templates.
var functions = template.FuncMap{
	"clean":      printable,
	"cleanLines": printableLines,
	"name":       func(s string) string { return printable(shorten(s, 120)) },
	"firstWord":  func(s string) string { first, _, _ := strings.Cut(s, " "); return first },
	"lower":      strings.ToLower,
	"spaces":     func(s string) string { return strings.ReplaceAll(printable(s), "_", " ") },
	"iso":        func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clock":      clock,
	"ago":        ago,
	"next": func(now, at time.Time) string {
		if !at.After(now) {
			return "now"
		}
		return "in " + durationtext.Of(at.Sub(now).Round(time.Second))
	},
	"at":       func(now, at time.Time) moment { return moment{now, at} },
	"duration": func(d time.Duration) string { return durationtext.Of(roundUp(d)) },
	"rate":     rateText,
	"positive": func(rate *float64) bool { return orZero(rate) > 0 },
	"count":    count,
	"severity": func(s pipeline.Severity) string { return severityLevel(s).String() },
	"bar":      bar,
	"spark":    spark,
}

// clock returns the time of the day in UTC, and the date if it is not today.
func clock(t time.Time) string {
	if now := time.Now().UTC(); now.Sub(t) > 12*time.Hour || t.Sub(now) > 12*time.Hour {
		return t.UTC().Format("2006-01-02 15:04:05")
	}
	return t.UTC().Format(time.TimeOnly)
}

// roundUp rounds a wait up, so that a client that waits as long as the page says does not come too early.
func roundUp(d time.Duration) time.Duration {
	unit := time.Millisecond
	if d > 10*time.Second {
		unit = time.Second
	}
	if r := d.Round(unit); r >= d {
		return r
	}
	return d.Round(unit) + unit
}

// count returns a number of any type, or what a pointer to it leads to.
func count(n any) string {
	switch n := n.(type) {
	case *int64:
		return countText(*n)
	case *int:
		return countText(int64(*n))
	case int:
		return countText(int64(n))
	case int64:
		return countText(n)
	default:
		return fmt.Sprint(n)
	}
}

// severityLevel returns the level that is shown for a severity.
func severityLevel(s pipeline.Severity) level {
	switch s {
	case pipeline.SeverityCritical:
		return levelCritical
	case pipeline.SeverityError:
		return levelError
	case pipeline.SeverityWarning:
		return levelWarning
	default:
		return levelNone
	}
}

// bar draws how much of a limit is free.
func bar(l limiterState) template.HTML {
	if l.Available == nil || l.Limit <= 0 {
		return ""
	}
	percent := int(min(max(float64(*l.Available)*100/float64(l.Limit), 0), 100))
	//nolint:gosec // only numbers
	return template.HTML(fmt.Sprintf(`<svg class="bar" aria-hidden="true" preserveAspectRatio="none" viewBox="0 0 100 5">`+
		`<rect class="all" width="100" height="5"/><rect class="free" width="%d" height="5"/></svg>`, percent))
}

// spark draws the history of a limiter: what was granted, if that is known, and above it what was rejected.
func spark(l limiterState) template.HTML {
	const height = 24
	most := int64(1)
	for _, c := range l.History {
		most = max(most, orZero(c.Granted)+orZero(c.Rejected))
	}
	var granted, rejected strings.Builder
	for i, c := range l.History {
		x := 2*i + 1 + 2*(columns-len(l.History))
		g := int(float64(orZero(c.Granted)) / float64(most) * height)
		r := int(float64(orZero(c.Rejected)) / float64(most) * height)
		if orZero(c.Rejected) > 0 {
			r = max(r, 1)
		}
		if g = max(min(g, height-r), 0); orZero(c.Granted) > 0 && g == 0 && r < height {
			g = 1
		}
		if g > 0 {
			fmt.Fprintf(&granted, "M%d %dv-%d", x, height, g)
		}
		if r > 0 {
			fmt.Fprintf(&rejected, "M%d %dv-%d", x, height-g, r)
		}
	}
	text := fmt.Sprintf("at most %s a second", rateText(float64(most)/columnLength.Seconds()))
	if granted.Len()+rejected.Len() == 0 {
		text = "nothing counted in the last five minutes"
	}
	//nolint:gosec // only numbers
	return template.HTML(fmt.Sprintf(`<svg class="spark" role="img" aria-label="%[1]s" preserveAspectRatio="none" viewBox="0 0 %[2]d %[3]d">`+
		`<title>%[1]s</title><path class="granted" d="%[4]s"/><path class="rejected" d="%[5]s"/></svg>`,
		template.HTMLEscapeString(text), 2*columns, height, granted.String(), rejected.String()))
}
