package weirhttp

import (
	"context"
	"net/http"
	"strings"
)

// Handlers get a copy of the request, because a context cannot be put into one that
// there is. net/http goes on with its own, and so does middleware further out: the
// trailer is written to that one, the temporary files of its form are removed, the
// pattern that a mux found is read from it. So what handlers may have found in the copy
// is carried back when they have returned.

// withContext returns a copy of r that carryBack belongs to.
func withContext(r *http.Request, ctx context.Context) *http.Request { //nolint:revive // as http.Request.WithContext has it
	if r.Trailer == nil && len(r.TransferEncoding) > 0 {
		// The trailer that was not announced is added to the map when the body has been
		// read; without one, net/http would make it for its own request only.
		r.Trailer = make(http.Header)
	}
	return r.WithContext(ctx)
}

// carryBack makes known to the owner of the request what ParseForm and its like and
// a mux have written to the copy of it.
func carryBack(copied, r *http.Request) {
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

// wildcard returns the name of the first wildcard of a pattern and what comes after
// it: of net/http, as in /orders/{id} and /files/{path...}, and of routers that have
// expressions, as in /orders/{id:[0-9]+}.
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

// removeFiles removes the temporary files of a form whose handler has not returned but
// panicked: net/http does so only for a request that ends in order.
func removeFiles(r *http.Request) {
	if r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll() // what is still there, the operating system cleans up
	}
}
