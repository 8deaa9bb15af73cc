package proxy

import (
	"net/http"
	"net/url"
	"slices"
)

// A Match says where a table sends a request, without sending it.
type Match struct {
	// Route is the position of the route in [TableOptions.Routes], or -1 if the table answers by itself.
	Route int
	// Request is the request as the policies of the route see it, with its pattern and path values.
	Request *http.Request
	// URL has the path and the query that go to the upstream, without the path of its address.
	URL *url.URL
	// Status and Header are those of the answer if there is no route.
	Status int
	Header http.Header
}

// Match returns where a request to the gateway goes.
func (t *Table) Match(r *http.Request) Match {
	if status, err := refusal(r); err != nil {
		return Match{Route: -1, Status: status}
	}
	sent := *r
	sent.URL = escaped(r.URL)
	m := t.forMatching(&sent)
	h, pattern := t.mux.Handler(m)
	found, ok := h.(*route)
	if !ok {
		w := &answerHead{header: make(http.Header)}
		h.ServeHTTP(w, m)
		return Match{Route: -1, Status: w.status, Header: w.header}
	}
	match := Match{Route: slices.Index(t.routes, found), Request: m}
	// Only serving sets the path values.
	one := http.NewServeMux()
	one.HandleFunc(pattern, func(_ http.ResponseWriter, matched *http.Request) { match.Request = matched })
	one.ServeHTTP(&answerHead{header: make(http.Header)}, m)
	u := *sent.URL
	strip(&u, found.StripPrefix)
	match.URL = &u
	return match
}

// Repeatable reports whether a request can be sent again although the upstream may have processed it.
func Repeatable(r *http.Request) bool { return repeatable(r) }

// An answerHead is the beginning of an answer that is not sent.
type answerHead struct {
	header http.Header
	status int
}

func (a *answerHead) Header() http.Header { return a.header }

func (a *answerHead) WriteHeader(status int) { a.status = status }

func (a *answerHead) Write(p []byte) (int, error) { return len(p), nil }
