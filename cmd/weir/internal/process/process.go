// Package process has what all servers of weir have beside what they serve: the logs, the metrics, the registry with the
// pipelines and stores of the file, and the admin pages.
//
//   - process.go: Process, from its logs to the file in force.
//   - listen.go: listeners and their certificate. stop.go: the first half of a graceful end.
//   - admin.go: the admin pages. dashboard.go: the dashboard on them. logins.go: how fast passwords can be tried.
//   - metrics.go: the metrics as Prometheus reads them.
package process

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/telemetry"

	"github.com/weir-go/weir/cmd/weir/internal/logs"
	"github.com/weir-go/weir/cmd/weir/internal/stores"
	"github.com/weir-go/weir/cmd/weir/internal/tlsfiles"
)

// CloseTimeout is how long closing what the process holds can take after the last request.
const CloseTimeout = 2 * time.Second

// drainTimeout says that a replaced version of the file is kept until its last request has ended: a stream can run on it
// for hours, and needs what the version has.
const drainTimeout = -1

// heapFloor is for the garbage collector, which runs when the heap has doubled. A small process that answers thousands of
// requests a second would otherwise collect several times a second, and each time a few milliseconds' worth of requests
// would wait for it. The system gives no memory to the floor itself, as it is never written to.
const heapFloor = 32 << 20

// Options are the options of [New].
type Options struct {
	Name    string // what the process is, in its log and its answers, such as "gateway"
	Section string // the field of the file with the server's part
	// Stdout gets the log of requests, if there is one, and Stderr the log of the program.
	Stdout, Stderr io.Writer
	// Stop ends the run: the first value begins a graceful end, the second one ends it at once.
	Stop <-chan os.Signal
	// Unobserved reports whether an execution with the context is left out of the metrics of pipelines; nil: none is.
	Unobserved func(ctx context.Context) bool
	// OfRegistry also gets the events of the registry; nil: there is none.
	OfRegistry pipeline.Listener
}

// A Process is one run of a server. Make one with [New], and then call Start.
type Process struct {
	Options

	Logger    *slog.Logger
	Telemetry *telemetry.Telemetry
	Events    dashboard.Events
	Listener  pipeline.Listener // both of them
	Registry  *registry.Registry
	Stores    *stores.Stores
	Watcher   *reload.Watcher    // of Start
	KeyHash   *dashboard.KeyHash // of limiters, in logs and on the dashboard

	floor    []byte // heapFloor
	metrics  *metrics
	logins   *logins        // for actions of the dashboard
	pair     *tlsfiles.Pair // nil: no TLS
	draining atomic.Bool    // a graceful end has begun
	closers  []func()       // what Close calls, the last one first

	mu      sync.Mutex
	writers map[io.Writer]*logs.Writer // of logs, which must hold up nothing
}

// New returns a Process. Close ends what it runs.
func New(o Options) (*Process, error) {
	o.Stdout, o.Stderr = logs.Locked(o.Stdout), logs.Locked(o.Stderr)
	p := &Process{Options: o, KeyHash: dashboard.NewKeyHash(), writers: make(map[io.Writer]*logs.Writer), floor: make([]byte, heapFloor)}
	p.onClose(p.closeLogs)
	p.Logger = slog.New(slog.NewJSONHandler(p.Writer(o.Stderr), nil)) // a log that is stuck must not hold up the end
	p.logins = newLogins()
	p.onClose(p.logins.close)
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
	events, err := logs.NewSampler(slog.NewJSONHandler(p.Writer(p.Stderr), nil))
	if err != nil {
		return err
	}
	p.onClose(events.Close)
	p.Telemetry, err = telemetry.New(&telemetry.Options{MeterProvider: p.metrics.provider, Logger: slog.New(events)})
	if err != nil {
		return err
	}
	p.onClose(func() { _ = p.Telemetry.Close() })
	p.Listener = pipeline.Listeners(p.Telemetry, &p.Events)
	p.Stores = stores.New(p.Telemetry, &p.Events, p.Logger)
	p.onClose(p.Stores.Close)
	p.Registry = registry.New(&registry.Options{
		Listener: pipeline.Listeners(p.observed(), &p.Events, p.OfRegistry), ObserveLimiter: p.Telemetry.ObserveLimiter, DrainTimeout: drainTimeout,
	})
	p.onClose(p.closeRegistry)
	return nil
}

// observed returns the hooks of the telemetry for executions that are not Unobserved.
func (p *Process) observed() pipeline.Hooks {
	h := p.Telemetry.Hooks()
	if p.Unobserved != nil {
		enabled := h.Enabled
		h.Enabled = func(ctx context.Context) bool { return !p.Unobserved(ctx) && enabled(ctx) }
	}
	return h
}

// Start puts the file at path in force, and watches it. Of o, it sets Hangup, Logger and Reporter.
func (p *Process) Start(ctx context.Context, path string, o reload.Options) (err error) {
	o.Hangup, o.Logger, o.Reporter = true, p.Logger, reporters{p.Telemetry, &p.Events}
	if p.Watcher, err = reload.Start(ctx, p.Registry, path, &o); err == nil {
		p.onClose(p.Watcher.Stop)
	}
	return err
}

// reporters are told of each attempt to load the file.
type reporters []reload.Reporter

func (all reporters) ConfigReloaded(at time.Time, err error) {
	for _, r := range all {
		r.ConfigReloaded(at, err)
	}
}

// Writer returns the writer of an output.
func (p *Process) Writer(to io.Writer) *logs.Writer {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.writers[to]
	if w == nil {
		w = logs.NewWriter(to)
		p.writers[to] = w
	}
	return w
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
	ctx, cancel := context.WithTimeout(context.Background(), CloseTimeout)
	defer cancel()
	if err := p.Registry.Close(ctx); err != nil {
		p.Logger.Warn("the pipelines could not be closed in order", "error", err)
	}
}

// closeLogs writes what is left of the logs. That of the program is the last: it says what is wrong with the others.
func (p *Process) closeLogs() {
	ctx, cancel := context.WithTimeout(context.Background(), CloseTimeout)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	for to, w := range p.writers {
		if to == p.Stderr {
			continue
		}
		if err := w.Close(ctx); err != nil {
			p.Logger.Warn("the rest of the access log could not be written", "error", err)
		}
	}
	_ = p.writers[p.Stderr].Close(ctx) // there is nowhere to tell it
}
