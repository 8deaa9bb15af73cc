// Package gateway runs weir gateway: a reverse proxy whose routes go through the policies and pipelines of a file.
//
//   - gateway.go: the server of clients, from the file to its end.
//   - build.go: the table of routes of one version of the file. addresses.go: the circuits of the addresses.
//   - proxy: the way of a request. upstream: the servers behind the gateway. paced: clients that take their time.
//   - plan: the way of a request in words, without a gateway that runs.
//
// Package process has what the gateway shares with other servers: its logs, the stores, the admin pages, the graceful end.
package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/cmd/weir/internal/process"
)

const (
	// pingTimeout is how long a client over HTTP/2 can take to answer a ping. It gets one if nothing has come for the time that it has
	// for a header: in the middle of a header, a client cannot answer.
	pingTimeout = 5 * time.Second
	// stallTimeout is how long a connection of HTTP/2 can take nothing. Package paced bounds its streams.
	stallTimeout = time.Minute
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
		HTTP2:             &http.HTTP2Config{SendPingTimeout: c.ReadHeaderTimeout, PingTimeout: pingTimeout, WriteByteTimeout: stallTimeout},
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
