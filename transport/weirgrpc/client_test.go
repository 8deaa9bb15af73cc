package weirgrpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
)

// retrying returns a retry without a backoff of its own.
func retrying(o retry.Options) *retry.Strategy {
	if o.Delay == 0 {
		o.Delay = -1
	}
	return retry.New(&o)
}

// answering answers the calls with the errors in turn, and then with success. calls counts the calls.
func answering(calls *atomic.Int32, errs ...error) *service {
	return &service{unary: func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		if n := int(calls.Add(1)); n <= len(errs) && errs[n-1] != nil {
			return nil, errs[n-1]
		}
		return &testpb.SimpleResponse{Username: fmt.Sprint("answer ", calls.Load())}, nil
	}}
}

func TestNewClient_InvalidOptions(t *testing.T) {
	_, err := NewClient(nil, &ClientOptions{
		Pipelines:         map[string]*pipeline.Pipeline{"/a.B/C": nil, "a.B/C": nil, "/a.B/": nil, "/a.B": nil, "": nil},
		IdempotentMethods: []string{"/a.B/*", "*", "/*/C", "/a.B/C/D"},
	})
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	const form = ` must have the form "/package.Service/Method", "/package.Service/*" or "*"`
	assert.EqualError(t, err, `weirgrpc: Pipelines[]`+form+`; Pipelines[/a.B]`+form+`; Pipelines[/a.B/]`+form+`; Pipelines[a.B/C]`+form+
		`; IdempotentMethods[2]`+form+`, got "/*/C"; IdempotentMethods[3]`+form+`, got "/a.B/C/D"`)
}

// The pipeline of a method is that of the most specific pattern.
func TestClientOptions_Pipelines(t *testing.T) {
	named := func(name string) *pipeline.Pipeline {
		return weir.Must(pipeline.New(name, pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) {
			return nil, errors.New(name)
		})))
	}
	pipelines := map[string]*pipeline.Pipeline{
		"/a.B/Exact": named("exact"), "/a.B/None": nil, "/a.B/*": named("service"), "*": named("all"),
	}
	for _, c := range []struct{ method, want string }{
		{"/a.B/Exact", "exact"},
		{"/a.B/Other", "service"},
		{"/a.Bc/Other", "all"},
		{"strange", "all"},
		{"/a.B/None", "sent"},
	} {
		client := weir.Must(NewClient(named("default"), &ClientOptions{Pipelines: pipelines}))
		err := client.UnaryInterceptor()(t.Context(), c.method, nil, new(int), nil, failing(errors.New("sent")))
		assert.ErrorContains(t, err, c.want, c.method)
	}
	delete(pipelines, "*")
	client := weir.Must(NewClient(named("default"), &ClientOptions{Pipelines: pipelines}))
	err := client.UnaryInterceptor()(t.Context(), "/c.D/E", nil, new(int), nil, failing(nil))
	assert.ErrorContains(t, err, "default")
}

// failing returns an invoker that fails with err.
func failing(err error) grpc.UnaryInvoker {
	return func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err }
}

