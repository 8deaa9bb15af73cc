package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The formats of a page.
type format string

const (
	formatHTML format = "html"
	formatJSON format = "json"
	formatText format = "txt"
)

// contentTypes are the content types of the formats.
var contentTypes = map[format]string{
	formatHTML: "text/html; charset=utf-8",
	formatJSON: "application/json",
	formatText: "text/plain; charset=utf-8",
}

// The names of the pages. A page that is in sections is one part of a snapshot.
const (
	pageOverview = "overview"
	pageCheck    = "check"
	pageAction   = "action"
	pageStream   = "stream"
)

// policy is the Content-Security-Policy of all answers: only the dashboard's own style sheet, script and icon.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the pages. The handler can be mounted under any prefix, with http.StripPrefix or without: it looks at
// the last element of the path only, and all its links are relative. The prefix must end in a slash; without it, a path
// that StripPrefix has left empty is redirected.
//
// The pages are overview, which the prefix itself also shows, pipelines, limiters, circuits, keys, events, stores, files,
// jobs, and check. A suffix .json, .txt or .html says in which format. Without one, the header Accept decides: HTML if it has
// text/html, as that of every browser; else JSON if it has application/json; else text, so that curl shows something that
// people can read. The parameter q keeps what contains a text, in any case of its letters; sort is trouble, name or rate.
//
// Paths other than that of an action accept GET and HEAD. See [Options.Authorize] for the actions.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // not no-referrer, which makes browsers hide the Origin of a form
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store, no-transform")
	if r.URL.Path == "" {
		redirectToSlash(w, r)
		return
	}
	name, f := d.route(r)
	if a, ok := assets[name]; ok && f == "" {
		serveAsset(w, r, a)
		return
	}
	if f == "" {
		h.Add("Vary", "Accept")
		f = accepted(r.Header.Values("Accept"))
	}
	if name == pageAction && r.Method == http.MethodPost {
		d.serveAction(w, r, f)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		allow := "GET, HEAD"
		if name == pageAction {
			allow += ", POST"
		}
		h.Set("Allow", allow)
		d.fail(w, f, http.StatusMethodNotAllowed, "This page does not accept "+printable(shorten(r.Method, 20))+", only "+allow+".")
		return
	}
	switch {
	case name == pageStream:
		d.serveStream(w, r)
	case name == pageCheck:
		d.serveCheck(w, r, f)
	case name == pageAction:
		d.serveConfirmation(w, r, f)
	case name == "jobs" && r.URL.Query().Has("name"):
		d.serveJob(w, r, f)
	case name == pageOverview || isSection(name):
		d.servePage(w, r, name, f)
	default:
		d.fail(w, f, http.StatusNotFound, "There is no page "+strconv.Quote(printable(shorten(name, 100)))+".")
	}
}

// redirectToSlash redirects from the prefix without its slash, which http.StripPrefix leaves as an empty path. Relative
// links would lead elsewhere from there.
func redirectToSlash(w http.ResponseWriter, r *http.Request) {
	original, _, _ := strings.Cut(r.RequestURI, "?")
	to := path.Base("/"+original) + "/"
	if to == "//" || strings.Contains(to, ":") { // a relative URL must not look like an absolute one
		to = "./" + strings.TrimLeft(to, "/")
	}
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", to) // http.Redirect would make it absolute, without the prefix
	w.WriteHeader(http.StatusPermanentRedirect)
}

// route returns the name of the page or asset and, if the path says it, the format.
func (d *Dashboard) route(r *http.Request) (name string, f format) {
	p := r.URL.Path
	if strings.HasSuffix(p, "/") {
		if mounted(r.Pattern, p) {
			return pageOverview, ""
		}
		p = strings.TrimRight(p, "/")
	}
	name = p[strings.LastIndexByte(p, '/')+1:]
	if _, ok := assets[name]; ok {
		return name, ""
	}
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		if suffix := format(name[i+1:]); contentTypes[suffix] != "" {
			return name[:i], suffix
		}
	}
	known := name == pageOverview || name == pageCheck || name == pageAction || name == pageStream || isSection(name)
	if !known && strings.HasSuffix(r.URL.Path, "/") {
		return pageOverview, "" // the prefix
	}
	return name, ""
}

// mounted reports whether p is the path of a pattern of http.ServeMux: the prefix itself, even if it is called as a page.
func mounted(pattern, p string) bool {
	if _, rest, ok := strings.Cut(pattern, " "); ok {
		pattern = rest
	}
	i := strings.IndexByte(pattern, '/')
	return p == "/" || i >= 0 && pattern[i:] == p
}

