// Package proxy is the way of a request through the gateway: the table of routes, the policies of a route, and the
// reverse proxy behind them.
//
// Read these first, in this order:
//
//   - handler.go: the way of a request from the listener to the table.
//   - table.go: the routes of one version of the file.
//   - route.go: what happens on one route.
//   - answer.go: what clients get if the upstream does not answer.
//   - path.go, forwarded.go: what is not passed on as it came.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/accesslog"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/upstream"
)

// TableOptions describe a [Table].
type TableOptions struct {
	// Address says which peers are trusted proxies, and in which header they write the address of their client.
	Address weirhttp.AddressOptions
	// KeyHeaders are the headers that keys of limiters are in.
	KeyHeaders []string
	// Via is the name of the gateway in the Via of the requests for upstreams. If empty, there is none.
	Via string
	// Log is the access log. If nil, none is written.
	Log *accesslog.Log
	// Body writes the gateway's own answers. If nil, they are plain text.
	Body weirhttp.Body
	// Limits has the policies that routes name. Its listener should include [Recorder].
	Limits *weirhttp.Limits
	// Policies says more of these policies, by name.
	Policies map[string]Policy
	Routes   []Route
}

// A Route says where the requests that match a pattern go.
type Route struct {
	Match    string // a pattern of [http.ServeMux]
	Upstream *upstream.Upstream
	KeepHost bool
	// Policies are the names of all policies of the route, in the order in which they are asked.
	Policies []string
	// Pipeline runs the attempts; nil: there is one attempt.
	Pipeline *pipeline.Pipeline
	// Limiters says more of the limiters in Pipeline, by the source of their strategy.
	Limiters    map[string]Limiter
	StripPrefix string
}

// A Table has the routes of one version of the file. It is the innermost strategy of a pipeline of the registry, so that
// each request runs on one version from its beginning to its end, and what a replaced version has is released after its
// last request.
type Table struct {
	mux      *http.ServeMux
	trust    *trust
	body     weirhttp.Body // can be nil
	policies map[string]Policy
	log      *accesslog.Log // can be nil
	routes   []*route

	redirects bool // the mux can redirect; see [Table.forMatching]
}

// NewTable returns a Table. The error says what is wrong with the patterns.
func NewTable(o *TableOptions) (*Table, error) {
	t := &Table{mux: http.NewServeMux(), body: o.Body, policies: o.Policies, log: o.Log}
	var err error
	if t.trust, err = newTrust(o.Address, o.Via); err != nil {
		return nil, err
	}
	for _, name := range o.KeyHeaders {
		t.trust.keys = append(t.trust.keys, http.CanonicalHeaderKey(name))
	}
	for _, r := range o.Routes {
		made, err := newRoute(t, r, o.Limits)
		if err == nil {
			err = register(t.mux, r.Match, made)
		}
		if err != nil {
			return nil, fmt.Errorf("route %q: %w", r.Match, err)
		}
		t.routes = append(t.routes, made)
	}
	for _, r := range t.routes {
		// Without this, the mux would redirect /orders to /orders/ if that is a pattern. If the other pattern conflicts, such
		// as /{a}/b with /c/{d}, it is registered for no path, and forMatching must look.
		if short, ok := withoutSlash(r.Match); ok && register(t.mux, short, r) != nil {
			t.redirects = true
		}
	}
	return t, nil
}

// slashAtEnd matches the end of a pattern for whose path without a slash at its end the mux redirects.
var slashAtEnd = regexp.MustCompile(`/(?:\{\$\}|\{[^{}/]+\.\.\.\})?$`)

// withoutSlash returns the pattern without the slash at its end, and what can follow it, such as {$}.
func withoutSlash(pattern string) (short string, ok bool) {
	at := slashAtEnd.FindStringIndex(pattern)
	if at == nil || !strings.Contains(pattern[:at[0]], "/") {
		return "", false
	}
	return pattern[:at[0]], true
}

// register registers a handler, and returns the panic of the mux as an error. Hosts are compared in lower case.
func register(mux *http.ServeMux, pattern string, h http.Handler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
	}
	if slash := strings.IndexByte(rest, '/'); slash > 0 {
		rest = strings.ToLower(rest[:slash]) + rest[slash:]
	}
	mux.Handle(strings.TrimSpace(method+" "+strings.TrimLeft(rest, " \t")), h)
	return nil
}

// Name is the name of the strategy in telemetry.
func (t *Table) Name() string { return "routes" }

// Execute tells the request that it runs on this table.
func (t *Table) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	x := requestOf(ctx)
	if x == nil {
		return nil, errors.New("gateway: the pipeline is for the requests of the gateway")
	}
	x.table = t
	return next.Run(ctx)
}

// A RouteDescription is what is told of a route.
type RouteDescription struct {
	Match    string   `json:"match"`
	Upstream string   `json:"upstream"`
	Pipeline string   `json:"pipeline,omitempty"`
	Policies []string `json:"policies,omitempty"`
}

// Describe returns the routes, as a [pipeline.Description] has the options of a strategy.
func (t *Table) Describe() (options, state any) {
	all := make([]RouteDescription, len(t.routes))
	for i, r := range t.routes {
		all[i] = RouteDescription{Match: r.Match, Upstream: r.Upstream.Name(), Policies: r.Policies}
		if r.Pipeline != nil {
			all[i].Pipeline = r.Pipeline.Name()
		}
	}
	return all, nil
}

// RateLimiters returns the policies that requests can meet: telemetry begins to count them when the table is in force.
func (t *Table) RateLimiters() (names []string) {
	for _, r := range t.routes {
		names = append(names, r.Policies...)
	}
	return names
}

// serve answers a request.
func (t *Table) serve(w http.ResponseWriter, r *http.Request, x *request) {
	x.trust = t.trust.trusts(r)
	if u := escaped(r.URL); u != r.URL {
		copied := *r
		copied.URL, r = u, &copied
	}
	x.sent, x.host = r.URL, r.Host
	if status, err := refusal(r); err != nil {
		t.answer(w, r, x, status, 0, err)
		return
	}
	t.mux.ServeHTTP(w, t.forMatching(r))
}
