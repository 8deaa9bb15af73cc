package weirgrpc

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// The client sees the status, its details and the trailer, and no header: the answer is trailers-only.
func TestLimits_RejectionOverTheWire(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		client := limited(t, w, oneMethod(t, Policy{Limit: Of(tokens(t, 1)), Headers: Draft11}), new(service))
		var header, trailer metadata.MD
		_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		require.NoError(t, err)
		assert.Equal(t, []string{`"p";q=1;w=3600`}, header["ratelimit-policy"])
		assert.Equal(t, []string{`"p";r=0;t=3600`}, header["ratelimit"])
		assert.Empty(t, trailer)

		_, err = client.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Len(t, status.Convert(err).Details(), 1)
		assert.Len(t, trailer[pushbackTrailer], 1)
		assert.Equal(t, []string{`"p";q=1;w=3600`}, trailer["ratelimit-policy"])

		stream, err := client.FullDuplexCall(t.Context())
		require.NoError(t, err)
		_, err = stream.Recv()
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Len(t, stream.Trailer()[pushbackTrailer], 1)
	})
}

// grpcRetry turns the retry of grpc-go itself on, with a backoff that no test waits for.
var grpcRetry = grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{"service": "grpc.testing.TestService"}], "retryPolicy": {
	"maxAttempts": 3, "initialBackoff": "600s", "maxBackoff": "600s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`)

// The retry of grpc-go itself waits as long as the trailer says, and not as its own backoff says, and makes no attempt
// if the trailer is negative.
func TestLimits_RetryOfTheClient(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		b := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
			TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: 100 * time.Millisecond,
		}))
		defer b.Close()
		attempts := yes()
		l := weir.Must(NewLimits(&LimitsOptions{
			Global: Policy{Limit: Of(attempts)},
			Policies: map[string]Policy{
				"bucket": {Limit: Of(b)},
				"huge":   {Limit: Of(b), Cost: func(*Request) int { return 2 }},
			},
			Methods: map[string][]string{unaryMethod: {"bucket"}, emptyMethod: {"huge"}},
		}))
		client := limited(t, w, l, new(service), grpcRetry)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for range 3 { // each after the first is rejected once
			_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{})
			require.NoError(t, err)
		}
		assert.Positive(t, b.Statistics().FailedLeases)
		before := len(attempts.Calls())
		_, err := client.EmptyCall(ctx, &testpb.Empty{})
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Equal(t, 1, len(attempts.Calls())-before, "retrying is pointless")
	})
}

// An exempt service passes a server that is full; methods that nothing serves cost nothing; an unknown method that a
// handler serves is limited like any other.
func TestLimits_ExemptAndUnknown(t *testing.T) {
	full := no()
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(full)}, Exempt: []string{"/grpc.health.v1.Health/*"}}))
	for unknown, want := range map[bool]codes.Code{false: codes.Unimplemented, true: codes.ResourceExhausted} {
		options := []grpc.ServerOption{grpc.UnaryInterceptor(l.UnaryInterceptor()), grpc.StreamInterceptor(l.StreamInterceptor())}
		if unknown {
			options = append(options, grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return nil }))
		}
		server := grpc.NewServer(options...)
		healthpb.RegisterHealthServer(server, health.NewServer())
		listener := weir.Must(net.Listen("tcp", "127.0.0.1:0"))
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(listener) })
		conn := weir.Must(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))
		_, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		err = conn.Invoke(t.Context(), "/no.Service/Method", &testpb.Empty{}, &testpb.Empty{})
		assert.Equal(t, want, status.Code(err))
		require.NoError(t, conn.Close())
		server.Stop()
		serving.Wait()
	}
	full.check(t, 1, 0, 0)
}

// Calls from many goroutines, some of which are cancelled while they wait, are handled or are streams, leave no permits,
// keys in use or goroutines behind.
func TestLimits_LoadConcurrentSafe(t *testing.T) {
	calls := 50_000
	if testing.Short() {
		calls = 5_000
	}
	global, queued := slots(t, 64, 1000), slots(t, 8, 1000)
	l := weir.Must(NewLimits(&LimitsOptions{
		Global: Policy{Limit: Of(global)},
		Policies: map[string]Policy{
			"queued":   {Limit: Of(queued)},
			"messages": {Limit: Of(queued), Streams: StreamMessages, MaxWait: time.Second},
		},
		Methods: map[string][]string{"*": {"queued"}, duplexMethod: {"messages"}},
	}))
	client := limited(t, overTCP, l, &service{unary: func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		runtime.Gosched()
		return &testpb.SimpleResponse{}, nil
	}})
	var failed atomic.Int32
	var workers sync.WaitGroup
	for w := range 32 {
		workers.Go(func() {
			for i := w; i < calls; i += 32 {
				ctx, cancel := context.WithCancel(t.Context())
				var timer *time.Timer
				if i%50 == 0 {
					timer = time.AfterFunc(time.Duration(i%7)*100*time.Microsecond, cancel)
				}
				var err error
				if i%25 == 0 {
					err = echoOnce(ctx, client)
				} else {
					_, err = client.UnaryCall(ctx, &testpb.SimpleRequest{})
				}
				if timer != nil {
					timer.Stop()
				}
				cancel()
				if err != nil && status.Code(err) != codes.Canceled {
					failed.Add(1)
					t.Error(i, err)
				}
			}
		})
	}
	workers.Wait()
	assert.Zero(t, failed.Load())
	require.Eventually(t, func() bool { return free(global) == 64 && free(queued) == 8 }, 5*time.Second, time.Millisecond,
		"handlers of cancelled calls end later than the calls")
	for name, c := range map[string]*limiter.Concurrency{"global": global, "queued": queued} {
		assert.Zero(t, c.Statistics().QueuedPermits, name)
	}
}

// echoOnce sends a message and receives one.
func echoOnce(ctx context.Context, client testpb.TestServiceClient) error {
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&testpb.StreamingOutputCallRequest{}); err != nil {
		_, err = stream.Recv() // has the status
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Recv(); err == nil {
		return errors.New("a second message")
	}
	return nil
}