// accepted returns the format that the headers Accept ask for.
func accepted(headers []string) format {
	quality := map[string]float64{}
	for _, h := range headers {
		for part := range strings.SplitSeq(h, ",") {
			kind, params, _ := strings.Cut(part, ";")
			q := 1.0
			for p := range strings.SplitSeq(params, ";") {
				if v, ok := strings.CutPrefix(strings.TrimSpace(p), "q="); ok {
					q, _ = strconv.ParseFloat(v, 64)
				}
			}
			quality[strings.ToLower(strings.TrimSpace(kind))] = q
		}
	}
	switch {
	case quality["text/html"] > 0 && quality["text/html"] >= quality["application/json"]:
		return formatHTML
	case quality["application/json"] > 0 && quality["application/json"] >= quality["text/plain"]:
		return formatJSON
	default:
		return formatText
	}
}

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

// encode returns the parameters, or "" if they are the defaults.
func (q query) encode() string {
	v := url.Values{}
	if q.Q != "" {
		v.Set("q", q.Q)
	}
	if q.Sort != sorts[0] {
		v.Set("sort", q.Sort)
	}
	return v.Encode()
}

// servePage serves the overview or one section.
func (d *Dashboard) servePage(w http.ResponseWriter, r *http.Request, name string, f format) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	snap, err := d.snapshot(ctx, tick/2)
	if err != nil {
		d.fail(w, f, http.StatusServiceUnavailable, "The figures were not ready in time. Try again.")
		return
	}
	v := newView(snap, name, queryOf(r.URL.Query()), f)
	d.answer(w, f, http.StatusOK, v.snapshot, v.writeText, func() (string, any) {
		p := d.page(name, v.Query)
		p.Live, p.Time, p.Stream, p.Trouble = true, snap.Time, streamURL(name, v.Query), len(snap.Trouble)
		p.Sections = v.sections()
		return "page", p
	})
}

// answer writes an answer in the format f: asJSON, or what text writes, or the template and its data that html returns.
func (d *Dashboard) answer(w http.ResponseWriter, f format, status int, asJSON any, text func(*bytes.Buffer), html func() (template string, data any)) {
	switch f {
	case formatJSON:
		writeJSON(w, status, asJSON)
	case formatText:
		var b bytes.Buffer
		text(&b)
		write(w, formatText, status, b.Bytes())
	default:
		name, data := html()
		d.render(w, status, name, data)
	}
}

// streamURL returns the relative URL of the stream of a page.
func streamURL(name string, q query) string {
	v := url.Values{"page": {name}}
	if q.Q != "" {
		v.Set("q", q.Q)
	}
	if q.Sort != sorts[0] {
		v.Set("sort", q.Sort)
	}
	return pageStream + "?" + v.Encode()
}

// fail answers with an error in the format of the page.
func (d *Dashboard) fail(w http.ResponseWriter, f format, status int, text string) {
	text = printableLines(text)
	asJSON := map[string]any{"status": status, "error": text}
	d.answer(w, f, status, asJSON, func(b *bytes.Buffer) { b.WriteString(text + "\n") }, func() (string, any) {
		p := d.page("", query{Sort: sorts[0]})
		p.Title, p.Text = http.StatusText(status), text
		return "message", p
	})
}

// render executes a template and writes the result.
func (d *Dashboard) render(w http.ResponseWriter, status int, name string, data any) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		d.options.Logger.Error("dashboard: a page could not be made", "page", name, "error", err)
		write(w, formatText, http.StatusInternalServerError, []byte("The page could not be made. The log says why.\n"))
		return
	}
	// The attributes of a page have names as they are, and these need not be UTF-8.
	write(w, formatHTML, status, bytes.ToValidUTF8(b.Bytes(), replacement))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, b = http.StatusInternalServerError, fmt.Appendf(nil, "{\"error\": %q}", err)
	}
	write(w, formatJSON, status, append(b, '\n'))
}

// write writes an answer. A write that fails is the end of the client, and there is nothing to do about it.
func write(w http.ResponseWriter, f format, status int, body []byte) {
	w.Header().Set("Content-Type", contentTypes[f])
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// ago returns for how long something has been so, in the largest units: "<1 min", "5 min", "2 h 10 min", "3 d 4 h".
func ago(now, since time.Time) string {
	d := now.Sub(since)
	switch {
	case d < time.Minute:
		return "<1 min"
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
	}
}
