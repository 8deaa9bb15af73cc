// Package gateway runs weir gateway: a reverse proxy whose routes go through the policies and pipelines of a file.
//
// Package proxy is the way of a request, upstream the servers behind the gateway, paced clients that take their time, and plan
// the way of a request in words, without a gateway that runs.
//
// Package process has what the gateway shares with other servers: its logs, the stores, the admin pages, the graceful end.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/paced"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/upstream"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/cmd/weir/internal/process"
)

const (
	// pingTimeout is how long a client over HTTP/2 can take to answer a ping. It gets one if nothing has come for the time that it has
	// for a header: in the middle of a header, a client cannot answer.
	pingTimeout = 5 * time.Second
	// lookAtRunning is the time between two looks whether connections that were taken over, such as WebSockets, have
	// ended: the server does not know of them.
	lookAtRunning = 10 * time.Millisecond
)

// A gateway is one run.
type gateway struct {
	*process.Process
	inForce  atomic.Pointer[gatewayconfig.Gateway]
	handler  *proxy.Handler
	server   *http.Server
	listener net.Listener
	cutOff   context.CancelCauseFunc // ends the contexts of all requests
}

// Run serves until it is told to stop, see [process.Process.Run].
func Run(ctx context.Context, o process.Options) (err error) {
	g := &gateway{}
	g.Process, err = process.New(o, process.Kind{
		Name: "gateway", Section: gatewayconfig.PipelineName, Unobserved: proxy.Unrouted, Client: g.clientOf,
		Check: func(r *http.Request) ([]dashboard.CheckResult, error) { return g.handler.Check(r) },
	})
	if err != nil {
		return err
	}
	defer g.Close()
	kinds := reload.NewKinds()
	gatewayconfig.Register(kinds, gatewayconfig.Runtime{Store: g.Stores.Get, Pipelines: g.pipelines})
	return g.Process.Run(ctx, kinds, server{g})
}

// A server is the gateway as its process runs it.
type server struct{ *gateway }

// InForce implements [process.Server].
func (g server) InForce(f *reload.File) fileconfig.Common {
	c, _ := reload.SectionOf[gatewayconfig.Gateway](f, gatewayconfig.Field)
	c = c.WithDefaults()
	g.inForce.Store(&c)
	return c.Common
}

// Open implements [process.Server].
func (g server) Open(p *pipeline.Pipeline) (serve []func() error, attrs []any, err error) {
	c := *g.inForce.Load()
	g.handler = proxy.NewHandler(p, g.Telemetry)
	g.server = newServer(c, g.handler)
	g.server.ErrorLog = g.ServerLog()
	base, cutOff := context.WithCancelCause(context.Background())
	g.cutOff, g.server.BaseContext = cutOff, func(net.Listener) context.Context { return base }
	if g.server.TLSConfig, err = g.TLS(c.TLS); err != nil {
		return nil, nil, err
	}
	if g.listener, err = g.Listen("listen", g.Options.Listen, c.Listen); err != nil {
		return nil, nil, err
	}
	l := g.listener
	if g.server.TLSConfig != nil {
		l = tls.NewListener(l, g.server.TLSConfig)
	}
	return []func() error{func() error { return g.server.Serve(l) }}, []any{"listen", l.Addr().String()}, nil
}

// newServer returns the server of clients.
func newServer(c gatewayconfig.Gateway, h http.Handler) *http.Server {
	server := &http.Server{
		Handler: h,
		// No ReadTimeout and no WriteTimeout: they would cut streams, uploads and downloads.
		ReadHeaderTimeout: c.ReadHeaderTimeout,
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    c.MaxHeaderBytes,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: c.ReadHeaderTimeout, PingTimeout: pingTimeout, WriteByteTimeout: paced.Stall},
		// The handler answers "OPTIONS *", too, so that it is measured and logged.
		DisableGeneralOptionsHandler: true,
	}
	if c.H2C {
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	return server
}

// Running implements [process.Server].
func (g server) Running() int64 { return g.handler.Running() }

