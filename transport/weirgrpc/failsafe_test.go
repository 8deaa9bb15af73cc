package weirgrpc_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	failsafebreaker "github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/weirfailsafe"
	"github.com/weir-go/weir/transport/weirgrpc"
)

// Policies of strategies/weirfailsafe in the interceptors of failsafe-go, and policies of failsafe-go in a Client.

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