// Which failures are retried, for methods that are idempotent and for others.
func TestClient_RetriesWhatIsSafe(t *testing.T) {
	for _, c := range []struct {
		name       string
		err        error
		pushback   []string
		other      bool // it is also retried if the method is not idempotent
		idempotent bool
	}{
		{"unavailable", status.Error(codes.Unavailable, ""), nil, false, true},
		{"unavailable, with RetryInfo", rejection(codes.Unavailable, 0), nil, true, true},
		{"unavailable, with a pushback", status.Error(codes.Unavailable, ""), []string{"0"}, true, true},
		{"deadline exceeded", status.Error(codes.DeadlineExceeded, ""), nil, false, true},
		{"deadline exceeded, with RetryInfo", rejection(codes.DeadlineExceeded, 0), nil, false, true},
		{"resource exhausted", status.Error(codes.ResourceExhausted, ""), nil, false, false},
		{"resource exhausted, with RetryInfo", rejection(codes.ResourceExhausted, 0), nil, true, true},
		{"resource exhausted, with a pushback", status.Error(codes.ResourceExhausted, ""), []string{"1"}, true, true},
		{"the pushback wins", rejection(codes.ResourceExhausted, 0), []string{"-1"}, false, false},
		{"a negative pushback", status.Error(codes.Unavailable, ""), []string{"-1"}, false, false},
		{"an invalid pushback", status.Error(codes.Unavailable, ""), []string{"soon"}, false, false},
		{"an empty pushback", status.Error(codes.Unavailable, ""), []string{""}, false, false},
		{"two pushbacks", status.Error(codes.Unavailable, ""), []string{"1", "1"}, false, false},
		{"internal, with RetryInfo", rejection(codes.Internal, 0), nil, false, false},
		{"aborted", status.Error(codes.Aborted, ""), nil, false, false},
		{"not found", status.Error(codes.NotFound, ""), nil, false, false},
		{"no status", errors.New("boom"), nil, false, false},
		{"success", nil, nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for o, want := range map[*ClientOptions]bool{nil: c.other, idempotent: c.idempotent} {
				var calls atomic.Int32
				api := guarded(t, overBufconn, &service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
					if calls.Add(1) > 1 {
						return &testpb.SimpleResponse{}, nil
					}
					pushBack(ctx, c.pushback...)
					return &testpb.SimpleResponse{}, c.err
				}}, o, retrying(retry.Options{}))
				_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
				if want {
					require.NoError(t, err)
					assert.EqualValues(t, 2, calls.Load())
				} else {
					assert.Equal(t, status.Code(c.err), status.Code(err))
					assert.EqualValues(t, 1, calls.Load())
				}
			}
		})
	}
}

// Whatever a strategy does, a call that must not be sent again is not.
func TestClient_GuardsAgainstStrategies(t *testing.T) {
	var calls atomic.Int32
	always := retry.New(&retry.Options{Delay: -1, Handle: func(any, error) bool { return true }})
	for _, err := range []error{status.Error(codes.Unavailable, "gone"), status.Error(codes.NotFound, "none"), nil} {
		calls.Store(0)
		api := guarded(t, overBufconn, answering(&calls, err), nil, always)
		reply, got := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
		assert.EqualValues(t, 1, calls.Load())
		assert.Equal(t, status.Code(err), status.Code(got), "the outcome of the only attempt")
		if err == nil {
			assert.Equal(t, "answer 1", reply.GetUsername())
		}
	}
}

func TestClient_IdempotencyLevelOfTheProto(t *testing.T) {
	// No method of the service has the option, but a method of the reflection of the descriptors has none either: the
	// test registers a file of its own.
	registerLevels(t)
	for method, want := range map[string]bool{"/weir.test.Levels/Read": true, "/weir.test.Levels/Put": true, "/weir.test.Levels/Add": false, "/weir.test.Levels/None": false, "": false} {
		err := callOnce(t, nil, method, failing(status.Error(codes.Unavailable, "")))
		failure, ok := errors.AsType[*StatusError](err)
		require.True(t, ok)
		assert.Equal(t, want, failure.Retryable(), method)
	}
}

// callOnce makes a call of the method through an empty pipeline, without a connection.
func callOnce(t *testing.T, o *ClientOptions, method string, invoker grpc.UnaryInvoker) error {
	t.Helper()
	return intercept(t, o)(t.Context(), method, &testpb.Empty{}, &testpb.Empty{}, nil, invoker)
}

