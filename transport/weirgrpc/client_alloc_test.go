package weirgrpc

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// likeGRPC does with the options what grpc-go does when a call has ended.
func likeGRPC(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, options ...grpc.CallOption) error {
	for _, option := range options {
		switch o := option.(type) {
		case grpc.TrailerCallOption:
			*o.TrailerAddr = nil
		case grpc.OnFinishCallOption:
			o.OnFinish(nil)
		}
	}
	return nil
}

// usual are the strategies of most clients.
func usual() []pipeline.Strategy {
	bucket := weir.Must(limiter.NewTokenBucket(limiter.PerSecond(1e9, 1e9)))
	return []pipeline.Strategy{retry.New(nil), ratelimit.New(bucket, nil), timeout.New(time.Minute, nil)}
}

// The call with its context, the attempt with its options and the functions that grpc-go calls at its end. grpc-go makes dozens.
func TestClient_Allocations(t *testing.T) {
	request, reply, ctx := &testpb.Empty{}, &testpb.Empty{}, context.Background()
	for _, c := range []struct {
		name       string
		strategies []pipeline.Strategy
		most       float64
	}{
		{"no strategy", nil, 11},
		{"limiter", []pipeline.Strategy{usual()[1]}, 11},
		{"retry, limiter", usual()[:2], 11},
		{"retry, limiter, timeout", usual(), 12},
	} {
		client := weir.Must(NewClient(weir.Must(pipeline.New("api", c.strategies...)), nil))
		invoke := client.UnaryInterceptor()
		options := []grpc.CallOption{grpc.WaitForReady(true)}
		got := testing.AllocsPerRun(200, func() { _ = invoke(ctx, unaryMethod, request, reply, nil, likeGRPC, options...) })
		if got > c.most {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.most)
		}
	}
}
