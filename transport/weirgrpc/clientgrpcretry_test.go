package weirgrpc_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/transport/weirgrpc"
	"github.com/weir-go/weir/weirtest"
)

// serviceConfig retries the calls of UnaryCall: grpc-go makes up to four attempts.
const serviceConfig = `{"methodConfig": [{
	"name": [{"service": "grpc.testing.TestService", "method": "UnaryCall"}],
	"retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
		"retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]}
}]}`

// unavailable answers all calls with UNAVAILABLE, and counts them and how many of them grpc-go repeated.
type unavailable struct{ calls, repeated atomic.Int32 }

func (u *unavailable) service() *service {
	return &service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		u.calls.Add(1)
		if md, _ := metadata.FromIncomingContext(ctx); len(md["grpc-previous-rpc-attempts"]) > 0 {
			u.repeated.Add(1)
		}
		return nil, status.Error(codes.Unavailable, "always")
	}}
}

// With the interceptors alone, the first call shows that both retry. From then on only the pipeline does.
func TestClient_DetectsServiceConfigRetry(t *testing.T) {
	for name, w := range wires {
		t.Run(name, func(t *testing.T) {
			var u unavailable
			var events weirtest.Recorder
			client := weir.Must(weirgrpc.NewClient(weir.Must(pipeline.New("api", retrying(retry.Options{MaxRetries: 2}))),
				&weirgrpc.ClientOptions{IdempotentMethods: []string{"*"}, Listener: &events}))
			api := testpb.NewTestServiceClient(w(t, u.service(), nil, grpc.WithDefaultServiceConfig(serviceConfig),
				grpc.WithUnaryInterceptor(client.UnaryInterceptor()), grpc.WithStreamInterceptor(client.StreamInterceptor())))
			for i, want := range []int32{4 + 1 + 1, 3, 3} {
				u.calls.Store(0)
				_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
				assert.Equal(t, codes.Unavailable, status.Code(err))
				assert.Equal(t, want, u.calls.Load(), "call %d", i)
			}
			require.Len(t, events.Events(), 1)
			event := events.Events()[0]
			assert.Equal(t, weirgrpc.EventServiceConfigRetry, event.Name)
			assert.Equal(t, pipeline.SeverityWarning, event.Severity)
			assert.Equal(t, "api", event.Source.Pipeline)
			assert.EqualError(t, event.Err, "weirgrpc: "+unaryMethod+" is retried by the pipeline and by grpc-go: remove the "+
				"retryPolicy of the method from the service config, or make the connection with Client.DialOptions")
		})
	}
}

// With DialOptions only the pipeline retries, from the first call.
func TestClient_DialOptionsDisableServiceConfigRetry(t *testing.T) {
	var u unavailable
	var events weirtest.Recorder
	client := weir.Must(weirgrpc.NewClient(weir.Must(pipeline.New("api", retrying(retry.Options{MaxRetries: 2}))),
		&weirgrpc.ClientOptions{IdempotentMethods: []string{"*"}, Listener: &events}))
	api := testpb.NewTestServiceClient(overBufconn(t, u.service(), nil, append(client.DialOptions(), grpc.WithDefaultServiceConfig(serviceConfig))...))
	_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.EqualValues(t, 3, u.calls.Load())
	assert.Zero(t, u.repeated.Load())
	assert.Empty(t, events.Events())
}

// A pipeline that does not retry leaves the retries of the service config as they are.
func TestClient_LeavesServiceConfigRetry(t *testing.T) {
	for name, strategies := range map[string][]pipeline.Strategy{"no retry": nil, "a retry that the method is not for": {retrying(retry.Options{})}} {
		t.Run(name, func(t *testing.T) {
			var u unavailable
			var events weirtest.Recorder
			client := weir.Must(weirgrpc.NewClient(weir.Must(pipeline.New("api", strategies...)), &weirgrpc.ClientOptions{Listener: &events}))
			api := testpb.NewTestServiceClient(overBufconn(t, u.service(), nil, grpc.WithDefaultServiceConfig(serviceConfig),
				grpc.WithUnaryInterceptor(client.UnaryInterceptor())))
			for range 2 {
				u.calls.Store(0)
				_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
				assert.Equal(t, codes.Unavailable, status.Code(err))
				assert.EqualValues(t, 4, u.calls.Load())
			}
			assert.Empty(t, events.Events())
		})
	}
}

// Our retry beside that of grpc-go: both wait for the pushback, and both stop at a negative one. Only ours knows
// RetryInfo, and only ours gives up at once if the wait would outlast the deadline.
func TestClient_BesideGRPCsOwnRetry(t *testing.T) {
	const wait = 60 * time.Millisecond
	for name, w := range wires {
		for _, c := range []struct {
			name         string
			reject       func(ctx context.Context) error
			ours, theirs time.Duration // the least time of a call that succeeds; -1: it fails
		}{
			{"pushback", func(ctx context.Context) error { pushBack(ctx, "60"); return status.Error(codes.ResourceExhausted, "") }, wait, wait},
			{"pushback and RetryInfo", func(ctx context.Context) error {
				pushBack(ctx, "60")
				return rejection(codes.ResourceExhausted, time.Hour)
			}, wait, wait},
			{"RetryInfo", func(context.Context) error { return rejection(codes.ResourceExhausted, wait) }, wait, 0},
			{"never", func(ctx context.Context) error { pushBack(ctx, "-1"); return rejection(codes.ResourceExhausted, 0) }, -1, -1},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				for who, want := range map[string]time.Duration{"ours": c.ours, "theirs": c.theirs} {
					var calls atomic.Int32
					s := &service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
						if calls.Add(1) == 1 {
							return nil, c.reject(ctx)
						}
						return &testpb.SimpleResponse{}, nil
					}}
					options := []grpc.DialOption{grpc.WithDefaultServiceConfig(serviceConfig)}
					if who == "ours" {
						client := weir.Must(weirgrpc.NewClient(weir.Must(pipeline.New("api", retrying(retry.Options{}))), nil))
						options = append(options, client.DialOptions()...)
					}
					api := testpb.NewTestServiceClient(w(t, s, nil, options...))
					began := time.Now()
					_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
					if want < 0 {
						assert.Equal(t, codes.ResourceExhausted, status.Code(err), who)
						assert.EqualValues(t, 1, calls.Load(), who)
						continue
					}
					require.NoError(t, err, who)
					assert.EqualValues(t, 2, calls.Load(), who)
					assert.GreaterOrEqual(t, time.Since(began), want, who)
				}
			})
		}
	}
}

// Methods that are not known can be any number: the Client remembers a bounded number of them.
func TestClient_DetectionIsBounded(t *testing.T) {
	const all = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.001s", "maxBackoff": "0.001s",
		"backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`
	conn := overBufconn(t, &service{}, nil, grpc.WithDefaultServiceConfig(all))
	_, err := testpb.NewTestServiceClient(conn).EmptyCall(t.Context(), &testpb.Empty{}) // resolves the service config
	require.NoError(t, err)
	var events weirtest.Recorder
	client := weir.Must(weirgrpc.NewClient(weir.Must(pipeline.New("api", retrying(retry.Options{MaxRetries: 1}))),
		&weirgrpc.ClientOptions{IdempotentMethods: []string{"*"}, Listener: &events}))
	invoke := client.UnaryInterceptor()
	for i := range 1100 {
		_ = invoke(t.Context(), fmt.Sprintf("/a.B/%d", i), nil, &testpb.Empty{}, conn, failing(status.Error(codes.Unavailable, "")))
	}
	assert.Equal(t, 1024, events.Count(weirgrpc.EventServiceConfigRetry))
}
