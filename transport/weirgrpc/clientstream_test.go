package weirgrpc

import (
	"context"
	"errors"
	"io"
	"runtime"
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

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// returning returns a concurrency limiter, and a function that fails the test unless all permits come back.
func returning(t *testing.T, permits int) (l *limiter.Concurrency, back func()) {
	t.Helper()
	l, err := limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: permits})
	require.NoError(t, err)
	return l, func() {
		t.Helper()
		assert.Eventually(t, func() bool { return l.Statistics().AvailablePermits == int64(permits) }, time.Minute, time.Millisecond)
	}
}

// However a stream ends, its permit is held until then, and comes back once.
func TestClientStream_PermitIsHeldUntilTheEnd(t *testing.T) {
	type stream = grpc.BidiStreamingClient[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]
	for name, w := range wires {
		for end, f := range map[string]func(t *testing.T, s stream, cancel, stop func()){
			"cancelled and abandoned": func(_ *testing.T, _ stream, cancel, _ func()) { cancel() },
			"cancelled": func(t *testing.T, s stream, cancel, _ func()) {
				cancel()
				_, err := s.Recv()
				require.Equal(t, codes.Canceled, status.Code(err))
			},
			"connection closed": func(_ *testing.T, _ stream, _, stop func()) { stop() },
			"message that cannot be sent": func(t *testing.T, s stream, _, _ func()) {
				require.Error(t, s.SendMsg("no message"))
			},
		} {
			t.Run(name+"/"+end, func(t *testing.T) {
				l, back := returning(t, 1)
				s := &service{}
				client := weir.Must(NewClient(weir.Must(pipeline.New("api", ratelimit.New(l, nil))), nil))
				conn := w(t, s, nil, client.DialOptions()...)
				api := testpb.NewTestServiceClient(conn)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stream, err := api.FullDuplexCall(ctx)
				require.NoError(t, err)
				assert.Zero(t, l.Statistics().AvailablePermits)
				_, err = api.FullDuplexCall(ctx)
				require.Equal(t, codes.ResourceExhausted, status.Code(err))
				require.ErrorIs(t, err, pipeline.ErrRejected)
				f(t, stream, cancel, func() { _ = conn.Close() })
				back()
			})
		}
	}
}

// A breaker counts how streams end.
func TestClientStream_CircuitBreaker(t *testing.T) {
	for code, want := range map[codes.Code]circuitbreaker.State{codes.OK: circuitbreaker.Closed, codes.NotFound: circuitbreaker.Closed, codes.Unavailable: circuitbreaker.Open} {
		breaker := circuitbreaker.New(&circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 1})
		api := guarded(t, overBufconn, &service{output: func(*testpb.StreamingOutputCallRequest, grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
			return status.Error(code, "")
		}}, nil, breaker)
		stream, err := api.StreamingOutputCall(t.Context(), &testpb.StreamingOutputCallRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.Error(t, err)
		assert.Eventually(t, func() bool { return breaker.State() == want }, time.Minute, time.Millisecond, code)
	}
}

// The caller gets the wait from the stream's last error.
func TestClientStream_RetryAfter(t *testing.T) {
	var streams, retries atomic.Int32
	api := guarded(t, overTCP, &service{duplex: func(s grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
		streams.Add(1)
		s.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", "70"))
		return status.Error(codes.Unavailable, "too many")
	}}, idempotent, retrying(retry.Options{OnRetry: func(context.Context, pipeline.Event) { retries.Add(1) }}))
	stream, err := api.FullDuplexCall(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.EqualError(t, err, "rpc error: code = Unavailable desc = too many")
	wait, ok := pipeline.RetryAfter(err)
	assert.True(t, ok)
	assert.Equal(t, 70*time.Millisecond, wait)
	retryable, known := pipeline.Retryable(err)
	assert.True(t, retryable && known, "the caller can open the stream again")
	assert.EqualValues(t, 1, streams.Load(), "the pipeline does not")
	assert.Zero(t, retries.Load(), "nor does it wait")
}

// A timeout limits the life of a stream. The caller, who has set no deadline, gets the error of the timeout, as for a unary
// call.
func TestClientStream_Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, back := returning(t, 1)
		open := streaming(t, nil, ratelimit.New(l, nil), timeout.New(time.Second, nil))
		silent := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
			return &silentStream{interceptedStream{ctx: ctx}}, nil
		}
		stream, err := open(t.Context(), bidi, nil, duplexMethod, silent)
		require.NoError(t, err)
		for range 2 {
			err = stream.RecvMsg(nil)
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
			timedOut, ok := errors.AsType[*timeout.Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, "api", timedOut.Source.Pipeline)
		}
		back()

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		stream, err = open(ctx, bidi, nil, duplexMethod, silent)
		require.NoError(t, err)
		err = stream.RecvMsg(nil)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		_, ok := errors.AsType[*timeout.Error](err)
		assert.False(t, ok, "the deadline was the caller's")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		back()
	})
}

