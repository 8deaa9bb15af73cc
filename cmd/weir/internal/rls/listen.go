package rls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"runtime"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weir-go/weir/cmd/weir/internal/rlsconfig"
)

// The bounds of what a client can send. A request has some descriptors, each with some short texts.
const (
	maxRequest     = 256 << 10 // bytes
	maxDescriptors = 1000      // in a request; an empty one has 2 bytes there, and takes a thousand here
	maxHeaders     = 64 << 10  // bytes
	maxStreams     = 1000      // at once, on one connection
	connectTimeout = 10 * time.Second
	// leastPing is how often a client may ping, also without a request: Envoy can be told to, and gRPC's own bound of five
	// minutes would close its connections.
	leastPing = 10 * time.Second
	// askAgain is how long a connection can be silent until the client is asked by a ping whether it is there, and
	// pingTimeout how long it has to answer. Otherwise answers that a client never reads would be kept for hours.
	askAgain    = time.Minute
	pingTimeout = 20 * time.Second
)

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
	r.http = r.newHTTP(r.handler, r.health)
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
	content, err := os.ReadFile(c.TLS.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("rls.tls.client_ca: %w", err)
	}
	t.ClientCAs, t.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !t.ClientCAs.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("rls.tls.client_ca: %s has no certificate in PEM form", c.TLS.ClientCA)
	}
	return t, nil
}