// Drain implements [process.Server].
func (g server) Drain(ctx context.Context) error {
	if err := g.server.Shutdown(ctx); err != nil {
		return err
	}
	ticker := time.NewTicker(lookAtRunning)
	defer ticker.Stop()
	for g.Running() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}

// CutOff implements [process.Server].
func (g server) CutOff() { g.cutOff(proxy.ErrShutdown) }

// Close implements [process.Server].
func (g server) Close() {
	g.cutOff(nil)
	_ = g.server.Close()
	if g.listener != nil {
		_ = g.listener.Close() // a server that did not begin has not closed it
	}
}

// clientOf returns the address that a request comes from, as the trusted proxies tell it.
func (g *gateway) clientOf(r *http.Request) string {
	o := g.inForce.Load().AddressOptions()
	address, err := weirhttp.ClientAddress(&o)
	if err != nil { // Parse refuses it
		return r.RemoteAddr
	}
	return address(r)
}

// build adds the table of routes of one version of the file to its pipeline.
func (g *gateway) build(b *reload.SectionBuilder, c gatewayconfig.Gateway) error {
	o := proxy.TableOptions{
		Address:  c.AddressOptions(),
		Via:      c.Via,
		Body:     c.Body.Write(),
		Policies: make(map[string]proxy.Policy),
		Log:      g.accessLog(c.AccessLog),
	}
	for _, k := range c.Keys {
		if header := k.HeaderName(); header != "" {
			o.KeyHeaders = append(o.KeyHeaders, header)
		}
	}
	listener := g.Listener
	if o.Log != nil {
		listener = pipeline.Listeners(proxy.Recorder{}, g.Listener)
	}
	var err error
	if o.Limits, err = c.NewLimits(b, listener, proxy.Recorder{}.OnRejected); err != nil {
		return err
	}
	for name, p := range c.Policies {
		if o.Policies[name], err = buildPolicy(b, c, p); err != nil {
			return err
		}
	}
	upstreams := make(map[string]*upstream.Upstream)
	for name, u := range c.Upstreams {
		if upstreams[name], err = buildUpstream(b, name, u); err != nil {
			return err
		}
	}
	for _, r := range c.Routes {
		route := proxy.Route{
			Match: r.Match, Upstream: upstreams[r.Upstream], KeepHost: c.Upstreams[r.Upstream].KeepHost,
			Policies: c.PoliciesOf(r), StripPrefix: r.StripPrefix,
		}
		if r.Pipeline != "" {
			if route.Pipeline, err = b.Pipeline(r.Pipeline); err != nil {
				return err
			}
			if route.Limiters, err = limitersOf(b.File, c, r.Pipeline); err != nil {
				return err
			}
		}
		o.Routes = append(o.Routes, route)
	}
	table, err := proxy.NewTable(&o)
	if err != nil {
		return err
	}
	b.Add(table)
	return nil
}

// limitersOf returns what the check needs to know of the limiters in a pipeline, by the source of their strategies.
func limitersOf(f *reload.File, c gatewayconfig.Gateway, pipeline string) (map[string]proxy.Limiter, error) {
	all := make(map[string]proxy.Limiter)
	for _, s := range gatewayconfig.Steps(f, pipeline) {
		if s.Limiter.Name == "" {
			continue
		}
		l := proxy.Limiter{Name: s.Limiter.Name}
		if s.Limiter.Partitioned {
			var err error
			if l.Key, err = c.NewKey(s.Limiter.Key); err != nil {
				return nil, err
			}
		}
		all[s.In+"/"+s.Name] = l
	}
	return all, nil
}

// buildPolicy returns what the access log and the check need to know of a policy.
func buildPolicy(b *reload.SectionBuilder, c gatewayconfig.Gateway, p gatewayconfig.Policy) (proxy.Policy, error) {
	made := proxy.Policy{Limiter: p.Limiter, Shadow: p.Shadow, FailOpen: p.FailOpen}
	l, err := b.Limiter(p.Limiter)
	if err != nil {
		return made, err
	}
	made.Peek = func(ctx context.Context) (limiter.Lease, error) {
		if peeker, ok := l.(limiter.Peeker); ok {
			return peeker.Peek(ctx, p.Cost)
		}
		return limiter.Lease{}, errNoPeek
	}
	if info, _ := b.File.Limiter(p.Limiter); info.Partitioned {
		made.Key, err = c.NewKey(info.Key)
	}
	return made, err
}

