package weirgrpc

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirhttp"
)

// behindHTTP serves the service by net/http, behind middleware, and returns a client.
func behindHTTP(t *testing.T, s testpb.TestServiceServer, wrap func(http.Handler) http.Handler, options ...grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	handler := grpc.NewServer()
	testpb.RegisterTestServiceServer(handler, s)
	server := &http.Server{Handler: wrap(handler), ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	listener := weir.Must(net.Listen("tcp", "127.0.0.1:0"))
	go func() { _ = server.Serve(listener) }()
	return testpb.NewTestServiceClient(connect(t, listener.Addr().String(), func() {
		_ = server.Close()
		handler.Stop()
	}, options...))
}

// A rejecter rejects everything.
type rejecter struct {
	lease limiter.Lease
	err   error
}

func (r rejecter) TryAcquire(context.Context, int) (limiter.Lease, error) { return r.lease, r.err }
func (r rejecter) Acquire(context.Context, int) (limiter.Lease, error)    { return r.lease, r.err }

// What weirhttp rejects is a rejection for a client of gRPC, too, as weirgrpc would answer it.
func TestWeirhttp_RejectsCallsOfGRPC(t *testing.T) {
	limited := func(p weirhttp.Policy) func(http.Handler) http.Handler {
		return weir.Must(weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{Global: p, Body: weirhttp.ProblemJSON, Headers: weirhttp.Draft11})).Wrap())
	}
	shed := pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) { return nil, pipeline.ErrRejected })
	for name, c := range map[string]struct {
		wrap     func(http.Handler) http.Handler
		code     codes.Code
		message  string
		pushback []string
		wait     time.Duration
	}{
		"over quota": {limited(weirhttp.Policy{Limit: weirhttp.Of(rejecter{lease: custom.Rejected(1500*time.Microsecond, "")})}),
			codes.ResourceExhausted, "the quota of calls is exceeded", []string{"2"}, 1500 * time.Microsecond},
		"for a long time": {limited(weirhttp.Policy{Limit: weirhttp.Of(rejecter{lease: custom.Rejected(90*time.Minute+1, "")})}),
			codes.ResourceExhausted, "the quota of calls is exceeded", []string{"5400001"}, 90*time.Minute + 1},
		"short of capacity": {limited(weirhttp.Policy{Limit: weirhttp.Of(rejecter{})}),
			codes.Unavailable, "the capacity is reduced for the time being", nil, 0},
		"never": {limited(weirhttp.Policy{Limit: weirhttp.Of(rejecter{err: limiter.ErrPermitCount})}),
			codes.ResourceExhausted, "the quota of calls is exceeded", []string{"-1"}, 0},
		"a status of the program": {limited(weirhttp.Policy{Limit: weirhttp.Of(rejecter{}), Status: http.StatusConflict}),
			codes.ResourceExhausted, "the quota of calls is exceeded", nil, 0},
		"shed by a pipeline": {weirhttp.Through(weir.Must(pipeline.New("p", shed)), nil),
			codes.Unavailable, "the capacity is reduced for the time being", nil, 0},
		"two values of the key": {limited(weirhttp.Policy{
			Limit: weirhttp.ByKey(weir.Must(weirhttp.PerKey(func(string) (limiter.Limiter, error) { return rejecter{}, nil }, nil)), weirhttp.Header("X-Twice"))}),
			codes.InvalidArgument, "the call cannot be read, or is ambiguous", nil, 0},
		"a handler without an answer": {func(http.Handler) http.Handler {
			return limited(weirhttp.Policy{Limit: weirhttp.Of(limiter.NewUnlimited()), Timeout: time.Millisecond})(
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		}, codes.DeadlineExceeded, "the deadline has passed", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			client := behindHTTP(t, new(service), c.wrap)
			ctx := metadata.AppendToOutgoingContext(t.Context(), "x-twice", "a", "x-twice", "b")
			check := func(err error, trailer metadata.MD) {
				t.Helper()
				s := status.Convert(err)
				assert.Equal(t, c.code, s.Code(), err)
				assert.Equal(t, c.message, s.Message())
				assert.Equal(t, c.pushback, trailer.Get("grpc-retry-pushback-ms"))
				if c.wait == 0 {
					assert.Empty(t, s.Details())
				} else if assert.Len(t, s.Details(), 1) {
					assert.Equal(t, c.wait, s.Details()[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration())
				}
			}
			var trailer metadata.MD
			_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
			check(err, trailer)
			large := &testpb.SimpleRequest{Payload: &testpb.Payload{Body: bytes.Repeat([]byte("x"), 1<<20)}}
			_, err = client.UnaryCall(ctx, large, grpc.Trailer(&trailer))
			check(err, trailer)
			stream, err := client.FullDuplexCall(ctx)
			require.NoError(t, err)
			_, err = stream.Recv()
			check(err, stream.Trailer())
		})
	}
}

// grpc-go's own retry sends a rejected call again when the server has asked for it, and not before.
func TestWeirhttp_RejectionIsRetriedByGRPC(t *testing.T) {
	const config = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "60s",
		"maxBackoff": "60s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`
	window := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: 300 * time.Millisecond}))
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{Global: weirhttp.Policy{Limit: weirhttp.Of(window)}}))
	client := behindHTTP(t, new(service), weir.Must(limits.Wrap()), grpc.WithDefaultServiceConfig(config))
	for range 2 { // the second one waits for the next window
		_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{})
		require.NoError(t, err)
	}
	assert.EqualValues(t, 2, window.Statistics().SuccessfulLeases)
}
