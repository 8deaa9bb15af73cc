package weirgrpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// The winner of a hedge fills in the caller's reply, header and trailer, and the loser nothing.
func TestClientUnary_Hedge(t *testing.T) {
	for name, w := range wires {
		for _, winner := range []int32{1, 2} {
			t.Run(fmt.Sprint(name, "/", winner), func(t *testing.T) {
				var calls, ended atomic.Int32
				breaker := circuitbreaker.New(&circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 1})
				second := make(chan struct{})
				s := &service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
					number := calls.Add(1)
					_ = grpc.SetTrailer(ctx, metadata.Pairs("number", fmt.Sprint(number)))
					if number == 2 {
						close(second)
					}
					if number != winner {
						<-ctx.Done()
						ended.Add(1)
						return nil, ctx.Err()
					}
					<-second
					return &testpb.SimpleResponse{Username: fmt.Sprint("answer ", number)}, nil
				}}
				api := guarded(t, w, s, idempotent, hedge.New(&hedge.Options{Delay: 5 * time.Millisecond}), breaker)
				var trailer metadata.MD
				request := &testpb.SimpleRequest{}
				reply, err := api.UnaryCall(t.Context(), request, grpc.Trailer(&trailer))
				require.NoError(t, err)
				request.ResponseSize++ // the request and the reply are the caller's again
				reply.Hostname = "changed"
				assert.Equal(t, fmt.Sprint("answer ", winner), reply.GetUsername())
				assert.Equal(t, []string{fmt.Sprint(winner)}, trailer["number"])
				assert.Equal(t, circuitbreaker.Closed, breaker.State(), "a loser is no failure")
				assert.Eventually(t, func() bool { return ended.Load() == 1 }, time.Minute, time.Millisecond)
			})
		}
	}
}

// A hedge that handles replies can return an earlier one: later attempts have not overwritten it.
func TestClientUnary_HedgeReturnsAnEarlierReply(t *testing.T) {
	var calls atomic.Int32
	unwanted := func(any, error) bool { return true }
	api := guarded(t, overBufconn, answering(&calls), idempotent, hedge.New(&hedge.Options{Delay: -1, MaxHedges: 2, Handle: unwanted}))
	reply, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	require.NoError(t, err)
	assert.Equal(t, "answer 1", reply.GetUsername())
	assert.EqualValues(t, 3, calls.Load())
}

// plain is a message of another codec.
type plain struct{ Text string }

func TestClientUnary_RepliesOfOtherCodecs(t *testing.T) {
	number := 0
	fill := func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		number++
		if r, ok := reply.(*plain); ok {
			r.Text = fmt.Sprint(number)
		}
		return nil
	}
	first := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) { // the second of two
		_, _ = next.Run(ctx)
		return next.Run(ctx)
	})
	var reply plain
	require.NoError(t, intercept(t, idempotent, first)(t.Context(), unaryMethod, nil, &reply, nil, fill))
	assert.Equal(t, "2", reply.Text)

	for _, reply := range []any{map[string]any{}, 7, nil} {
		number = 0
		err := intercept(t, idempotent, first)(t.Context(), unaryMethod, nil, reply, nil, fill)
		assert.Equal(t, codes.Internal, status.Code(err))
		assert.Zero(t, number)
	}
}

// The caller's end of a call is no failure of the server, and is not retried.
func TestClientUnary_CallerCancels(t *testing.T) {
	breaker := circuitbreaker.New(&circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 1})
	began := make(chan struct{}, 10)
	api := guarded(t, overBufconn, &service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}, idempotent, retrying(retry.Options{}), breaker)
	cause := errors.New("the user has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-began
		cancel(cause)
	}()
	_, err := api.UnaryCall(ctx, &testpb.SimpleRequest{})
	assert.Equal(t, codes.Canceled, status.Code(err))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)
	assert.Empty(t, began)
	assert.Equal(t, circuitbreaker.Closed, breaker.State())
}