// A silentStream ends with its context, and answers nothing before.
type silentStream struct{ interceptedStream }

func (s *silentStream) RecvMsg(any) error {
	<-s.ctx.Done()
	return status.FromContextError(s.ctx.Err()).Err()
}

// opening returns a streamer that fails with the errors in turn, and then returns a stream.
func opening(opened *int, errs ...error) grpc.Streamer {
	return func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, options ...grpc.CallOption) (grpc.ClientStream, error) {
		if *opened++; *opened <= len(errs) {
			err := errs[*opened-1]
			for _, option := range options {
				if o, ok := option.(grpc.OnFinishCallOption); ok {
					o.OnFinish(err)
				}
			}
			return nil, err
		}
		return &interceptedStream{ctx: ctx}, nil
	}
}

// A interceptedStream is the stream of an interceptor: grpc-go does not call OnFinish for it.
type interceptedStream struct {
	grpc.ClientStream
	ctx  context.Context
	recv error
}

func (s *interceptedStream) Header() (metadata.MD, error) { return nil, s.recv }
func (s *interceptedStream) Trailer() metadata.MD         { return nil }
func (s *interceptedStream) SendMsg(any) error            { return s.recv }
func (s *interceptedStream) RecvMsg(any) error            { return s.recv }

var bidi = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// streaming returns the interceptor of streams through the strategies.
func streaming(t *testing.T, o *ClientOptions, strategies ...pipeline.Strategy) grpc.StreamClientInterceptor {
	t.Helper()
	return weir.Must(NewClient(weir.Must(pipeline.New("api", strategies...)), o)).StreamInterceptor()
}

