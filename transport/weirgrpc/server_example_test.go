package weirgrpc_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/weirgrpc"
)

// exampleService answers every call. Its stream sends back what it receives.
type exampleService struct {
	testpb.UnimplementedTestServiceServer
}

func (exampleService) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, nil
}

func (exampleService) UnaryCall(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if used := r.GetResponseSize(); used > 0 { // the call has used more than its Cost said
		charged, err := weirgrpc.Charge(ctx, int(used))
		fmt.Println("charged", charged, err)
	}
	return &testpb.SimpleResponse{}, nil
}

func (exampleService) FullDuplexCall(stream grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if err := stream.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// serve serves the service and the health service on a port of loopback, until stop is called.
func serve(s testpb.TestServiceServer, options ...grpc.ServerOption) (target string, stop func()) {
	server := grpc.NewServer(options...)
	testpb.RegisterTestServiceServer(server, s)
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener := weir.Must(net.Listen("tcp", "127.0.0.1:0"))
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), server.Stop
}

// serveExample serves exampleService behind the limits, until stop is called.
func serveExample(limits *weirgrpc.Limits) (conn *grpc.ClientConn, stop func()) {
	target, stopServer := serve(exampleService{},
		grpc.ChainUnaryInterceptor(limits.UnaryInterceptor()),
		grpc.ChainStreamInterceptor(limits.StreamInterceptor()),
	)
	conn = weir.Must(grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials())))
	return conn, func() {
		_ = conn.Close()
		stopServer()
	}
}

// A server that handles at most 100 calls at a time, and of each user two calls a minute of one method. The health
// service is not limited.
func ExampleNewLimits() {
	slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 100, QueueLimit: 100}))
	defer slots.Close()
	perUser := weir.Must(weirgrpc.PerKey(limiter.FactoryFor[string](limiter.FixedWindowOptions{
		PermitLimit: 2, Window: time.Minute,
	}), nil))
	defer perUser.Close()

	limits, err := weirgrpc.NewLimits(&weirgrpc.LimitsOptions{
		Global: weirgrpc.Policy{Limit: weirgrpc.Of(slots), MaxWait: time.Second},
		Policies: map[string]weirgrpc.Policy{
			"per-user": {Limit: weirgrpc.ByKey(perUser, weirgrpc.Metadata("x-user")), Headers: weirgrpc.Draft11, Quota: 2, Window: time.Minute},
		},
		Methods: map[string][]string{"/grpc.testing.TestService/EmptyCall": {"per-user"}},
		Exempt:  []string{"/grpc.health.v1.Health/*"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	conn, stop := serveExample(limits)
	defer stop()

	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", "ann")
	client := testpb.NewTestServiceClient(conn)
	for range 3 {
		var header, trailer metadata.MD
		_, err := client.EmptyCall(ctx, &testpb.Empty{}, grpc.Header(&header), grpc.Trailer(&trailer))
		fmt.Println(status.Code(err), header["ratelimit-policy"], len(trailer["grpc-retry-pushback-ms"]))
	}
	_, err = client.UnaryCall(ctx, &testpb.SimpleRequest{})
	fmt.Println(status.Code(err))
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	fmt.Println(status.Code(err))
	// Output:
	// OK ["per-user";q=2;w=60] 0
	// OK ["per-user";q=2;w=60] 0
	// ResourceExhausted [] 1
	// OK
	// OK
}

// What a call has cost is known when it has been handled. The second call comes too early, because the first one has
// left the bucket in debt.
func ExampleCharge() {
	tokens := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: 100, TokensPerPeriod: 100, ReplenishmentPeriod: time.Hour,
	}))
	defer tokens.Close()
	limits := weir.Must(weirgrpc.NewLimits(&weirgrpc.LimitsOptions{
		Policies: map[string]weirgrpc.Policy{"tokens": {Limit: weirgrpc.Of(tokens), Metered: true}},
		Methods:  map[string][]string{"*": {"tokens"}},
	}))
	conn, stop := serveExample(limits)
	defer stop()

	client := testpb.NewTestServiceClient(conn)
	for range 2 {
		_, err := client.UnaryCall(context.Background(), &testpb.SimpleRequest{ResponseSize: 120})
		fmt.Println(status.Code(err))
	}
	// Output:
	// charged 120 <nil>
	// OK
	// ResourceExhausted
}

// A stream can send three messages an hour. The fourth one ends it.
func ExampleStreamMode() {
	messages := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 3, Window: time.Hour}))
	defer messages.Close()
	limits := weir.Must(weirgrpc.NewLimits(&weirgrpc.LimitsOptions{
		Policies: map[string]weirgrpc.Policy{"messages": {Limit: weirgrpc.Of(messages), Streams: weirgrpc.StreamReceived}},
		Methods:  map[string][]string{"/grpc.testing.TestService/FullDuplexCall": {"messages"}},
	}))
	conn, stop := serveExample(limits)
	defer stop()

	stream := weir.Must(testpb.NewTestServiceClient(conn).FullDuplexCall(context.Background()))
	for range 4 {
		_ = stream.Send(&testpb.StreamingOutputCallRequest{}) // an error is in what Recv returns
		_, err := stream.Recv()
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// OK
	// ResourceExhausted
}

// A method goes through a pipeline of a registry. A reload changes what the next call goes through.
func ExampleByPipeline() {
	limit := 1
	r := registry.New(nil)
	defer r.Close(context.Background())
	err := r.Define("empty-call", func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.FixedWindow("calls", limiter.FixedWindowOptions{PermitLimit: limit, Window: time.Hour}), nil))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	limits := weir.Must(weirgrpc.NewLimits(&weirgrpc.LimitsOptions{
		Registry: r,
		Methods:  map[string][]string{"/grpc.testing.TestService/EmptyCall": {"empty-call"}},
	}))
	conn, stop := serveExample(limits)
	defer stop()

	client := testpb.NewTestServiceClient(conn)
	call := func() {
		_, err := client.EmptyCall(context.Background(), &testpb.Empty{})
		fmt.Println(status.Code(err))
	}
	call()
	call()
	limit = 2
	if err := r.Reload(context.Background()); err != nil {
		fmt.Println(err)
	}
	call()
	// Output:
	// OK
	// ResourceExhausted
	// OK
}
