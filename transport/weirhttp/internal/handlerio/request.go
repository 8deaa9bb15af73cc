package handlerio

import (
	"context"
	"net/http"
	"strings"
)

// WithContext returns a copy of r with ctx, because an existing request cannot get another context.
//
// net/http and middleware further out continue with r: net/http writes the trailer to r and removes the temporary files of its
// form, and middleware reads the pattern that a mux has found. So CarryBack copies the changes of the handler to r.
func WithContext(r *http.Request, ctx context.Context) *http.Request { //nolint:revive // the order of http.Request.WithContext
	if r.Trailer == nil && len(r.TransferEncoding) > 0 {
		// A trailer that was not announced is added to this map when the body has been
		// read. If there were no map, net/http would make one for r only.
		r.Trailer = make(http.Header)
	}
	return r.WithContext(ctx)
}

// CarryBack copies to r what ParseForm, ParseMultipartForm and a mux have written to the copy.
func CarryBack(copied, r *http.Request) {
	if r.Form == nil && copied.Form != nil {
		r.Form = copied.Form
	}
	if r.PostForm == nil && copied.PostForm != nil {
		r.PostForm = copied.PostForm
	}
	if copied.MultipartForm != r.MultipartForm {
		r.MultipartForm = copied.MultipartForm
	}
	if copied.Pattern == r.Pattern {
		return
	}
	r.Pattern = copied.Pattern
	for name, rest := wildcard(copied.Pattern); name != ""; name, rest = wildcard(rest) {
		if value := copied.PathValue(name); value != r.PathValue(name) {
			r.SetPathValue(name, value)
		}
	}
}

// wildcard returns the name of the first wildcard of a pattern and the rest of the pattern. It knows the wildcards of
// net/http, as in /orders/{id} and /files/{path...}, and those with an expression, as in /orders/{id:[0-9]+}.
func wildcard(pattern string) (name, rest string) {
	for {
		var ok bool
		if _, pattern, ok = strings.Cut(pattern, "{"); !ok {
			return "", ""
		}
		end := strings.IndexAny(pattern, ":}")
		if end < 0 {
			return "", ""
		}
		name, rest = strings.TrimSuffix(pattern[:end], "..."), pattern[end:]
		if name != "" && name != "$" {
			return name, rest
		}
		pattern = rest
	}
}

// RemoveFiles removes the temporary files of the form of a request whose handler has panicked. net/http does that only
// if the handler returns.
func RemoveFiles(r *http.Request) {
	if r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll() // the operating system cleans up the rest
	}
}

// HasBody reports whether the request has a body.
func HasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }
