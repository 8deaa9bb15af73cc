// Package rls runs weir rls: the rate limit service that Envoy asks, by a file.
//
//   - rls.go: a run of the program, from the file to the listeners.
//   - service.go: the way of a request. versions.go: which rules it gets. overrides.go: which limits an answer tells.
//   - listen.go: the gRPC server, with its bounds and TLS. http.go: the HTTP listener.
//   - shutdown.go: how a run ends.
//
// Package rlsconfig has what the file says, package weirrls the protocol, and package process what the service shares with
// other servers: its logs, the stores, the admin pages.
package rls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/transport/weirrls"

	"github.com/weir-go/weir/cmd/weir/internal/process"
	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
)

// Options are the options of [Run].
type Options struct {
	Config string // the path of the file, or the name of what Read reads
	// Read returns the content of the file, if it is made of others; nil: the file at Config is read.
	Read func() ([]byte, error)
	// Listen and Admin replace the addresses of the file, if they are not empty.
	Listen, Admin string
	// Stderr gets the log of the program.
	Stderr io.Writer
	// Stop ends the run: the first value begins a graceful shutdown, the second one ends it at once.
	Stop <-chan os.Signal
}

// A run is one run of the service.
type run struct {
	*process.Process
	options   Options
	inForce   atomic.Pointer[rlsconfig.RLS]
	services  services
	overrides overrides

	mu       sync.Mutex
	counters *weirrls.Counters // of the first file: they cannot change
}

// Run serves until it is told to stop. The error says why it could not begin to, or why it did not end in time; it is a
// [*reload.FileError] if the file is wrong.
func Run(ctx context.Context, o Options) (err error) {
	r := &run{options: o}
	r.Process, err = process.New(process.Options{
		Name: "rate limit service", Section: rlsconfig.Field, Stdout: io.Discard, Stderr: o.Stderr, Stop: o.Stop,
		OfRegistry: &r.overrides,
	})
	if err != nil {
		return err
	}
	defer r.Close()
	r.overrides.registry = r.Registry
	kinds := reload.NewKinds()
	rlsconfig.Register(kinds, rlsconfig.Runtime{Store: r.Stores.Get, Pipelines: r.pipelines})
	if err := r.Start(ctx, o.Config, reload.Options{Kinds: kinds, Read: o.Read, InForce: r.fileInForce}); err != nil {
		return err
	}
	for name, s := range r.inForce.Load().Stores { // also stores that no limiter names: /ready tells of all
		if _, err := r.Stores.Get(name, s); err != nil {
			return err
		}
	}
	p, err := r.Registry.Get(rlsconfig.PipelineName)
	if err != nil {
		return err
	}
	return r.serve(ctx, p)
}

// fileInForce notes what the file says that is not in a pipeline.
func (r *run) fileInForce(f *reload.File) {
	if c, ok := reload.SectionOf[rlsconfig.RLS](f, rlsconfig.Field); ok {
		full := c.WithDefaults()
		r.inForce.Store(&full)
	}
}

// pipelines returns the function that builds the pipeline of the service: it has a version of the rules.
func (r *run) pipelines(c rlsconfig.RLS) map[string]func(b *reload.SectionBuilder) error {
	return map[string]func(b *reload.SectionBuilder) error{
		rlsconfig.PipelineName: func(b *reload.SectionBuilder) error {
			v, err := r.newVersion(b, c)
			if err == nil {
				b.Add(v)
			}
			return err
		},
	}
}

// newVersion returns the rules of one version of the file.
func (r *run) newVersion(b *reload.SectionBuilder, c rlsconfig.RLS) (*version, error) {
	s, err := r.store(c)
	if err != nil {
		return nil, err
	}
	counters, err := r.countersOf(c, s)
	if err != nil {
		return nil, err
	}
	rules, err := c.NewRules(b, s, r.overrides.limits)
	if err != nil {
		return nil, err
	}
	return r.services.newVersion(rules, weirrls.ServiceOptions{
		Counters:               counters,
		CountersFailOpen:       c.Counters.Outage == store.FailOpen,
		OverridesCountRejected: c.Mode == rlsconfig.Envoy,
		Shadow:                 c.ShadowMode,
		Quota:                  c.QuotaMode,
		Headers:                c.Headers,
		NoRetryAfter:           c.NoRetryAfter,
		Problem:                c.Body == rlsconfig.ProblemBody,
		DynamicMetadata:        c.DynamicMetadata,
		Listener:               r.Listener,
	}, description{Domains: len(c.Domains), Rules: c.Rules()}), nil
}

// store returns the store of the counters; nil: they are in the process.
func (r *run) store(c rlsconfig.RLS) (*store.Store, error) {
	name := c.Counters.Store
	if name == "" {
		return nil, nil
	}
	return r.Stores.Get(name, c.Stores[name])
}

// countersOf returns the counters, the same for all versions of the file.
func (r *run) countersOf(c rlsconfig.RLS, s *store.Store) (*weirrls.Counters, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counters != nil {
		return r.counters, nil
	}
	o := &weirrls.CountersOptions{MaxKeys: c.Counters.MaxKeys}
	var err error
	if s == nil {
		r.counters, err = weirrls.NewCounters(o)
	} else {
		r.counters, err = weirrls.NewSharedCounters(s, o)
	}
	return r.counters, err
}

// serve opens the listeners and waits for the end. Before that, each store is asked once: Envoy, which waits for 20 ms,
// would not wait for a connection.
func (r *run) serve(ctx context.Context, p *pipeline.Pipeline) error {
	r.Stores.Probe(ctx)
	c := *r.inForce.Load()
	s := &servers{handler: &handler{pipeline: p, logger: r.Logger}}
	defer s.close()
	if err := r.open(s, c); err != nil {
		return err
	}
	admin, err := r.ListenAdmin(process.AdminOptions{
		Address:       cmp.Or(r.options.Admin, c.Admin),
		Flag:          r.options.Admin,
		Dashboard:     c.Dashboard,
		Pprof:         c.Pprof,
		RequireStores: func() bool { return r.inForce.Load().Ready.RequireStores },
	})
	if err != nil {
		return err
	}
	defer admin.Close()
	failed := make(chan error, 3)
	serve := func(f func() error) {
		if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
			failed <- err
		}
	}
	go serve(func() error { return s.grpc.Serve(s.grpcListener) })
	go serve(admin.Serve)
	attrs := []any{"listen", s.grpcListener.Addr().String(), "config", r.options.Config}
	if s.http != nil {
		go serve(func() error { return s.http.Serve(s.httpListener) })
		attrs = append(attrs, "http", s.httpListener.Addr().String())
	}
	if url := admin.URL(); url != "" {
		attrs = append(attrs, "admin", url)
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r.WatchCertificate(watching)
	if (openToAll(s.grpcListener) || openToAll(s.httpListener)) && (c.TLS == nil || c.TLS.ClientCA == "") {
		r.Logger.Warn("any host that reaches the listeners can ask for every key, and use its limits up: set rls.tls with client_ca, or listen on 127.0.0.1")
	}
	r.Logger.Info("the rate limit service is ready", attrs...)
	select {
	case <-ctx.Done():
	case <-r.options.Stop:
	case err := <-failed:
		return fmt.Errorf("the listener failed: %w", err)
	}
	return r.shutDown(s)
}

// openToAll reports whether other machines can connect to a listener, which can be nil.
func openToAll(l net.Listener) bool {
	if l == nil {
		return false
	}
	tcp, ok := l.Addr().(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}
