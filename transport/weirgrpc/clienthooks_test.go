package weirgrpc_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
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
			"Failed":   {Failed: func(codes.Code) bool { once(); return true }},
			"OnFinish": {},
		} {
			for kind, strategy := range map[string]pipeline.Strategy{
				"retry": retrying(retry.Options{MaxRetries: 1}), "hedge": hedge.New(&hedge.Options{Delay: -1}),
			} {
				t.Run(how+"/"+name+"/"+kind, func(t *testing.T) {
					l, back := slots(t, 1)
					client := weir.Must(weirgrpc.NewClient(weir.Must(pipeline.New("api", strategy, ratelimit.New(l, nil))), o))
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
			"Failed": {Failed: func(codes.Code) bool { once(); return true }},
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
