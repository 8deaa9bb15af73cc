package weirgrpc_test

import (
	"context"
	"testing"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/transport/weirgrpc"
	"github.com/weir-go/weir/weirtest"
)

var _ ratelimit.Limiter = (*weirgrpc.MiddlewareLimiter)(nil)

// withMiddleware returns the interceptors of go-grpc-middleware for a server.
func withMiddleware(t *testing.T, l limiter.Limiter) []grpc.ServerOption {
	t.Helper()
	limit, err := weirgrpc.NewMiddlewareLimiter(l, nil)
	require.NoError(t, err)
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(ratelimit.UnaryServerInterceptor(limit)),
		grpc.ChainStreamInterceptor(ratelimit.StreamServerInterceptor(limit)),
	}
}

func TestNewMiddlewareLimiter_NoLimiter(t *testing.T) {
	for _, l := range []limiter.Limiter{nil, (*limiter.TokenBucket)(nil)} {
		_, err := weirgrpc.NewMiddlewareLimiter(l, nil)
		require.ErrorIs(t, err, weir.ErrInvalidOptions)
		assert.EqualError(t, err, "weirgrpc: l must not be nil")
	}
}

// The details are lost in go-grpc-middleware, the trailer is not.
func TestMiddlewareLimiter_Server(t *testing.T) {
	for name, w := range wires {
		t.Run(name, func(t *testing.T) {
			for wait, pushback := range map[time.Duration][]string{
				1500 * time.Microsecond: {"2"}, 0: nil, time.Hour: {"3600000"}, 1 << 62: {"2147483647"},
			} {
				api := testpb.NewTestServiceClient(w(t, &service{}, withMiddleware(t, weirtest.NewLimiter(weirtest.Reject(wait, "too many orders")))))
				var trailer metadata.MD
				_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
				assert.Equal(t, codes.ResourceExhausted, status.Code(err))
				assert.ErrorContains(t, err, "too many orders")
				assert.Empty(t, status.Convert(err).Details())
				assert.Equal(t, pushback, trailer["grpc-retry-pushback-ms"])

				stream, err := api.FullDuplexCall(t.Context())
				require.NoError(t, err)
				_, err = stream.Recv()
				assert.Equal(t, codes.ResourceExhausted, status.Code(err))
				assert.Equal(t, pushback, stream.Trailer()["grpc-retry-pushback-ms"])
			}
		})
	}
}

// A call that costs more than the limiter can ever grant is not retried by grpc-go.
func TestMiddlewareLimiter_CostAboveTheLimit(t *testing.T) {
	bucket := weir.Must(limiter.NewTokenBucket(limiter.PerSecond(10, 5)))
	defer func() { _ = bucket.Close() }()
	for permits, pushback := range map[int][]string{6: {"-1"}, -1: nil} {
		limit := weir.Must(weirgrpc.NewMiddlewareLimiter(bucket, &weirgrpc.MiddlewareLimiterOptions{
			Permits: func(context.Context) int { return permits },
		}))
		api := testpb.NewTestServiceClient(overTCP(t, &service{}, []grpc.ServerOption{
			grpc.ChainUnaryInterceptor(ratelimit.UnaryServerInterceptor(limit)),
		}))
		var trailer metadata.MD
		_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Equal(t, pushback, trailer["grpc-retry-pushback-ms"])
	}
}

// grpc-go's own retry waits for the trailer, and so does a Client.
func TestMiddlewareLimiter_RetriesWait(t *testing.T) {
	client := weir.Must(weirgrpc.NewClient(weir.Must(pipeline.New("api", retrying(retry.Options{}))), nil))
	for name, options := range map[string][]grpc.DialOption{
		"grpc-go": {grpc.WithDefaultServiceConfig(serviceConfig)},
		"Client":  client.DialOptions(),
	} {
		t.Run(name, func(t *testing.T) {
			window := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: 100 * time.Millisecond}))
			api := testpb.NewTestServiceClient(overTCP(t, &service{}, withMiddleware(t, window), options...))
			began := time.Now()
			for range 3 {
				_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
				require.NoError(t, err)
			}
			assert.Greater(t, time.Since(began), 100*time.Millisecond)
		})
	}
}

// On a server a call holds its permit until it has ended.
func TestMiddlewareLimiter_ConcurrencyLimit(t *testing.T) {
	l, back := slots(t, 1)
	api := testpb.NewTestServiceClient(overBufconn(t, &service{}, withMiddleware(t, l)))
	stream, err := api.FullDuplexCall(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
	_, err = stream.Recv()
	require.NoError(t, err)
	_, err = api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.NoError(t, stream.CloseSend())
	_, _ = stream.Recv()
	back()
	_, err = api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	require.NoError(t, err)
	back()
}

// On a client there is no trailer, and no end of the call: a permit comes back at once.
func TestMiddlewareLimiter_Client(t *testing.T) {
	l, back := slots(t, 1)
	limit := weir.Must(weirgrpc.NewMiddlewareLimiter(l, nil))
	api := testpb.NewTestServiceClient(overBufconn(t, &service{}, nil, grpc.WithUnaryInterceptor(ratelimit.UnaryClientInterceptor(limit))))
	_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	require.NoError(t, err)
	back()

	held := weir.Must(l.TryAcquire(t.Context(), 1))
	_, err = api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	held.Release()
}

func TestMiddlewareLimiter_Limit(t *testing.T) {
	script := weirtest.NewLimiter(weirtest.Reject(time.Minute, ""), weirtest.Fail(limiter.ErrClosed), weirtest.Grant())
	limit := weir.Must(weirgrpc.NewMiddlewareLimiter(script, &weirgrpc.MiddlewareLimiterOptions{Permits: func(context.Context) int { return 3 }}))
	err := limit.Limit(t.Context())
	require.ErrorIs(t, err, pipeline.ErrRejected)
	assert.EqualError(t, err, "rate limit exceeded, retry after 1m0s")
	wait, ok := pipeline.RetryAfter(err)
	assert.True(t, ok)
	assert.Equal(t, time.Minute, wait)
	require.ErrorIs(t, limit.Limit(t.Context()), limiter.ErrClosed)
	require.NoError(t, limit.Limit(t.Context()))
	for _, call := range script.Calls() {
		assert.Equal(t, 3, call.Permits)
	}
}
