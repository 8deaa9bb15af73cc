package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// policy is the Content-Security-Policy of all answers: only the dashboard's own style sheet, script and icon.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// assets are the files that pages refer to.
var assets = []string{"dashboard.css", "dashboard.js", "icon.svg"}

// ServeHTTP serves the pages. The handler can be mounted under any prefix, with http.StripPrefix or without: it looks at
// the last element of the path only, and all its links are relative. The prefix must end in a slash; without it, a path
// that StripPrefix has left empty is redirected.
//
// The pages are overview, which the prefix itself also shows, pipelines, limiters, circuits, keys, events, stores, files,
// jobs, and check. A suffix .json, .txt or .html says in which format. Without one, the header Accept decides: HTML if it has
// text/html, as that of every browser; else JSON if it has application/json; else text, so that curl shows something that
// people can read. The parameter q keeps what contains a text, in any case of its letters.
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
	name, f := route(r)
	asset := slices.Contains(assets, name)
	if f == "" && !asset {
		h.Add("Vary", "Accept")
		f = accepted(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")))
	}
	allow := "GET, HEAD"
	if name == pageAction {
		allow += ", POST"
	}
	switch {
	case name == pageAction && r.Method == http.MethodPost:
		d.serveAction(w, r, f)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", allow)
		d.fail(w, f, refuse(http.StatusMethodNotAllowed, "This page does not accept %s, only %s.", shorten(r.Method, 20), allow))
	case asset:
		http.ServeFileFS(w, r, embedded, "assets/"+name)
	case name == pageStream:
		d.serveStream(w, r)
	case name == pageCheck:
		d.serveCheck(w, r, f)
	case name == pageAction:
		d.serveConfirmation(w, r, f)
	case name == "jobs" && r.URL.Query().Has("name"):
		d.serveJob(w, r, f)
	case name == pageOverview || sectionOf(name) != nil:
		d.servePage(w, r, name, f)
	default:
		d.fail(w, f, refuse(http.StatusNotFound, "There is no page %q.", printable(shorten(name, 100))))
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
func route(r *http.Request) (name string, f format) {
	if isPrefix(r) {
		return pageOverview, ""
	}
	p := strings.TrimRight(r.URL.Path, "/")
	name = p[strings.LastIndexByte(p, '/')+1:]
	if suffix := format(strings.TrimPrefix(path.Ext(name), ".")); contentTypes[suffix] != "" {
		return strings.TrimSuffix(name, path.Ext(name)), suffix
	}
	if strings.HasSuffix(r.URL.Path, "/") && !isPage(name) {
		return pageOverview, ""
	}
	return name, ""
}

func isPage(name string) bool {
	return name == pageOverview || name == pageCheck || name == pageAction || name == pageStream || sectionOf(name) != nil
}

// isPrefix reports whether the path is that of a pattern of http.ServeMux: the prefix itself, even if it is called as a page.
func isPrefix(r *http.Request) bool {
	i := strings.IndexByte(r.Pattern, '/')
	return r.URL.Path == "/" || i >= 0 && r.Pattern[i:] == r.URL.Path
}

// servePage serves the overview or one section.
func (d *Dashboard) servePage(w http.ResponseWriter, r *http.Request, name string, f format) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	snap, err := d.snapshot(ctx, tick/2)
	if err != nil {
		d.fail(w, f, refuse(http.StatusServiceUnavailable, "The figures were not ready in time. Try again."))
		return
	}
	v := newView(snap, name, filterOf(r), f)
	p := d.page(name)
	p.Filter, p.Time, p.Trouble = v.Filter, snap.Time, len(snap.Trouble)
	p.Stream = link(pageStream, url.Values{"page": {name}, "q": {string(v.Filter)}})
	d.answer(w, f, http.StatusOK, "page", p, v)
}

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
