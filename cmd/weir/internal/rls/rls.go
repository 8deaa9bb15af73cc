// Package rls runs weir rls: the rate limit service that Envoy asks, by a file.
//
//   - rls.go: the server, from the file to its end.
//   - service.go: the way of a request, by gRPC and by HTTP, and which version of the rules it gets.
//
// Package rlsconfig has what the file says, package weirrls the protocol, and package process what the service shares with
// other servers: its logs, the stores, the admin pages, the graceful end.
package rls

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/transport/weirrls"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/keyfile"
	"github.com/weir-go/weir/cmd/weir/internal/process"
	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
)

// A run is one run of the service.
type run struct {
	*process.Process
	inForce atomic.Pointer[rlsconfig.RLS]

	mu       sync.Mutex
	counters *weirrls.Counters // of the first file: they cannot change

	handler      *handler
	grpc         *grpc.Server
	grpcListener net.Listener
	health       *health.Server
	endStreams   context.CancelFunc // of the health service and reflection, which can last for as long as a connection
	http         *http.Server       // nil: there is none
	httpListener net.Listener
}

// Run serves until it is told to stop, see [process.Process.Run].
func Run(ctx context.Context, o process.Options) (err error) {
	r := &run{}
	r.Process, err = process.New(o, process.Kind{
		Name: "rate limit service", Section: rlsconfig.PipelineName,
	})
	if err != nil {
		return err
	}
	defer r.Close()
	kinds := reload.NewKinds()
	rlsconfig.Register(kinds, rlsconfig.Runtime{Store: r.Stores.Get, Pipelines: r.pipelines})
	return r.Process.Run(ctx, kinds, server{r})
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
	var s *store.Store // nil: the counters are in the process
	var err error
	if name := c.Counters.Store; name != "" {
		if s, err = r.Stores.Get(name, c.Stores[name]); err != nil {
			return nil, err
		}
	}
	counters, err := r.countersOf(c, s)
	if err != nil {
		return nil, err
	}
	rules, err := c.NewRules(b, s)
	if err != nil {
		return nil, err
	}
	service, err := weirrls.NewService(rules, &weirrls.ServiceOptions{
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
	})
	return &version{service, description{Domains: len(c.Domains), Rules: c.Rules()}}, err
}

// countersOf returns the counters, the same for all versions of the file.
func (r *run) countersOf(c rlsconfig.RLS, s *store.Store) (_ *weirrls.Counters, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &weirrls.CountersOptions{MaxKeys: c.Counters.MaxKeys}
	switch {
	case r.counters != nil:
	case s == nil:
		r.counters, err = weirrls.NewCounters(o)
	default:
		r.counters, err = weirrls.NewSharedCounters(s, o)
	}
	return r.counters, err
}

// A server is the service as its process runs it.
type server struct{ *run }

// InForce implements [process.Server].
func (r server) InForce(f *reload.File) fileconfig.Common {
	c, _ := reload.SectionOf[rlsconfig.RLS](f, rlsconfig.Field)
	c = c.WithDefaults()
	r.inForce.Store(&c)
	return c.Common
}

// Open implements [process.Server].
func (r server) Open(p *pipeline.Pipeline) (serve []func() error, attrs []any, err error) {
	c := *r.inForce.Load()
	r.handler = &handler{pipeline: p, logger: r.Logger}
	if err := r.open(c); err != nil {
		return nil, nil, err
	}
	if (openToAll(r.grpcListener) || openToAll(r.httpListener)) && (c.TLS == nil || c.TLS.ClientCA == "") {
		r.Logger.Warn("any host that reaches the listeners can ask for every key, and use its limits up: set rls.tls with client_ca, or listen on 127.0.0.1")
	}
	serve = append(serve, func() error { return r.grpc.Serve(r.grpcListener) })
	attrs = append(attrs, "listen", r.grpcListener.Addr().String())
	if r.http != nil {
		serve = append(serve, func() error { return r.http.Serve(r.httpListener) })
		attrs = append(attrs, "http", r.httpListener.Addr().String())
	}
	return serve, attrs, nil
}

