package weirgrpc_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	failsafebreaker "github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/weirfailsafe"
	"github.com/weir-go/weir/transport/weirgrpc"
	"github.com/weir-go/weir/weirtest"
)

// Policies of strategies/weirfailsafe in the interceptors of failsafe-go, and policies of failsafe-go in a Client.

// withStatus is a MapError: failsafe-go has no statuses of its own.
func withStatus(err error) error {
	if errors.Is(err, pipeline.ErrRejected) {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return err
}

func TestFailsafe_LimiterInItsServerInterceptor(t *testing.T) {
	for name, w := range wires {
		t.Run(name, func(t *testing.T) {
			l, back := slots(t, 1)
			policy := weir.Must(weirfailsafe.FromLimiter[any](l, &weirfailsafe.FromLimiterOptions{MapError: withStatus}))
			running, goOn := make(chan struct{}), make(chan struct{})
			s := &service{unary: func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
				running <- struct{}{}
				<-goOn
				return &testpb.SimpleResponse{Username: "ann"}, nil
			}}
			api := testpb.NewTestServiceClient(w(t, s, []grpc.ServerOption{grpc.UnaryInterceptor(failsafegrpc.NewUnaryServerInterceptor[any](policy))}))
			var wg sync.WaitGroup
			wg.Go(func() {
				reply, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
				assert.NoError(t, err)
				assert.Equal(t, "ann", reply.GetUsername())
			})
			<-running
			_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
			assert.Equal(t, codes.ResourceExhausted, status.Code(err))
			close(goOn)
			wg.Wait()
			back()
		})
	}
}

// In a tap handle a limiter with a queue does not wait.
func TestFailsafe_LimiterInItsTapHandle(t *testing.T) {
	l := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour, QueueLimit: 10}))
	policy := weir.Must(weirfailsafe.FromLimiter[any](l, &weirfailsafe.FromLimiterOptions{MapError: withStatus}))
	api := testpb.NewTestServiceClient(overBufconn(t, &service{}, []grpc.ServerOption{grpc.InTapHandle(failsafegrpc.NewServerInHandle[any](policy))}))
	_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	require.NoError(t, err)
	_, err = api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Zero(t, l.Statistics().QueuedPermits)
}

// The retry of failsafe-go's client waits as the limiter asks.
func TestFailsafe_LimiterInItsClientInterceptor(t *testing.T) {
	script := weirtest.NewLimiter(weirtest.Reject(30*time.Millisecond, ""), weirtest.Grant())
	client := func(policies ...failsafe.Policy[any]) testpb.TestServiceClient {
		interceptor := failsafegrpc.NewUnaryClientInterceptor(policies...)
		return testpb.NewTestServiceClient(overBufconn(t, &service{}, nil, grpc.WithUnaryInterceptor(interceptor)))
	}
	waiting := retrypolicy.NewBuilder[any]().WithDelayFunc(weirfailsafe.RetryAfter).Build()
	api := client(waiting, weir.Must(weirfailsafe.FromLimiter[any](script, nil)))
	began := time.Now()
	_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
	assert.Equal(t, 1, script.Count(weirtest.Released))

	script.SetScript(weirtest.Reject(time.Hour, "no more"))
	impatient := client(weir.Must(weirfailsafe.FromLimiter[any](script, &weirfailsafe.FromLimiterOptions{MapError: withStatus})))
	_, err = impatient.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.ErrorContains(t, err, "no more")
}

// A retry policy of failsafe-go keeps to what the Client allows.
func TestFailsafe_RetryPolicyInAClient(t *testing.T) {
	policy := retrypolicy.NewBuilder[any]().WithMaxRetries(2).ReturnLastFailure().Build()
	var u unavailable
	for want, o := range map[int32]*weirgrpc.ClientOptions{1: nil, 3: idempotent} {
		u.calls.Store(0)
		_, err := guarded(t, overBufconn, u.service(), o, weirfailsafe.New(nil, policy)).UnaryCall(t.Context(), &testpb.SimpleRequest{})
		assert.Equal(t, codes.Unavailable, status.Code(err))
		assert.Equal(t, want, u.calls.Load())
	}
}

func TestFailsafe_HedgePolicyInAClient(t *testing.T) {
	var calls atomic.Int32
	s := &service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		if calls.Add(1) == 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &testpb.SimpleResponse{Username: "the hedge"}, nil
	}}
	l, back := slots(t, 2)
	api := guarded(t, overTCP, s, idempotent, weirfailsafe.New(nil, hedgepolicy.NewWithDelay[any](5*time.Millisecond)), ratelimit.New(l, nil))
	reply, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	require.NoError(t, err)
	assert.Equal(t, "the hedge", reply.GetUsername())
	back()
}

// Rejections of failsafe-go's policies arrive with codes, and permits of both kinds come back.
func TestFailsafe_RejectionsInAClient(t *testing.T) {
	rejecting := ratelimiter.NewSmooth[any](1, time.Hour)
	breaker := failsafebreaker.NewBuilder[any]().WithDelay(time.Hour).Build()
	breaker.Open()
	full := bulkhead.New[any](1)
	require.True(t, full.TryAcquirePermit())
	_ = rejecting.TryAcquirePermit()
	for name, policy := range map[string]failsafe.Policy[any]{"limiter": rejecting, "breaker": breaker, "bulkhead": full} {
		l, back := slots(t, 1)
		api := guarded(t, overBufconn, &service{}, nil, ratelimit.New(l, nil), weirfailsafe.New(nil, policy))
		_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
		require.ErrorIs(t, err, pipeline.ErrRejected, name)
		assert.Equal(t, codes.Unavailable, status.Code(err), name)
		_, err = api.FullDuplexCall(t.Context())
		assert.Equal(t, codes.Unavailable, status.Code(err), name)
		back()
	}
	full.ReleasePermit()

	api := guarded(t, overBufconn, &service{}, nil, weirfailsafe.New(nil, failsafe.Policy[any](full)))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := api.FullDuplexCall(ctx)
	require.NoError(t, err)
	assert.False(t, full.TryAcquirePermit(), "held by the stream")
	cancel()
	assert.Eventually(t, full.TryAcquirePermit, time.Minute, time.Millisecond)
}

// Contention, with cancelled calls, through failsafe-go's interceptors on both sides.
func TestFailsafe_CancelledCallsLeaveNothing_ConcurrentSafe(t *testing.T) {
	onServer := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 8, QueueLimit: 100}))
	onClient := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 8, QueueLimit: 100}))
	server := weir.Must(weirfailsafe.FromLimiter[any](onServer, &weirfailsafe.FromLimiterOptions{MapError: withStatus}))
	client := weir.Must(weirfailsafe.FromLimiter[any](onClient, nil))
	api := testpb.NewTestServiceClient(overBufconn(t, &service{},
		[]grpc.ServerOption{grpc.UnaryInterceptor(failsafegrpc.NewUnaryServerInterceptor[any](server))},
		grpc.WithUnaryInterceptor(failsafegrpc.NewUnaryClientInterceptor[any](client))))
	var answered atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range int64(100) {
				oneCall(t, api, 4*i+1+i%2, &answered) // unary calls only; every 25th is cancelled
			}
		})
	}
	wg.Wait()
	for _, l := range []*limiter.Concurrency{onServer, onClient} {
		assert.Eventually(t, func() bool { return l.Statistics().AvailablePermits == 8 }, time.Minute, time.Millisecond)
	}
	assert.Greater(t, answered.Load(), int64(1000))
}
