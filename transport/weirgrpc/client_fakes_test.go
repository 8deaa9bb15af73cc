package weirgrpc

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

// A service answers as the test says. Without a function it answers with empty messages.
type service struct {
	testpb.UnimplementedTestServiceServer
	unary  func(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error)
	output func(r *testpb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error
	duplex func(stream grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error
}

func (s *service) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, nil
}

func (s *service) UnaryCall(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if s.unary == nil {
		return &testpb.SimpleResponse{Username: r.GetResponseStatus().GetMessage()}, nil
	}
	return s.unary(ctx, r)
}

func (s *service) StreamingOutputCall(r *testpb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	if s.output == nil {
		return nil
	}
	return s.output(r, stream)
}

func (s *service) StreamingInputCall(stream grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]) error {
	for count := int32(0); ; count++ {
		switch _, err := stream.Recv(); err {
		case nil:
		case io.EOF:
			return stream.SendAndClose(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: count})
		default:
			return err
		}
	}
}

// FullDuplexCall sends one message for each that it gets.
func (s *service) FullDuplexCall(stream grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	if s.duplex != nil {
		return s.duplex(stream)
	}
	for {
		switch r, err := stream.Recv(); err {
		case nil:
			if err := stream.Send(&testpb.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
				return err
			}
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// serve serves the service on a loopback TCP port.
func serve(s testpb.TestServiceServer, options ...grpc.ServerOption) (target string, stop func()) {
	listener := weir.Must(net.Listen("tcp", "127.0.0.1:0"))
	return listener.Addr().String(), serveOn(listener, s, options...)
}

func serveOn(listener net.Listener, s testpb.TestServiceServer, options ...grpc.ServerOption) (stop func()) {
	server := grpc.NewServer(options...)
	testpb.RegisterTestServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	return server.Stop
}

// A wire is how a test connects its client and its server.
type wire func(t *testing.T, s testpb.TestServiceServer, serverOptions []grpc.ServerOption, dialOptions ...grpc.DialOption) *grpc.ClientConn

var wires = map[string]wire{"bufconn": overBufconn, "tcp": overTCP}

func eachWire(t *testing.T, test func(t *testing.T, w wire)) {
	for name, w := range wires {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
}

// limited returns a client of the service behind the limits.
func limited(t *testing.T, w wire, l *Limits, s *service, dial ...grpc.DialOption) testpb.TestServiceClient {
	return testpb.NewTestServiceClient(w(t, s, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(l.UnaryInterceptor()), grpc.ChainStreamInterceptor(l.StreamInterceptor()),
	}, dial...))
}

func overTCP(t *testing.T, s testpb.TestServiceServer, serverOptions []grpc.ServerOption, dialOptions ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	target, stop := serve(s, serverOptions...)
	return connect(t, target, stop, dialOptions...)
}

func overBufconn(t *testing.T, s testpb.TestServiceServer, serverOptions []grpc.ServerOption, dialOptions ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })
	return connect(t, "passthrough:///bufconn", serveOn(listener, s, serverOptions...), append(dialOptions, dial)...)
}

func connect(t *testing.T, target string, stop func(), options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close() // the test may have closed it
		stop()
	})
	return conn
}

// guarded returns a client of the service whose calls go through the strategies.
func guarded(t *testing.T, w wire, s testpb.TestServiceServer, o *ClientOptions, strategies ...pipeline.Strategy) testpb.TestServiceClient {
	t.Helper()
	client, err := NewClient(weir.Must(pipeline.New("api", strategies...)), o)
	require.NoError(t, err)
	return testpb.NewTestServiceClient(w(t, s, nil, client.DialOptions()...))
}

// idempotent makes all methods idempotent.
var idempotent = &ClientOptions{IdempotentMethods: []string{"*"}}

// rejection returns an error with a RetryInfo.
func rejection(code codes.Code, wait time.Duration) error {
	s, err := status.New(code, "rejected").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// pushBack sets the trailer of a call.
func pushBack(ctx context.Context, values ...string) {
	for _, value := range values {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", value))
	}
}

// intercept returns the interceptor of unary calls through the strategies, for calls without a connection.
func intercept(t *testing.T, o *ClientOptions, strategies ...pipeline.Strategy) grpc.UnaryClientInterceptor {
	t.Helper()
	client, err := NewClient(weir.Must(pipeline.New("api", strategies...)), o)
	require.NoError(t, err)
	return client.UnaryInterceptor()
}

// unavailable answers all calls with UNAVAILABLE, and counts them.
type unavailable struct{ calls atomic.Int32 }

func (u *unavailable) service() *service {
	return &service{unary: func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		u.calls.Add(1)
		return nil, status.Error(codes.Unavailable, "always")
	}}
}
