// Package process has what all servers of weir have beside what they serve: the logs, the metrics, the registry with the
// pipelines and stores of the file, the admin pages, and a graceful end.
//
//   - process.go: Process, with what a server needs before the file is read, and the metrics.
//   - run.go: a run of a [Server], from the file in force to its end.
//   - listen.go: listeners and their certificate.
//   - admin.go: the admin pages. login.go: the password for actions of the dashboard.
package process

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/telemetry"

	"github.com/weir-go/weir/cmd/weir/internal/keyfile"
	"github.com/weir-go/weir/cmd/weir/internal/logs"
	"github.com/weir-go/weir/cmd/weir/internal/stores"
)

// closeTimeout is how long closing what the process holds can take after the last request.
const closeTimeout = 2 * time.Second

// drainTimeout says that a replaced version of the file is kept until its last request has ended: a stream can run on it
// for hours, and needs what the version has.
const drainTimeout = -1

// heapFloor is memory that is never written to, so that the system gives none to it. The garbage collector runs when the heap has
// doubled: in a small process that answers thousands of requests a second, several times a second without the floor, and requests wait.
const heapFloor = 32 << 20

// Options are what the command line says.
type Options struct {
	Config string // the path of the file, or the name of what Read reads
	// Read returns the content of the file, if it is made of others; nil: the file at Config is read.
	Read func() ([]byte, error)
	// Listen and Admin replace the addresses of the file, if they are not empty.
	Listen, Admin string
	// Stdout gets the log of requests, if there is one, and Stderr the log of the program.
	Stdout, Stderr io.Writer
	// Stop ends the run: the first value begins a graceful end, the second one ends it at once.
	Stop <-chan os.Signal
}

// A Kind is what a server is. Its functions can be nil.
type Kind struct {
	Name    string // in its log and its answers, such as "gateway"
	Section string // the field of the file with the server's part, and the name of its pipeline
	// Unobserved reports whether an execution with the context is left out of the metrics of pipelines.
	Unobserved func(ctx context.Context) bool
	// Check answers the dashboard's check of a request.
	Check func(r *http.Request) ([]dashboard.CheckResult, error)
	// Client returns the address that a request of the dashboard comes from, as the trusted proxies tell it; by default that of its
	// connection.
	Client func(r *http.Request) string
}

// A Process is one run of a server. Make one with [New], and then call Run.
type Process struct {
	Options
	Kind

	Requests  *logs.Writer // to Stdout
	Errors    *logs.Writer // to Stderr
	Logger    *slog.Logger // to Errors
	Telemetry *telemetry.Telemetry
	Events    dashboard.Events
	Listener  pipeline.Listener // both of them
	Registry  *registry.Registry
	Stores    *stores.Stores
	KeyHash   *dashboard.KeyHash // of limiters, in logs and on the dashboard

	watcher  *reload.Watcher
	floor    []byte // heapFloor
	metrics  *metrics
	pair     *keyfile.File[tls.Certificate] // nil: no TLS
	draining atomic.Bool                    // a graceful end has begun
	closers  []func()                       // what Close calls, the last one first
}

// New returns a Process. Close ends what it runs.
func New(o Options, k Kind) (*Process, error) {
	p := &Process{
		Options: o, Kind: k, KeyHash: dashboard.NewKeyHash(), floor: make([]byte, heapFloor),
		Requests: logs.NewWriter(o.Stdout), Errors: logs.NewWriter(o.Stderr), // a log that is stuck must not hold up the end
	}
	p.onClose(p.closeLogs)
	p.Logger = slog.New(slog.NewJSONHandler(p.Errors, nil))
	if err := p.begin(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// begin makes what needs the log.
func (p *Process) begin() (err error) {
	if p.metrics, err = newMetrics(); err != nil {
		return err
	}
	p.onClose(p.metrics.close)
	events := slog.New(logs.NewSampler(slog.NewJSONHandler(p.Errors, nil)))
	if p.Telemetry, err = telemetry.New(&telemetry.Options{MeterProvider: p.metrics.provider, Logger: events}); err != nil {
		return err
	}
	p.onClose(func() { _ = p.Telemetry.Close() })
	p.Listener = pipeline.Listeners(p.Telemetry, &p.Events)
	p.Stores = stores.New(p.Telemetry, &p.Events, p.Logger)
	p.onClose(p.Stores.Close)
	observed := p.Telemetry.Hooks()
	if enabled := observed.Enabled; p.Unobserved != nil {
		observed.Enabled = func(ctx context.Context) bool { return !p.Unobserved(ctx) && enabled(ctx) }
	}
	p.Registry = registry.New(&registry.Options{
		Listener: pipeline.Listeners(observed, &p.Events), ObserveLimiter: p.Telemetry.ObserveLimiter, DrainTimeout: drainTimeout,
	})
	p.onClose(p.closeRegistry)
	return nil
}

func (p *Process) onClose(f func()) { p.closers = append(p.closers, f) }

// Close ends everything, after the last request.
func (p *Process) Close() {
	for _, f := range slices.Backward(p.closers) {
		f()
	}
	p.closers = nil
}

func (p *Process) closeRegistry() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := p.Registry.Close(ctx); err != nil {
		p.Logger.Warn("the pipelines could not be closed in order", "error", err)
	}
}

// closeLogs writes what is left of the logs. That of the program is the last: it says what is wrong with the other.
func (p *Process) closeLogs() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := p.Requests.Close(ctx); err != nil {
		p.Logger.Warn("the rest of the access log could not be written", "error", err)
	}
	_ = p.Errors.Close(ctx) // there is nowhere to tell it
}

// metrics are the metrics of the process, as Prometheus reads them.
type metrics struct {
	provider metric.MeterProvider
	registry *prometheus.Registry
	close    func()
}

func newMetrics() (*metrics, error) {
	r := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(r), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	// An exemplar names a trace, and there are none. By default each value that is recorded looks for one in its context.
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter))
	r.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return &metrics{provider: provider, registry: r, close: func() { _ = provider.Shutdown(context.Background()) }}, nil
}

// handler serves the metrics.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}
