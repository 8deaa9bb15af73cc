package weirgrpc_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/transport/weirgrpc"
)

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
		for name, o := range map[string]*weirgrpc.ClientOptions{
			"Idempotent": {Idempotent: func(string) bool { once(); return true }},
			"Failed":     {Failed: func(codes.Code) bool { once(); return true }},
			"Listener": {IdempotentMethods: []string{"*"}, Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
				if e.Name == weirgrpc.EventServiceConfigRetry {
					once()
				}
			})},
			"OnFinish": {},
		} {
			for kind, strategy := range map[string]pipeline.Strategy{
				"retry": retrying(retry.Options{MaxRetries: 1}), "hedge": hedge.New(&hedge.Options{Delay: -1}),
			} {
				t.Run(how+"/"+name+"/"+kind, func(t *testing.T) {
					l, back := slots(t, 1)
					client := weir.Must(weirgrpc.NewClient(weir.Must(pipeline.New("api", strategy, ratelimit.New(l, nil))), o))
					var u unavailable
					conn := overBufconn(t, u.service(), nil, grpc.WithDefaultServiceConfig(serviceConfig), grpc.WithUnaryInterceptor(client.UnaryInterceptor()))
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

func TestClientStream_FunctionsOfTheProgramThatDoNotReturn(t *testing.T) {
	for how, leave := range map[string]func(){"panic": func() { panic("logged, for an open stream") }, "goexit": runtime.Goexit} {
		armed := make(chan struct{}, 1)
		once := func() {
			select {
			case <-armed:
				leave()
			default:
			}
		}
		for name, o := range map[string]*weirgrpc.ClientOptions{
			"Idempotent": {Idempotent: func(string) bool { once(); return true }},
			"Failed":     {Failed: func(codes.Code) bool { once(); return true }},
		} {
			t.Run(how+"/"+name, func(t *testing.T) {
				l, back := slots(t, 1)
				api := guarded(t, overBufconn, &service{duplex: func(grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
					return status.Error(codes.Unavailable, "")
				}}, o, ratelimit.New(l, nil))
				armed <- struct{}{}
				done := make(chan struct{})
				go func() { // RecvMsg or the pipeline, whichever asks first
					defer close(done)
					defer func() { _ = recover() }()
					stream, err := api.FullDuplexCall(context.Background())
					if err == nil {
						_, _ = stream.Recv()
					}
				}()
				<-done
				back()
				assert.Empty(t, armed)
			})
		}
	}
}

func TestMiddlewareLimiter_FunctionsOfTheProgramThatDoNotReturn(t *testing.T) {
	for _, leave := range []func(){func() { panic("function") }, runtime.Goexit} {
		l, back := slots(t, 1)
		limit := weir.Must(weirgrpc.NewMiddlewareLimiter(l, &weirgrpc.MiddlewareLimiterOptions{Permits: func(context.Context) int { leave(); return 1 }}))
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_ = limit.Limit(context.Background())
			t.Error("it returned")
		}()
		<-done
		back()
	}
}

// A limiter of the program that grants permits and returns an error gets them back.
func TestMiddlewareLimiter_GrantAndError(t *testing.T) {
	released := 0
	limit := weir.Must(weirgrpc.NewMiddlewareLimiter(both{func() { released++ }}, nil))
	require.ErrorIs(t, limit.Limit(t.Context()), limiter.ErrClosed)
	assert.Equal(t, 1, released)
}

type both struct{ release func() }

func (b both) TryAcquire(_ context.Context, n int) (limiter.Lease, error) {
	return custom.Granted(n, b.release), limiter.ErrClosed
}

func (b both) Acquire(ctx context.Context, n int) (limiter.Lease, error) { return b.TryAcquire(ctx, n) }

// The options are asked while only the call that asks is held up.
func TestClient_IdempotentThatBlocks(t *testing.T) {
	blocked, goOn := make(chan struct{}), make(chan struct{})
	first := true
	invoke := intercept(t, &weirgrpc.ClientOptions{Idempotent: func(string) bool {
		if first {
			first = false
			close(blocked)
			<-goOn
		}
		return false
	}})
	lost := failing(status.Error(codes.Unavailable, ""))
	done := make(chan error)
	go func() { done <- invoke(context.Background(), unaryMethod, nil, &testpb.Empty{}, nil, lost) }()
	<-blocked
	assert.Equal(t, codes.Unavailable, status.Code(invoke(t.Context(), unaryMethod, nil, &testpb.Empty{}, nil, lost)))
	close(goOn)
	assert.Equal(t, codes.Unavailable, status.Code(<-done))
}