// A call that found no connection was not sent, and is repeated although the method is not idempotent.
func TestClient_RetriesWhatWasNotSent(t *testing.T) {
	target, stop := serve(&service{})
	stop()
	retries := 0
	client := weir.Must(NewClient(weir.Must(pipeline.New("api", retrying(retry.Options{
		MaxRetries: 2, OnRetry: func(context.Context, pipeline.Event) { retries++ },
	}))), nil))
	conn := weir.Must(grpc.NewClient(target, append(client.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...))
	defer conn.Close()
	api := testpb.NewTestServiceClient(conn)
	_, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Equal(t, 2, retries)

	_, err = api.FullDuplexCall(t.Context())
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Equal(t, 4, retries)

	// An interceptor that drops the options hides whether the call was sent.
	err = callOnce(t, nil, unaryMethod, failing(status.Error(codes.Unavailable, "")))
	failure, ok := errors.AsType[*StatusError](err)
	require.True(t, ok)
	assert.False(t, failure.Retryable())
}

func TestClient_CodesThatHaveNoName(t *testing.T) {
	err := callOnce(t, nil, unaryMethod, failing(status.Error(codes.Code(99), "")))
	failure, ok := errors.AsType[*StatusError](err)
	require.True(t, ok)
	assert.Equal(t, "_OTHER", failure.ErrorType())
	assert.Equal(t, codes.Code(99), status.Code(err))
}

// A circuit breaker counts failures, and no statuses that say nothing about the server.
func TestClientOptions_Failed(t *testing.T) {
	for code, failed := range map[codes.Code]bool{codes.NotFound: false, codes.InvalidArgument: false, codes.Unavailable: true, codes.Internal: true} {
		for _, o := range []*ClientOptions{nil, {Failed: func(code codes.Code) bool { return code == codes.NotFound }}} {
			breaker := circuitbreaker.New(&circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 1})
			invoke := intercept(t, o, breaker)
			err := invoke(t.Context(), unaryMethod, nil, &testpb.Empty{}, nil, failing(status.Error(code, "")))
			assert.Equal(t, code, status.Code(err))
			want := failed
			if o != nil {
				want = code == codes.NotFound
			}
			assert.Equal(t, want, breaker.State() == circuitbreaker.Open, code)
		}
	}
}

// Every error of a strategy has a status and keeps its type.
func TestClient_ErrorsOfStrategies(t *testing.T) {
	none := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	held := weir.Must(none.TryAcquire(t.Context(), 1))
	defer held.Release()
	breaker := circuitbreaker.New(nil)
	breaker.Control().Isolate()
	closed := weir.Must(pipeline.New("closed"))
	require.NoError(t, closed.Close())
	boom := errors.New("boom")
	returning := func(value any, err error) pipeline.Strategy {
		return pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) { return value, err })
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithTimeout(t.Context(), -1)
	defer stop()
	for _, c := range []struct {
		name     string
		ctx      context.Context
		strategy pipeline.Strategy
		code     codes.Code
		is       error
	}{
		{"rejected", t.Context(), ratelimit.New(none, nil), codes.ResourceExhausted, pipeline.ErrRejected},
		{"open circuit", t.Context(), breaker, codes.Unavailable, pipeline.ErrRejected},
		{"closed", t.Context(), pipeline.Embed(closed), codes.Unavailable, pipeline.ErrClosed},
		{"of the program", t.Context(), returning(nil, boom), codes.Unknown, boom},
		{"wrapped status", t.Context(), returning(nil, fmt.Errorf("no: %w", status.Error(codes.DataLoss, "lost"))), codes.DataLoss, nil},
		{"nothing", t.Context(), returning(nil, nil), codes.Internal, nil},
		{"nil reply", t.Context(), returning((*testpb.Empty)(nil), nil), codes.Internal, nil},
		{"wrong reply", t.Context(), returning(7, nil), codes.Internal, nil},
		{"another reply", t.Context(), returning(&testpb.SimpleResponse{}, nil), codes.Internal, nil},
		{"cancelled", ended, returning(nil, nil), codes.Canceled, context.Canceled},
		{"late", late, returning(nil, nil), codes.DeadlineExceeded, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := intercept(t, nil, c.strategy)(c.ctx, unaryMethod, nil, &testpb.Empty{}, nil, failing(nil))
			require.Error(t, err)
			s, ok := status.FromError(err)
			assert.True(t, ok)
			assert.Equal(t, c.code, s.Code())
			assert.Contains(t, err.Error(), s.Message())
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}

func TestClient_CallerSeesTheAttemptThatDecided(t *testing.T) {
	var calls atomic.Int32
	s := &service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		n := calls.Add(1)
		_ = grpc.SetHeader(ctx, metadata.Pairs("number", fmt.Sprint(n)))
		_ = grpc.SetTrailer(ctx, metadata.Pairs("number", fmt.Sprint(n)))
		if n != 2 {
			return nil, status.Error(codes.Unavailable, "")
		}
		return &testpb.SimpleResponse{Username: "second"}, nil
	}}
	api := guarded(t, overBufconn, s, idempotent, retrying(retry.Options{MaxRetries: 1}))
	var header, trailer metadata.MD
	var server peer.Peer
	var finished []error
	options := []grpc.CallOption{
		grpc.Header(&header), grpc.WaitForReady(true), grpc.Trailer(&trailer), grpc.Peer(&server),
		grpc.OnFinish(func(err error) { finished = append(finished, err) }),
	}
	reply, err := api.UnaryCall(t.Context(), &testpb.SimpleRequest{}, options...)
	require.NoError(t, err)
	assert.Equal(t, "second", reply.GetUsername())
	assert.Equal(t, []string{"2"}, header["number"])
	assert.Equal(t, []string{"2"}, trailer["number"])
	assert.NotNil(t, server.Addr)
	assert.Equal(t, []error{nil}, finished)

	_, err = api.UnaryCall(t.Context(), &testpb.SimpleRequest{}, options...)
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Equal(t, []string{"4"}, trailer["number"])
	assert.Equal(t, []error{nil, err}, finished)
	assert.IsType(t, grpc.HeaderCallOption{}, options[0], "the caller's options are unchanged")
}