func TestClientStream_OpeningIsRepeated(t *testing.T) {
	lost := status.Error(codes.Unavailable, "no connection")
	open := streaming(t, nil, retrying(retry.Options{MaxRetries: 2}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opened, finished := 0, 0
	stream, err := open(ctx, bidi, nil, duplexMethod, opening(&opened, lost, lost), grpc.OnFinish(func(error) { finished++ }))
	require.NoError(t, err)
	require.NotNil(t, stream)
	assert.Equal(t, 3, opened)
	assert.Zero(t, finished, "the stream has not ended")

	opened = 0
	_, err = open(ctx, bidi, nil, duplexMethod, opening(&opened, lost, lost, lost), grpc.OnFinish(func(error) { finished++ }))
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Equal(t, 3, opened)
	assert.Equal(t, 1, finished)

	opened = 0
	_, err = open(ctx, bidi, nil, duplexMethod, opening(&opened, status.Error(codes.NotFound, "")))
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.Equal(t, 1, opened)
}

// The end of a stream of an interceptor is noticed.
func TestClientStream_EndOfAnInterceptorsStream(t *testing.T) {
	failure := status.Error(codes.Unavailable, "")
	for name, c := range map[string]struct {
		err error
		end func(s grpc.ClientStream) error
	}{
		"RecvMsg": {failure, func(s grpc.ClientStream) error { return s.RecvMsg(nil) }},
		"EOF":     {io.EOF, func(s grpc.ClientStream) error { return s.RecvMsg(nil) }},
		"SendMsg": {failure, func(s grpc.ClientStream) error { return s.SendMsg(nil) }},
		"Header":  {failure, func(s grpc.ClientStream) error { _, err := s.Header(); return err }},
		"the only message": {nil, func(s grpc.ClientStream) error {
			err := s.RecvMsg(nil)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l, back := returning(t, 1)
			desc := &grpc.StreamDesc{ServerStreams: c.err != nil, ClientStreams: true}
			stream, err := streaming(t, nil, ratelimit.New(l, nil))(context.Background(), desc, nil, duplexMethod,
				func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
					return &interceptedStream{ctx: ctx, recv: c.err}, nil
				})
			require.NoError(t, err)
			require.ErrorIs(t, c.end(stream), c.err)
			back()
		})
	}
}

// A hedge does not open a second stream, while the first is being opened or when it is open.
func TestClientStream_Hedge(t *testing.T) {
	var streams atomic.Int32
	s := &service{duplex: func(s grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
		streams.Add(1)
		_, _ = s.Recv()
		return nil
	}}
	api := guarded(t, overBufconn, s, idempotent, hedge.New(&hedge.Options{Delay: time.Millisecond}))
	stream, err := api.FullDuplexCall(t.Context())
	require.NoError(t, err)
	time.Sleep(20 * time.Millisecond) // the hedge begins its second attempt meanwhile, and is refused
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	assert.Equal(t, io.EOF, err)
	assert.EqualValues(t, 1, streams.Load())
}

// A panic of the pipeline before the stream is open is the caller's.
func TestClientStream_Panics(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("strategy") }, "goexit": runtime.Goexit} {
		open := streaming(t, nil, pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) { leave(); return nil, nil }))
		done := make(chan any)
		go func() {
			defer func() { done <- recover() }()
			_, _ = open(context.Background(), bidi, nil, duplexMethod, opening(new(int)))
			t.Error("it returned")
		}()
		want := any("strategy")
		if name == "goexit" {
			want = nil
		}
		assert.Equal(t, want, <-done)
	}

	// Later there is no caller to panic: the stream goes on to its end, and its permit comes back.
	l, back := returning(t, 1)
	late := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		_, _ = next.Run(ctx)
		panic("late, and logged")
	})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := streaming(t, nil, ratelimit.New(l, nil), late)(ctx, bidi, nil, duplexMethod, opening(new(int)))
	require.NoError(t, err)
	cancel()
	back()
}

func TestClientStream_OpeningReturnsNothing(t *testing.T) {
	_, err := streaming(t, nil)(t.Context(), bidi, nil, duplexMethod,
		func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return nil, nil
		})
	assert.Error(t, err)
	_, err = streaming(t, nil, pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) { return nil, nil }))(
		t.Context(), bidi, nil, duplexMethod, opening(new(int)))
	assert.Equal(t, codes.Internal, status.Code(err))
}

// A caller that has got the end of a stream finds its permit free, and its function for the end called.
func TestClientStream_PermitIsBackAtTheEnd(t *testing.T) {
	for name, end := range map[string]struct {
		answer error
		want   codes.Code
	}{
		"EOF":    {nil, codes.OK},
		"status": {status.Error(codes.Unavailable, ""), codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := returning(t, 1)
			s := &service{duplex: func(grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
				return end.answer
			}}
			api := guarded(t, overBufconn, s, nil, ratelimit.New(l, nil))
			for range 200 {
				finished := false
				stream, err := api.FullDuplexCall(t.Context(), grpc.OnFinish(func(error) { finished = true }))
				require.NoError(t, err)
				_, err = stream.Recv()
				if errors.Is(err, io.EOF) {
					err = nil
				}
				require.Equal(t, end.want, status.Code(err))
				require.True(t, finished)
				require.EqualValues(t, 1, l.Statistics().AvailablePermits)
			}
		})
	}
}

// A stream that opens when the caller has its answer already is ended.
func TestClientStream_OpensLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		abandon := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			go func() { _, _ = next.Run(ctx) }()
			synctest.Wait() // it is being opened
			return nil, pipeline.ErrRejected
		})
		var opened context.Context
		_, err := streaming(t, nil, abandon)(t.Context(), bidi, nil, duplexMethod,
			func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
				time.Sleep(time.Second)
				opened = ctx
				return &interceptedStream{ctx: ctx}, nil
			})
		assert.ErrorIs(t, err, pipeline.ErrRejected)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.ErrorIs(t, opened.Err(), context.Canceled)
	})
}