var errNoPeek = fmt.Errorf("the limiter cannot be asked without taking permits: %w", errors.ErrUnsupported)

// buildUpstream returns an upstream. A reload that does not change its options keeps its connections.
func buildUpstream(b *reload.SectionBuilder, name string, u gatewayconfig.Upstream) (*upstream.Upstream, error) {
	o := upstream.TransportOptions{
		DialTimeout:           u.DialTimeout,
		ResponseHeaderTimeout: u.ResponseHeaderTimeout,
		MaxConnections:        u.MaxConnections,
		H2C:                   u.H2C,
	}
	if u.TLS != nil {
		o.CA, o.ServerName, o.Certificate, o.Key = u.TLS.CA, u.TLS.ServerName, u.TLS.Certificate, u.TLS.Key
	}
	base := registry.Keep(b.Builder, gatewayconfig.PipelineName+"/"+name, o, registry.Kept[*upstream.Transport, upstream.TransportOptions]{
		Kind: "upstream",
		Make: upstream.NewTransport,
	})
	addresses := make([]*upstream.Address, len(u.Addresses))
	_, guarded := u.Breaker()
	for i, a := range u.Addresses {
		var p *pipeline.Pipeline
		if guarded {
			var err error
			if p, err = b.Pipeline(addressPipeline(name, a)); err != nil {
				return nil, err
			}
		}
		addresses[i] = upstream.NewAddress(&a.URL, p)
	}
	return upstream.New(name, base, addresses...), nil
}

// accessLog returns the log that the file asks for, or nil.
func (g *gateway) accessLog(c gatewayconfig.AccessLog) *proxy.Log {
	if c.Off {
		return nil
	}
	to := g.Requests
	if c.Output == gatewayconfig.Stderr {
		to = g.Errors
	}
	key := g.KeyHash.Hash
	if c.Keys {
		key = func(key string) string { return key }
	}
	return &proxy.Log{Handler: slog.NewJSONHandler(to, nil), Query: c.Query, Key: key}
}

// addressPipeline returns the name of the pipeline with the circuit breaker of an address of an upstream. A slash in the name
// of the upstream is escaped, so that http://c of the upstream a/b is not http://b/c of the upstream a.
func addressPipeline(upstream string, a gatewayconfig.Address) string {
	_, rest, _ := strings.Cut(a.String(), "://")
	return gatewayconfig.PipelineName + "/" + url.PathEscape(upstream) + "/" + rest
}

// pipelines returns the functions that build the pipelines of the gateway: the one with the routes, and one with the
// circuit breaker of each address that has one, so that metrics and the dashboard show the addresses like all other pipelines.
func (g *gateway) pipelines(c gatewayconfig.Gateway) map[string]func(b *reload.SectionBuilder) error {
	builds := map[string]func(b *reload.SectionBuilder) error{
		gatewayconfig.PipelineName: func(b *reload.SectionBuilder) error { return g.build(b, c) },
	}
	for name, u := range c.Upstreams {
		o, ok := u.Breaker()
		if !ok {
			continue
		}
		for _, a := range u.Addresses {
			builds[addressPipeline(name, a)] = func(b *reload.SectionBuilder) error {
				b.Add(breaker(b, &o))
				return nil
			}
		}
	}
	return builds
}

// breaker returns the circuit breaker of the address whose pipeline is built. A reload that does not change its options
// keeps its state: an address that is down stays out when something else of the file changes.
func breaker(b *reload.SectionBuilder, o *circuitbreaker.Options) *circuitbreaker.Strategy {
	return registry.Keep(b.Builder, b.Name, fmt.Sprintf("%+v", *o), registry.Kept[*circuitbreaker.Strategy, string]{
		Kind: "circuit breaker",
		Make: func(string) (*circuitbreaker.Strategy, error) { return circuitbreaker.New(o), nil },
	})
}
