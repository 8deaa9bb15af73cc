package weirgrpc_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirgrpc"
)

// busyService rejects the first call, and says when to come back.
type busyService struct {
	exampleService
	calls atomic.Int32
}

func (s *busyService) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if s.calls.Add(1) == 1 {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", "20"))
		return nil, status.Error(codes.ResourceExhausted, "not yet")
	}
	return &testpb.SimpleResponse{Username: "ann"}, nil
}

// A client that makes at most 100 calls a second, gives each attempt five seconds, and repeats what failed and can be
// repeated. The server rejects the first call and says when to come back.
func ExampleNewClient() {
	service := new(busyService)
	target, stop := serve(service)
	defer stop()

	bucket, err := limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: 100, TokensPerPeriod: 100, ReplenishmentPeriod: time.Second, QueueLimit: 100,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bucket.Close()
	p := weir.Must(pipeline.New("users-api",
		retry.New(&retry.Options{Delay: time.Millisecond}),
		ratelimit.New(bucket, nil),
		timeout.New(5*time.Second, nil),
	))
	client, err := weirgrpc.NewClient(p, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	credentials := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient(target, append(client.DialOptions(), credentials)...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	reply, err := testpb.NewTestServiceClient(conn).UnaryCall(context.Background(), &testpb.SimpleRequest{})
	fmt.Println(reply.GetUsername(), err)
	fmt.Println(service.calls.Load(), "calls")
	// Output:
	// ann <nil>
	// 2 calls
}

// A client that makes at most one call at a time of each method.
func ExampleOutgoingMethod() {
	target, stop := serve(exampleService{})
	defer stop()

	perMethod, err := weirgrpc.PerKey(limiter.FactoryFor[string](limiter.ConcurrencyOptions{PermitLimit: 1}), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer perMethod.Close()
	p := weir.Must(pipeline.New("api", ratelimit.NewPartitioned(perMethod, weirgrpc.OutgoingMethod, nil)))
	client := weir.Must(weirgrpc.NewClient(p, nil))
	conn := weir.Must(grpc.NewClient(target, append(client.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...))
	defer conn.Close()
	api := testpb.NewTestServiceClient(conn)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()                   // ends the stream
	_, err = api.FullDuplexCall(ctx) // the stream holds its permit as long as it lives
	fmt.Println(status.Code(err))
	_, err = api.FullDuplexCall(ctx)
	fmt.Println(status.Code(err))
	_, err = api.UnaryCall(ctx, &testpb.SimpleRequest{})
	fmt.Println(status.Code(err))
	// Output:
	// OK
	// ResourceExhausted
	// OK
}
