// Package proxy is the way of a request through the gateway: the table of routes, the policies of a route, and the
// reverse proxy behind them.
//
// Read these first, in this order:
//
//   - handler.go: the way of a request from the listener to the table. response.go: the answer on its way back.
//   - table.go: the routes of one version of the file, the [Decision] which of them a request has, and what is known of a request.
//   - route.go: what happens on one route, and what clients get if the upstream does not answer.
//   - path.go, forwarded.go: what is not passed on as it came.
//   - check.go: what would happen to a request. log.go: what has happened.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirhttp"

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
	Log *Log
	// Body writes the gateway's own answers. If nil, they are plain text.
	Body weirhttp.Body
	// Limits has the policies that routes name. Its listener should include [Recorder].
	Limits *weirhttp.Limits
	// Policies says more of these policies, by name.
	Policies map[string]Policy
	Routes   []Route
}

// A Log is an access log: a line of JSON for each request.
type Log struct {
	// Handler writes the lines. It must not fail.
	Handler slog.Handler
	// Query writes the query of the URL, too, which can have secrets.
	Query bool
	// Key returns how the key of a limiter is written: a hash of it, unless keys are not secret.
	Key func(key string) string
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

// A Policy is what the access log and Check need to know of a policy.
type Policy struct {
	Limiter  string // its name
	Shadow   bool
	FailOpen bool
	// Key finds the key of a request. It is nil if the limiter is not partitioned.
	Key weirhttp.Key
	// Peek asks the limiter without taking anything. The context has the request, for key functions. The error is
	// [errors.ErrUnsupported] if the limiter cannot be asked.
	Peek func(ctx context.Context) (limiter.Lease, error)
}

// A Limiter is what Check needs to know of a limiter in the pipeline of a route.
type Limiter struct {
	Name string
	Key  weirhttp.Key // nil if the limiter is not partitioned
}

// A Table has the routes of one version of the file. It is the innermost strategy of a pipeline of the registry, so that
// each request runs on one version from its beginning to its end, and what a replaced version has is released after its
// last request.
type Table struct {
	mux      *http.ServeMux
	trust    *trust
	body     weirhttp.Body // can be nil
	policies map[string]Policy
	log      *Log // can be nil
	routes   []*route
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
	for i, r := range o.Routes {
		made, err := newRoute(t, i, r, o.Limits)
		if err == nil {
			err = register(t.mux, r.Match, made)
		}
		if err != nil {
			return nil, fmt.Errorf("route %q: %w", r.Match, err)
		}
		t.routes = append(t.routes, made)
	}
	return t, nil
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

// A Decision is where a table sends a request: to a route, or back to the client with an answer of its own. It is what serves a
// request, what the dashboard's check asks, and what weir explain tells.
//
// It is also the ResponseWriter of the mux: a route that the mux calls writes itself into it, and if there is none, the mux answers
// with a status.
type Decision struct {
	route *route // nil: the table answers by itself
	// Request is the request as the policies of the route see it, with its pattern and path values.
	Request *http.Request
	// Status and Reason are those of the answer if there is no route.
	Status int
	Reason error
	header http.Header

	sent *url.URL // what the client has asked for, which can differ from what the routes match; see canonical
	sender
}

// Decide returns where a request to the gateway goes.
func (t *Table) Decide(r *http.Request) *Decision {
	d := new(Decision)
	t.decide(d, r)
	return d
}

func (t *Table) decide(d *Decision, r *http.Request) {
	d.trusted = t.trust.trusts(r)
	if u := escaped(r.URL); u != r.URL {
		copied := *r
		copied.URL, r = u, &copied
	}
	d.sent, d.host = r.URL, r.Host
	if d.Status, d.Reason = refusal(r); d.Reason != nil {
		return
	}
	m := canonical(r)
	t.mux.ServeHTTP(d, m)
	if d.header.Get("Location") != "" { // the mux redirects /orders to /orders/ if only that is a pattern: it has the route of that
		d.header, d.Status = nil, 0
		t.mux.ServeHTTP(d, withSlash(m))
	}
	if allowed := d.header.Get("Allow"); d.route == nil && allowed != "" {
		d.Reason = errors.New("the routes of the path are for " + allowed)
	} else if d.route == nil {
		d.Reason = errNoRoute
	}
}

var errNoRoute = errors.New("no route matches")

// Route returns the position of the route in [TableOptions.Routes], or -1 if the table answers by itself.
func (d *Decision) Route() int {
	if d.route == nil {
		return -1
	}
	return d.route.position
}

// URL returns the path and the query that go to the upstream, without the path of its address.
func (d *Decision) URL() *url.URL {
	u := *d.sent
	if u.Path == "" {
		u.Path = "/"
	}
	strip(&u, d.route.StripPrefix)
	return &u
}

// Header implements [http.ResponseWriter].
func (d *Decision) Header() http.Header {
	if d.header == nil {
		d.header = make(http.Header)
	}
	return d.header
}

// WriteHeader implements [http.ResponseWriter].
func (d *Decision) WriteHeader(status int) { d.Status = status }

// Write implements [http.ResponseWriter].
func (d *Decision) Write(p []byte) (int, error) { return len(p), nil }

// ServeHTTP is called by the mux.
func (t *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := w.(*Decision)
	d.route, d.Request = t, r
}

// serve answers a request.
func (t *Table) serve(w http.ResponseWriter, r *http.Request, x *request) {
	t.decide(&x.Decision, r)
	if x.route != nil {
		x.route.limited.ServeHTTP(w, x.Request)
		return
	}
	if allowed := x.header.Get("Allow"); allowed != "" {
		w.Header().Set("Allow", allowed)
	}
	t.answer(w, r, x, x.Status, 0, x.Reason)
}

// answer answers in place of the upstream. err is for the log: clients are told the status, but not what is behind the gateway.
func (t *Table) answer(w http.ResponseWriter, r *http.Request, x *request, status int, after time.Duration, err error) {
	x.fault, x.meant = err, status
	weirhttp.Reject(w, r, t.body, weirhttp.Rejection{Status: status, RetryAfter: after, Err: err})
}

// A request is what the gateway knows of one request. It is also the context of that request, so that routes, policies
// and attempts find it without another allocation.
type request struct {
	context.Context
	exchange upstream.Exchange

	began time.Time // when the header of the request was read
	table *Table    // the version that the request runs on; nil before the pipeline has chosen it
	Decision

	decided  decided
	meant    int         // the status that an answer of the gateway stands for: one of gRPC is 200; 0: none
	fault    error       // why the gateway answered, and not the upstream
	answered http.Header // the fields of the policies, while the upstream answers
	answer   response
}

type requestKey struct{}

// Value returns the request itself for requestKey, and its exchange for [upstream.Key].
func (x *request) Value(key any) any {
	switch key.(type) {
	case requestKey:
		return x
	case upstream.Key:
		return &x.exchange
	}
	return x.Context.Value(key)
}

// status returns the status for the log and the metrics: that of the answer, or what it stands for.
func (x *request) status() int {
	switch {
	case x.meant != 0 && x.answer.status != http.StatusSwitchingProtocols:
		return x.meant
	default:
		return x.answer.status
	}
}

// String returns only what never changes: fmt would read all fields, and race with attempts.
func (x *request) String() string { return "gateway.request" }

// requestOf returns the request that the context belongs to, or nil.
func requestOf(ctx context.Context) *request {
	x, _ := ctx.Value(requestKey{}).(*request)
	return x
}

// Unrouted reports whether ctx is that of a request that has no table yet: the execution that chooses it is the whole request, which
// is measured as one of HTTP.
func Unrouted(ctx context.Context) bool {
	x := requestOf(ctx)
	return x != nil && x.table == nil
}

// A decided is what the policies of a route said about a request, for the access log.
type decided struct {
	policy   string        // the one that rejected the request, or else the last one
	decision string        // such as "granted"
	waited   time.Duration // in the queues of all policies
}