// A panic or a Goexit of the invoker reaches the caller, and the permit comes back.
func TestClientUnary_Panics(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("invoker") }, "goexit": runtime.Goexit} {
		for kind, strategy := range map[string]pipeline.Strategy{"retry": retrying(retry.Options{}), "hedge": hedge.New(nil)} {
			l, back := returning(t, 1)
			invoke := intercept(t, nil, strategy, ratelimit.New(l, nil))
			done := make(chan any)
			go func() {
				defer func() { done <- recover() }()
				_ = invoke(context.Background(), unaryMethod, nil, &testpb.Empty{}, nil,
					func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
						leave()
						return nil
					})
				t.Error("it returned")
			}()
			want := any("invoker")
			if name == "goexit" {
				want = nil
			}
			assert.Equal(t, want, <-done, name+" "+kind)
			back()
		}
	}
}

// A reply is the caller's when the call has returned, so the call waits for the losers of a hedge.
func TestClientUnary_WaitsForLosers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		var reply testpb.SimpleResponse
		began := time.Now()
		err := intercept(t, idempotent, hedge.New(&hedge.Options{Delay: time.Second}))(t.Context(), unaryMethod, nil, &reply, nil,
			func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				if calls.Add(1) == 1 {
					time.Sleep(5 * time.Second) // deaf to its context
				}
				reply.(*testpb.SimpleResponse).Username = fmt.Sprint(time.Since(began))
				return nil
			})
		require.NoError(t, err)
		assert.Equal(t, "1s", reply.GetUsername())
		assert.Equal(t, 5*time.Second, time.Since(began))
	})
}

// Two per cent of the calls and streams are cancelled under contention. Nothing is left behind.
func TestClient_CancelledCallsLeaveNothing_ConcurrentSafe(t *testing.T) {
	calls := 5000
	if testing.Short() {
		calls = 1000
	}
	for name, w := range wires {
		t.Run(name, func(t *testing.T) {
			l, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 8, QueueLimit: 64})
			require.NoError(t, err)
			s := &service{unary: func(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
				if rand.IntN(10) == 0 {
					return nil, rejection(codes.ResourceExhausted, 0)
				}
				return &testpb.SimpleResponse{Username: r.GetResponseStatus().GetMessage()}, nil
			}}
			api := guarded(t, w, s, idempotent,
				retrying(retry.Options{MaxRetries: 2}), hedge.New(&hedge.Options{Delay: 2 * time.Millisecond}),
				ratelimit.New(l, nil), timeout.New(time.Minute, nil))
			var next, answered atomic.Int64
			var wg sync.WaitGroup
			for range 32 {
				wg.Go(func() {
					for {
						i := next.Add(1)
						if i > int64(calls) {
							return
						}
						oneCall(t, api, i, &answered)
					}
				})
			}
			wg.Wait()
			assert.Eventually(t, func() bool { return l.Statistics().AvailablePermits == 8 }, time.Minute, time.Millisecond)
			assert.Zero(t, l.Statistics().QueuedPermits)
			assert.Greater(t, answered.Load(), int64(calls)/2)
		})
	}
}

// oneCall makes call number i, every fourth of which is a stream, and every fiftieth of which is cancelled.
func oneCall(t *testing.T, api testpb.TestServiceClient, i int64, answered *atomic.Int64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if i%50 == 0 {
		time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, cancel)
	}
	want := fmt.Sprint(i)
	if i%4 != 0 {
		reply, err := api.UnaryCall(ctx, &testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Message: want}})
		if err == nil {
			answered.Add(1)
			assert.Equal(t, want, reply.GetUsername(), "another call's reply")
		}
		return
	}
	stream, err := api.FullDuplexCall(ctx)
	if err != nil {
		return
	}
	_ = stream.Send(&testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte(want)}})
	reply, err := stream.Recv()
	if err != nil {
		return
	}
	answered.Add(1)
	assert.Equal(t, want, string(reply.GetPayload().GetBody()))
	if i%8 == 0 { // the others are abandoned with their context
		_ = stream.CloseSend()
		_, _ = stream.Recv()
	}
}