// openToAll reports whether other machines can connect to a listener, which can be nil.
func openToAll(l net.Listener) bool {
	if l == nil {
		return false
	}
	tcp, ok := l.Addr().(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// healthNames are the services that the health service knows. The second one is that of envoyproxy/ratelimit.
var healthNames = []string{"", "ratelimit", ratelimitv3.RateLimitService_ServiceDesc.ServiceName}

// open makes the servers and opens their listeners.
func (r *run) open(c rlsconfig.RLS) (err error) {
	secure, err := r.tlsConfig(c)
	if err != nil {
		return err
	}
	r.health = health.NewServer()
	for _, name := range healthNames {
		r.health.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	streams, endStreams := context.WithCancel(context.Background())
	r.endStreams = endStreams
	options := []grpc.ServerOption{
		grpc.StreamInterceptor(endingWith(streams)),
		grpc.NumStreamWorkers(uint32(2 * runtime.GOMAXPROCS(0))), // whose stacks have grown already
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{ // gRPC adds the jitter
			MaxConnectionAge: c.MaxConnectionAge, MaxConnectionAgeGrace: c.MaxConnectionAgeGrace,
			Time: askAgain, Timeout: pingTimeout,
		}),
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	r.grpc = grpc.NewServer(options...)
	ratelimitv3.RegisterRateLimitServiceServer(r.grpc, r.handler)
	grpc_health_v1.RegisterHealthServer(r.grpc, r.health)
	if c.Reflection {
		reflection.Register(r.grpc)
	}
	r.grpcListener, err = r.Listen("listen", r.Options.Listen, c.Listen)
	if err != nil || c.HTTP == "" {
		return err
	}
	if r.httpListener, err = r.Listen("http", "", c.HTTP); err != nil {
		return err
	}
	if secure != nil {
		r.httpListener = tls.NewListener(r.httpListener, secure)
	}
	r.http = newHTTP(r.handler, r.health, r.ServerLog())
	return nil
}

// endingWith returns an interceptor that ends streams when the context ends: a client that watches the health of the service
// does not hold up a graceful stop.
func endingWith(ended context.Context) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		stop := context.AfterFunc(ended, cancel)
		defer stop()
		return handler(service, &endingStream{stream, ctx})
	}
}

// An endingStream is a stream with another context.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements [grpc.ServerStream].
func (s *endingStream) Context() context.Context { return s.ctx }

// tlsConfig returns how clients connect; nil: without TLS.
func (r *run) tlsConfig(c rlsconfig.RLS) (*tls.Config, error) {
	if c.TLS == nil {
		return nil, nil
	}
	t, err := r.TLS(&c.TLS.TLS)
	if err != nil || c.TLS.ClientCA == "" {
		return t, err
	}
	t.ClientAuth = tls.RequireAndVerifyClientCert
	if t.ClientCAs, err = keyfile.Authorities(c.TLS.ClientCA); err != nil {
		return nil, fmt.Errorf("rls.tls.client_ca: %w", err)
	}
	return t, nil
}

// Running implements [process.Server].
func (r server) Running() int64 { return r.handler.running.Load() }

// Stopping makes the health service say no, while requests are still answered.
func (r server) Stopping() { r.health.Shutdown() }

// Drain implements [process.Server]. Clients are told to go elsewhere.
func (r server) Drain(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.endStreams()
		var both sync.WaitGroup
		both.Go(r.grpc.GracefulStop)
		if r.http != nil {
			both.Go(func() { _ = r.http.Shutdown(ctx) })
		}
		both.Wait()
	}()
	select {
	case <-ended:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CutOff implements [process.Server].
func (r server) CutOff() { r.Close() }

// Close implements [process.Server].
func (r server) Close() {
	if r.grpc != nil {
		r.endStreams()
		r.grpc.Stop() // also ends GracefulStop
	}
	if r.http != nil {
		_ = r.http.Close()
	}
	for _, l := range []net.Listener{r.grpcListener, r.httpListener} {
		if l != nil {
			_ = l.Close() // a server that did not begin has not closed it
		}
	}
}
