package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// refusal returns the status and the reason if no route should see the request, because it could mean one thing to the
// routes and another to the upstream; otherwise 0.
func refusal(r *http.Request) (status int, err error) {
	switch {
	case r.Method == http.MethodConnect:
		return http.StatusMethodNotAllowed, errConnect
	case ambiguous(r.URL):
		return http.StatusBadRequest, errPath
	case !slices.Contains(methods, r.Method) && slices.Contains(methods, strings.ToUpper(r.Method)):
		return http.StatusBadRequest, errMethod
	case malformed(r.Host):
		return http.StatusBadRequest, errHost
	}
	return 0, nil
}

var (
	errConnect = errors.New("CONNECT: the gateway is no proxy to other servers")
	errPath    = errors.New("the path has a segment . or .., or a NUL, or the target of the request is no path")
	errMethod  = errors.New("the method must be in capital letters")
	errHost    = errors.New("the host must be a name or an address, and perhaps the number of a port")
)

// methods are the standard ones, which an upstream could find in any case of their letters: a route for "POST /login" must have "post",
// too.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// malformed reports whether the host is one that the patterns of routes cannot have, and that an upstream could shorten
// to one that they have: with a port that is no number, or with two dots at its end.
func malformed(host string) bool {
	name, port := cutPort(host)
	return strings.HasSuffix(name, "..") || strings.Count(name, ":") > 0 && name[0] != '[' ||
		strings.Trim(strings.TrimPrefix(port, ":"), "0123456789") != ""
}

// ambiguous reports whether the path of u could mean another path to the upstream than to the routes: it has a segment
// "." or "..", also written as %2e, between backslashes, or with parameters as in "..;", or it has a NUL. Clients resolve
// such segments before they send a path. Without this check, /public/../admin would go the way of /public/ here and be
// /admin there.
//
// The target of a request can also be a URL without a path: the upstream would get that of x:http://x/admin as
// http://x/admin, which is /admin there and / here.
func ambiguous(u *url.URL) bool {
	if u.Opaque != "" {
		return true
	}
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

// withSlash returns the request with a slash at the end of its path.
func withSlash(r *http.Request) *http.Request {
	copied, u := *r, *r.URL
	setPath(&u, u.EscapedPath()+"/")
	copied.URL = &u
	return &copied
}

// canonical returns the request in the form that the mux compares: usually r itself. The mux would redirect a path with
// two slashes in a row, and it compares hosts byte by byte, so that "API.example.com" would pass by the routes of
// api.example.com. So r is copied if slashes must be merged, or the host must be in lower case or without a dot at its
// end. What goes to the upstream is what the client has sent.
func canonical(r *http.Request) *http.Request {
	host := strings.ToLower(r.Host) // returns r.Host itself if there is nothing to do
	if name, port := cutPort(host); strings.HasSuffix(name, ".") {
		host = strings.TrimSuffix(name, ".") + port
	}
	double := strings.Contains(r.URL.Path, "//") && strings.Contains(r.URL.EscapedPath(), "//") // and not "%2F/"
	if host == r.Host && !double && r.URL.Path != "" {
		return r
	}
	copied := *r
	copied.Host = host
	u := *r.URL
	copied.URL = &u
	if double {
		setPath(&u, mergeSlashes(u.EscapedPath()))
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
	setPath(u, "/"+rest)
}

// setPath sets the path of u as it is written, with its escapes.
func setPath(u *url.URL, escaped string) {
	decoded, err := url.PathUnescape(escaped)
	if err != nil { // cannot happen: it was decoded before
		decoded = escaped
	}
	u.Path, u.RawPath = decoded, escaped
	if u.EscapedPath() == (&url.URL{Path: decoded}).EscapedPath() {
		u.RawPath = "" // the usual form
	}
}

// escaped returns u, or a copy in which what must be escaped is: a client can send a quotation mark or ü as it is. net/url
// then forgets how the path was written, and %2F would become a slash.
func escaped(u *url.URL) *url.URL {
	if u.RawPath == "" || u.RawPath == u.EscapedPath() {
		return u
	}
	var b strings.Builder
	for i := range len(u.RawPath) {
		switch c := u.RawPath[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~!$&'()*+,;=:@[]/%", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	copied := *u
	copied.RawPath = b.String()
	return &copied
}
