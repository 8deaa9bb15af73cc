// Package gateway runs weir gateway: a reverse proxy whose routes go through the policies and pipelines of a file.
//
//   - gateway.go: a run of the program, from the file to the listeners.
//   - build.go: the table of routes of one version of the file.
//   - listen.go: the listener of clients, with its timeouts and TLS.
//   - shutdown.go: how a run ends.
//   - admin.go: the admin listener. dashboard.go: the dashboard on it. check.go: its check
//     of requests. logins.go: how fast passwords can be tried.
//   - stores.go: the stores that limiters of the file name.
//   - proxy: the way of a request. upstream: the servers behind the gateway. accesslog, tlsfiles: what they say.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/telemetry"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/accesslog"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/tlsfiles"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
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

// drainTimeout says that a replaced version of the file is kept until its last request has ended: a stream can run on it
// for hours, and needs what the version has.
const drainTimeout = -1

// A gateway is one run.
type gateway struct {
	options   Options
	logger    *slog.Logger
	metrics   *metrics
	telemetry *telemetry.Telemetry
	events    dashboard.Events
	listener  pipeline.Listener // both of them
	registry  *registry.Registry
	stores    *stores
	watcher   *reload.Watcher
	pair      *tlsfiles.Pair // nil: no TLS
	inForce   atomic.Pointer[gatewayconfig.Gateway]
	draining  atomic.Bool        // a shutdown has begun
	keyHash   *dashboard.KeyHash // of limiters, in the access log and on the dashboard
	logins    *logins            // for actions of the dashboard

	mu      sync.Mutex
	writers map[io.Writer]*accesslog.Writer // of logs, which must hold up nothing
}

// Run serves until it is told to stop. The error says why it could not begin to, or why it did not end in time; it is a
// [*reload.FileError] if the file is wrong.
func Run(ctx context.Context, o Options) (err error) {
	o.Stdout, o.Stderr = &lockedWriter{to: o.Stdout}, &lockedWriter{to: o.Stderr}
	g := &gateway{options: o, keyHash: dashboard.NewKeyHash(), writers: make(map[io.Writer]*accesslog.Writer)}
	defer g.closeLogs()
	g.logins = newLogins()
	defer g.logins.close()
	g.logger = slog.New(slog.NewJSONHandler(g.writer(o.Stderr), nil)) // a log that is stuck must not hold up a shutdown
	if g.metrics, err = newMetrics(); err != nil {
		return err
	}
	defer g.metrics.close()
	events, err := newSampler(slog.NewJSONHandler(g.writer(o.Stderr), nil))
	if err != nil {
		return err
	}
	defer events.perEvent.Close() //nolint:errcheck // the process ends
	g.telemetry, err = telemetry.New(&telemetry.Options{MeterProvider: g.metrics.provider, Logger: slog.New(events)})
	if err != nil {
		return err
	}
	defer g.telemetry.Close() //nolint:errcheck // the process ends
	g.listener = pipeline.Listeners(g.telemetry, &g.events)
	g.stores = newStores(g.telemetry, &g.events, g.logger)
	g.registry = registry.New(&registry.Options{
		Listener: g.listener, ObserveLimiter: g.telemetry.ObserveLimiter, DrainTimeout: drainTimeout,
	})
	defer g.stores.close()
	defer g.closeRegistry()

	kinds := reload.NewKinds()
	gatewayconfig.Register(kinds, gatewayconfig.Runtime{Store: g.stores.get, Pipelines: g.pipelines})
	g.watcher, err = reload.Start(ctx, g.registry, o.Config, &reload.Options{
		Kinds: kinds, Hangup: true, Logger: g.logger, Reporter: reporters{g.telemetry, &g.events}, InForce: g.fileInForce,
	})
	if err != nil {
		return err
	}
	defer g.watcher.Stop()
	if g.inForce.Load() == nil {
		return fmt.Errorf("%s: it has no field %s, which says what to listen on and where requests go", o.Config, gatewayconfig.Field)
	}
	for name, s := range g.inForce.Load().Stores { // also stores that no limiter names: /ready tells of all
		if _, err := g.stores.get(name, s); err != nil {
			return err
		}
	}
	p, err := g.registry.Get(gatewayconfig.PipelineName)
	if err != nil {
		return err
	}
	return g.serve(ctx, p)
}

// reporters are told of each attempt to load the file.
type reporters []reload.Reporter

func (all reporters) ConfigReloaded(at time.Time, err error) {
	for _, r := range all {
		r.ConfigReloaded(at, err)
	}
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
	handler := proxy.NewHandler(p)
	server, listener, err := g.listen(base, c, handler)
	if err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // server.Shutdown has closed it
	d, err := g.newDashboard(c, handler)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // the process ends
	admin, adminListener, err := g.listenAdmin(c, d)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	serve := func(s *http.Server, l net.Listener) {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}
	go serve(server, listener)
	attrs := []any{"listen", listener.Addr().String(), "config", g.options.Config}
	if admin != nil {
		go serve(admin, adminListener)
		defer admin.Close() //nolint:errcheck // the process ends
		attrs = append(attrs, "admin", "http://"+adminListener.Addr().String())
	}
	if g.pair != nil {
		watching, stop := context.WithCancel(base)
		defer stop()
		go g.pair.Watch(watching, lookAtFiles, g.certificateChanged)
	}
	g.logger.Info("the gateway is ready", attrs...)
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

// closeRegistry closes the registry after the last request.
func (g *gateway) closeRegistry() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := g.registry.Close(ctx); err != nil {
		g.logger.Warn("the pipelines could not be closed in order", "error", err)
	}
}

// closeLogs writes what is left of the logs. That of the program is the last: it says what is wrong with the others.
func (g *gateway) closeLogs() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	for to, w := range g.writers {
		if to == g.options.Stderr {
			continue
		}
		if err := w.Close(ctx); err != nil {
			g.logger.Warn("the rest of the access log could not be written", "error", err)
		}
	}
	_ = g.writers[g.options.Stderr].Close(ctx) // there is nowhere to tell it
}