// The caller gets the server's status as it is, whatever the strategies add to the error.
func TestClient_StatusOfServerUnchanged(t *testing.T) {
	sent := rejection(codes.ResourceExhausted, time.Hour)
	for name, s := range map[string]pipeline.Strategy{
		"a retry that does not wait as long": retry.New(&retry.Options{MaxRetryAfter: time.Minute}),
		"a strategy of the program": pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			value, err := next.Run(ctx)
			return value, fmt.Errorf("orders: %w", err)
		}),
	} {
		api := guarded(t, overBufconn, &service{
			unary: func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { return nil, sent },
			output: func(*testpb.StreamingOutputCallRequest, grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
				return sent
			},
		}, nil, s)
		_, unary := api.UnaryCall(t.Context(), &testpb.SimpleRequest{})
		stream, err := api.StreamingOutputCall(t.Context(), &testpb.StreamingOutputCallRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		for _, err := range []error{unary, err} {
			assert.Equal(t, status.Convert(sent).Proto().String(), status.Convert(err).Proto().String(), name)
			require.ErrorIs(t, err, sent, "as without the Client")
			failure, ok := errors.AsType[*StatusError](err)
			require.True(t, ok)
			assert.Equal(t, "RESOURCE_EXHAUSTED", failure.ErrorType())
			after, ok := pipeline.RetryAfter(err)
			assert.True(t, ok)
			assert.Equal(t, time.Hour, after)
		}
	}
}

// registerLevels registers a service whose methods have all idempotency levels, as generated code does. A file can be
// registered once only, also if the test runs again.
func registerLevels(t *testing.T) {
	t.Helper()
	registering.Do(func() {
		method := func(name string, level descriptorpb.MethodOptions_IdempotencyLevel) *descriptorpb.MethodDescriptorProto {
			return &descriptorpb.MethodDescriptorProto{
				Name: &name, InputType: new(".weir.test.Nothing"), OutputType: new(".weir.test.Nothing"),
				Options: &descriptorpb.MethodOptions{IdempotencyLevel: &level},
			}
		}
		file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
			Name: new("weir/test/levels.proto"), Package: new("weir.test"), Syntax: new("proto3"),
			MessageType: []*descriptorpb.DescriptorProto{{Name: new("Nothing")}},
			Service: []*descriptorpb.ServiceDescriptorProto{{Name: new("Levels"), Method: []*descriptorpb.MethodDescriptorProto{
				method("Read", descriptorpb.MethodOptions_NO_SIDE_EFFECTS),
				method("Put", descriptorpb.MethodOptions_IDEMPOTENT),
				method("Add", descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN),
			}}},
		}, protoregistry.GlobalFiles)
		require.NoError(t, err)
		require.NoError(t, protoregistry.GlobalFiles.RegisterFile(file))
	})
}

var registering sync.Once
