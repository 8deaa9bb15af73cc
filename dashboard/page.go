package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir/store"
)

// accepted returns the format that the header Accept asks for.
func accepted(accept string) format {
	switch {
	case strings.Contains(accept, "text/html"):
		return formatHTML
	case strings.Contains(accept, "application/json"):
		return formatJSON
	default:
		return formatText
	}
}

// A page is what the HTML templates of pages get.
type page struct {
	Name     string
	Title    string
	Instance string
	ReadOnly bool
	Nav      []navItem
	Hash     string // of the assets
	Query    query
	Time     time.Time
	Stream   template.URL // of its updates; "" if there are none
	Trouble  int
	Back     string // the page that it leads back to
	Data     any
}

// A navItem is an entry of the menu.
type navItem struct{ Name, Title string }

// Sorts returns the values of the parameter sort; none if the page is not sorted.
func (p *page) Sorts() []string {
	if s := sectionOf(p.Name); s != nil && !s.sorted {
		return nil
	}
	return sorts
}

// page returns a page with what all of them have.
func (d *Dashboard) page(name string) *page {
	o := &d.options
	p := &page{Name: name, Instance: o.Instance, ReadOnly: o.Authorize == nil, Hash: assetsHash, Query: queryOf(nil), Time: time.Now().UTC()}
	p.Nav = append(p.Nav, navItem{pageOverview, "Overview"})
	for _, s := range sections {
		if s.title == "" || s.name == "jobs" && o.Jobs == nil || s.name == "stores" && len(o.Stores) == 0 || s.name == "files" && len(o.Watchers) == 0 {
			continue
		}
		p.Nav = append(p.Nav, navItem{s.name, s.title})
	}
	p.Nav = append(p.Nav, navItem{pageCheck, "Check"})
	if i := slices.IndexFunc(p.Nav, func(n navItem) bool { return n.Name == name }); i >= 0 {
		p.Title = p.Nav[i].Title
	}
	return p
}

// link returns a relative link. html/template would escape the separators of parameters that come from a value.
func link(page string, v url.Values) template.URL {
	return template.URL(page + "?" + v.Encode()) //nolint:gosec // Encode has escaped the values
}

// answer writes data in the format f: as JSON, or by the template of that name. p is the page in HTML.
func (d *Dashboard) answer(w http.ResponseWriter, f format, status int, name string, p *page, data any) {
	var b bytes.Buffer
	var err error
	switch f {
	case formatJSON:
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		err = e.Encode(data)
	case formatText: // cells that a tab ends are aligned
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		err = textTemplates.ExecuteTemplate(t, name, data)
		_ = t.Flush()
	default:
		p.Data = data
		err = htmlTemplates.ExecuteTemplate(&b, name, p)
	}
	if err != nil {
		d.options.Logger.Error("dashboard: a page could not be made", "page", name, "error", err)
		status, f = http.StatusInternalServerError, formatText
		b = *bytes.NewBufferString("The page could not be made. The log says why.\n")
	}
	body := bytes.ToValidUTF8(b.Bytes(), replacement) // attributes in HTML have names as they are
	w.Header().Set("Content-Type", contentTypes[f])
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a write that fails is the end of the client
}

// assets are the content types of the files that pages refer to.
var assets = map[string]string{
	"dashboard.css": "text/css; charset=utf-8", "dashboard.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
}

// assetsHash is in the addresses of the assets, so that a browser that keeps them gets new ones with a new version.
var assetsHash = func() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(assets)) {
		_, _ = h.Write(contentOf(name))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}()

func contentOf(asset string) []byte {
	content, err := embedded.ReadFile("assets/" + asset)
	if err != nil {
		panic(err) // when the program starts
	}
	return content
}

// serveAsset serves a file. A browser can keep it forever if the address has its hash.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == assetsHash {
		h.Set("Cache-Control", "max-age=31536000, immutable")
	}
	h.Set("Content-Type", assets[name])
	h.Set("ETag", `"`+assetsHash+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(contentOf(name)))
}

// The pages that are not one section.
const (
	pageOverview = "overview"
	pageCheck    = "check"
	pageAction   = "action"
	pageStream   = "stream"
)

// A problem is why something was not answered or not done, with the status of the answer.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func refuse(status int, format string, args ...any) error {
	return &problem{status, fmt.Sprintf(format, args...)}
}

// statusOf returns the status of an answer with an error.
func statusOf(err error) int {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.status
	}
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return http.StatusConflict
}

// A failure is an answer with an error.
type failure struct {
	Status int    `json:"status"`
	Text   string `json:"error"`
}

// fail answers with an error in the format of the page.
func (d *Dashboard) fail(w http.ResponseWriter, f format, err error) {
	status := statusOf(err)
	p := d.page("")
	p.Title = http.StatusText(status)
	d.answer(w, f, status, "failure", p, failure{status, printableLines(err.Error())})
}
