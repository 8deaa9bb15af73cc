package weirgrpc

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

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
