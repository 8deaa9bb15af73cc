// Package gateway runs weir gateway: a reverse proxy whose routes go through the policies and pipelines of a file.
//
//   - gateway.go: a run of the program, from the file to the listeners.
//   - build.go: the table of routes of one version of the file.
//   - listen.go: the listener of clients, with its timeouts and TLS.
//   - shutdown.go: how a run ends.
//   - check.go: the dashboard's check of requests.
//   - proxy: the way of a request. upstream: the servers behind the gateway. accesslog: what they say.
//
// Package process has what the gateway shares with other servers: its logs, the stores, the admin pages.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
	"github.com/weir-go/weir/cmd/weir/internal/process"
)

// Options are the options of [Run].
type Options struct {
	Config string // the path of the file
	// Listen and Admin replace the addresses of the file, if they are not empty.
	Listen, Admin string
	// Stdout gets the access log, and Stderr the log of the program.
	Stdout, Stderr io.Writer
	// Stop ends the run: the first value begins a graceful shutdown, the second one ends it at once.
	Stop <-chan os.Signal
}

// A gateway is one run.
type gateway struct {
	*process.Process
	options Options
	inForce atomic.Pointer[gatewayconfig.Gateway]
}

// Run serves until it is told to stop. The error says why it could not begin to, or why it did not end in time; it is a
// [*reload.FileError] if the file is wrong.
func Run(ctx context.Context, o Options) (err error) {
	g := &gateway{options: o}
	g.Process, err = process.New(process.Options{
		Name: "gateway", Section: gatewayconfig.Field, Stdout: o.Stdout, Stderr: o.Stderr, Stop: o.Stop,
		Unobserved: proxy.Unrouted,
	})
	if err != nil {
		return err
	}
	defer g.Close()
	kinds := reload.NewKinds()
	gatewayconfig.Register(kinds, gatewayconfig.Runtime{Store: g.Stores.Get, Pipelines: g.pipelines})
	if err := g.Start(ctx, o.Config, reload.Options{Kinds: kinds, InForce: g.fileInForce}); err != nil {
		return err
	}
	if g.inForce.Load() == nil {
		return fmt.Errorf("%s: it has no field %s, which says what to listen on and where requests go", o.Config, gatewayconfig.Field)
	}
	for name, s := range g.inForce.Load().Stores { // also stores that no limiter names: /ready tells of all
		if _, err := g.Stores.Get(name, s); err != nil {
			return err
		}
	}
	p, err := g.Registry.Get(gatewayconfig.PipelineName)
	if err != nil {
		return err
	}
	return g.serve(ctx, p)
}

// fileInForce notes what the file says that is not in a pipeline.
func (g *gateway) fileInForce(f *reload.File) {
	if c, ok := reload.SectionOf[gatewayconfig.Gateway](f, gatewayconfig.Field); ok {
		full := c.WithDefaults()
		g.inForce.Store(&full)
	}
}

// serve opens the listeners and waits for the end.
func (g *gateway) serve(ctx context.Context, p *pipeline.Pipeline) error {
	c := *g.inForce.Load()
	base, cutOff := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cutOff(nil)
	handler := proxy.NewHandler(p, g.Telemetry)
	server, listener, err := g.listen(base, c, handler)
	if err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // server.Shutdown has closed it
	admin, err := g.ListenAdmin(process.AdminOptions{
		Address:       cmp.Or(g.options.Admin, c.Admin),
		Flag:          g.options.Admin,
		Dashboard:     c.Dashboard,
		Pprof:         c.Pprof,
		RequireStores: func() bool { return g.inForce.Load().Ready.RequireStores },
		Check:         func(r *http.Request) ([]dashboard.CheckResult, error) { return check(handler, r) },
		Client:        g.clientOf,
	})
	if err != nil {
		return err
	}
	defer admin.Close()
	failed := make(chan error, 2)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}()
	go func() {
		if err := admin.Serve(); err != nil {
			failed <- err
		}
	}()
	attrs := []any{"listen", listener.Addr().String(), "config", g.options.Config}
	if url := admin.URL(); url != "" {
		attrs = append(attrs, "admin", url)
	}
	watching, stop := context.WithCancel(base)
	defer stop()
	g.WatchCertificate(watching)
	g.Logger.Info("the gateway is ready", attrs...)
	select {
	case <-ctx.Done():
	case <-g.options.Stop:
	case err := <-failed:
		cutOff(err)
		_ = server.Close()
		return err
	}
	return g.shutDown(server, handler, cutOff)
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
