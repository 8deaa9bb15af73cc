package proxy

import (
	"net/http"
	"net/url"
	"strings"
)

// ambiguous reports whether the path of u could mean another path to the upstream than to the routes: it has a segment
// "." or "..", also written as %2e, between backslashes, or with parameters as in "..;", or it has a NUL. Clients resolve
// such segments before they send a path. Without this check, /public/../admin would go the way of /public/ here and be
// /admin there.
func ambiguous(u *url.URL) bool {
	p := u.Path
	if strings.IndexByte(p, 0) >= 0 {
		return true
	}
	if !strings.Contains(p, "/.") && !strings.Contains(p, `\.`) {
		return p != "" && p[0] != '/'
	}
	for segment := range strings.FieldsFuncSeq(p, func(c rune) bool { return c == '/' || c == '\\' }) {
		name, _, _ := strings.Cut(segment, ";")
		if name == "." || name == ".." {
			return true
		}
	}
	return false
}

// forMatching returns the request for the table's [http.ServeMux]: usually r itself. The mux would redirect a path with
// two slashes in a row, and it compares hosts byte by byte, so that "API.example.com" would pass by the routes of
// api.example.com. So r is copied if slashes must be merged, or the host must be in lower case or without a dot at its
// end. What goes to the upstream is what the client has sent.
func forMatching(r *http.Request) *http.Request {
	host := strings.ToLower(r.Host) // returns r.Host itself if there is nothing to do
	if name, port := cutPort(host); strings.HasSuffix(name, ".") {
		host = strings.TrimSuffix(name, ".") + port
	}
	double := strings.Contains(r.URL.Path, "//")
	if host == r.Host && !double && r.URL.Path != "" {
		return r
	}
	copied := *r
	copied.Host = host
	u := *r.URL
	copied.URL = &u
	if double {
		u.RawPath = mergeSlashes(u.EscapedPath())
		u.Path = mergeSlashes(u.Path)
	}
	if u.Path == "" { // the absolute form of a request can be without a path
		u.Path = "/"
	}
	return &copied
}

// cutPort cuts the port off a host, with its colon.
func cutPort(host string) (name, port string) {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.Contains(host[i:], "]") {
		return host[:i], host[i:]
	}
	return host, ""
}

func mergeSlashes(p string) string {
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	return p
}

// strip removes prefix from the path of u, and keeps the rest as it was written: a slash that was sent as %2F stays
// one. The path must match the prefix, segment by segment.
func strip(u *url.URL, prefix string) {
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		return
	}
	rest := mergeSlashes(u.EscapedPath())
	for range strings.Count(prefix, "/") + 1 {
		_, rest, _ = strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	}
	rest = "/" + rest
	decoded, err := url.PathUnescape(rest)
	if err != nil { // cannot happen: it was decoded before
		decoded = rest
	}
	u.Path, u.RawPath = decoded, rest
	if u.EscapedPath() == (&url.URL{Path: decoded}).EscapedPath() {
		u.RawPath = "" // the usual form
	}
}