// Attempts that run at the same time make replies of their own while another writes the caller's, also of a message whose
// type is known only at run time.
func TestClientUnary_HedgeOfDynamicMessages(t *testing.T) {
	var calls atomic.Int32
	second := make(chan struct{})
	reply := dynamicpb.NewMessage((&testpb.SimpleResponse{}).ProtoReflect().Descriptor())
	err := intercept(t, idempotent, hedge.New(&hedge.Options{AtOnce: true}))(t.Context(), unaryMethod, nil, reply, nil,
		func(ctx context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			answer := reply.(proto.Message)
			if calls.Add(1) == 1 {
				for ctx.Err() == nil {
					proto.Reset(answer)
				}
				return ctx.Err()
			}
			defer close(second)
			wire := weir.Must(proto.Marshal(&testpb.SimpleResponse{Username: "ann"}))
			return proto.Unmarshal(wire, answer)
		})
	require.NoError(t, err)
	<-second
	assert.Equal(t, "ann", reply.Get(reply.Descriptor().Fields().ByName("username")).String())
}

// A strategy can return a StatusError of another call, or one that is none.
func TestClientUnary_StatusErrorOfAnotherCall(t *testing.T) {
	other, ok := errors.AsType[*StatusError](callOnce(t, nil, emptyMethod, failing(status.Error(codes.NotFound, "kept"))))
	require.True(t, ok)
	for failure, code := range map[*StatusError]codes.Code{other: codes.NotFound, new(StatusError): codes.Unknown} {
		for _, asResult := range []bool{false, true} {
			returning := pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) {
				if asResult {
					return failure, nil
				}
				return nil, failure
			})
			err := intercept(t, nil, returning)(t.Context(), unaryMethod, nil, &testpb.Empty{}, nil, failing(nil))
			require.Error(t, err)
			assert.Equal(t, code, status.Code(err))
			assert.NotEmpty(t, err.Error())
		}
	}
}

// A function of the program that panics or leaves its goroutine costs no permit and blocks no later call. On the
// goroutine of the caller the panic is the caller's; the pipeline of an open stream logs it.
func TestClient_FunctionsOfTheProgramThatDoNotReturn(t *testing.T) {
	for how, leave := range map[string]func(){"panic": func() { panic("function") }, "goexit": runtime.Goexit} {
		armed := false
		once := func() {
			if armed {
				armed = false
				leave()
			}
		}
		for name, o := range map[string]*ClientOptions{
			"Failed":   {Failed: func(codes.Code) bool { once(); return true }},
			"OnFinish": {},
		} {
			for kind, strategy := range map[string]pipeline.Strategy{
				"retry": retrying(retry.Options{MaxRetries: 1}), "hedge": hedge.New(&hedge.Options{Delay: -1}),
			} {
				t.Run(how+"/"+name+"/"+kind, func(t *testing.T) {
					l, back := returning(t, 1)
					client := weir.Must(NewClient(weir.Must(pipeline.New("api", strategy, ratelimit.New(l, nil))), o))
					var u unavailable
					conn := overBufconn(t, u.service(), nil, grpc.WithUnaryInterceptor(client.UnaryInterceptor()))
					api := testpb.NewTestServiceClient(conn)
					var options []grpc.CallOption
					if name == "OnFinish" {
						options = append(options, grpc.OnFinish(func(error) { once() }))
					}
					armed = true
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { _ = recover() }()
						_, _ = api.UnaryCall(context.Background(), &testpb.SimpleRequest{}, options...)
						t.Error("it returned")
					}()
					<-done
					assert.False(t, armed)
					back()
					_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{}, options...)
					assert.Equal(t, codes.Unavailable, status.Code(err))
					back()
				})
			}
		}
	}
}
