package weirgrpc

import (
	"context"
	"errors"
	"io"
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

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// scriptedStream is a stream without a connection. It receives as many messages as it has, and then io.EOF.
type scriptedStream struct {
	grpc.ServerStream
	ctx      context.Context
	messages int

	mu      sync.Mutex
	sent    int
	trailer metadata.MD
}

func (s *scriptedStream) Context() context.Context { return s.ctx }

func (s *scriptedStream) RecvMsg(any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.messages == 0 {
		return io.EOF
	}
	s.messages--
	return nil
}

func (s *scriptedStream) SendMsg(any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	return nil
}

func (s *scriptedStream) SetTrailer(md metadata.MD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
}

// runStream calls a streaming method without a connection.
func runStream(ctx context.Context, l *Limits, messages int, h func(s grpc.ServerStream) error) (*scriptedStream, error) {
	s := &scriptedStream{ctx: ctx, messages: messages}
	err := l.StreamInterceptor()("server", s, &grpc.StreamServerInfo{FullMethod: duplexMethod}, func(srv any, stream grpc.ServerStream) error {
		if srv != "server" {
			return errors.New("another server")
		}
		return h(stream)
	})
	return s, err
}

func TestLimits_StreamHold(t *testing.T) {
	l := slots(t, 1, 0)
	limits := oneMethod(t, Policy{Limit: Of(l)})
	_, err := runStream(t.Context(), limits, 2, func(s grpc.ServerStream) error {
		assert.Equal(t, 0, free(l))
		_, ok := LeaseFrom(s.Context())
		assert.True(t, ok)
		_, err := runStream(t.Context(), limits, 1, func(grpc.ServerStream) error { return nil })
		assert.Equal(t, codes.Unavailable, status.Code(err), "the first stream has the permit")
		return s.RecvMsg(nil)
	})
	require.NoError(t, err)
	assert.Equal(t, 1, free(l))
}

func TestLimits_StreamAdmit(t *testing.T) {
	l, held := slots(t, 1, 0), slots(t, 1, 0)
	limits := weir.Must(NewLimits(&LimitsOptions{
		Policies: map[string]Policy{"admit": {Limit: Of(l), Streams: StreamAdmit}, "hold": {Limit: Of(held)}},
		Methods:  map[string][]string{"*": {"admit", "hold"}},
	}))
	_, err := runStream(t.Context(), limits, 0, func(s grpc.ServerStream) error {
		assert.Equal(t, 1, free(l))
		assert.Equal(t, 0, free(held))
		_, err := runStream(t.Context(), limits, 0, func(grpc.ServerStream) error { return nil })
		assert.Equal(t, codes.Unavailable, status.Code(err))
		assert.Equal(t, 1, free(l), "given back because the stream was not admitted")
		return nil
	})
	require.NoError(t, err)
	_, _, err = callUnary(t.Context(), limits, unaryMethod, func(context.Context, any) (any, error) {
		assert.Equal(t, 0, free(l), "a unary call holds the permit")
		return nil, nil
	})
	require.NoError(t, err)
}

func TestLimits_StreamReceived(t *testing.T) {
	b := tokens(t, 5)
	limits := oneMethod(t, Policy{Limit: Of(b), Streams: StreamReceived, Metered: true, Cost: func(r *Request) int {
		assert.True(t, r.Stream)
		return *r.Message.(*int)
	}})
	cost := 2
	s, err := runStream(t.Context(), limits, 10, func(s grpc.ServerStream) error {
		assert.Equal(t, 5, free(b), "the beginning of the stream costs nothing")
		require.NoError(t, s.RecvMsg(&cost))
		require.NoError(t, s.SendMsg(&cost))
		assert.Equal(t, 3, free(b))
		charged, err := Charge(s.Context(), -1)
		require.NoError(t, err)
		assert.Equal(t, -1, charged)
		require.NoError(t, s.RecvMsg(&cost))
		require.NoError(t, s.RecvMsg(&cost))
		assert.Equal(t, 0, free(b))
		err = s.RecvMsg(&cost)
		require.ErrorIs(t, err, pipeline.ErrRejected)
		require.ErrorIs(t, context.Cause(s.Context()), err)
		assert.Equal(t, err, s.RecvMsg(&cost), "the stream is over")
		assert.Equal(t, err, s.SendMsg(&cost))
		return nil // the handler hides the rejection
	})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Len(t, s.trailer[pushbackTrailer], 1)
	assert.Equal(t, 1, s.sent)
}

func TestLimits_StreamSent(t *testing.T) {
	first, second := yes(), slots(t, 1, 0)
	limits := weir.Must(NewLimits(&LimitsOptions{
		Policies: map[string]Policy{"first": {Limit: Of(first), Streams: StreamSent}, "second": {Limit: Of(second), Streams: StreamSent}},
		Methods:  map[string][]string{"*": {"first", "second"}},
	}))
	s, err := runStream(t.Context(), limits, 3, func(s grpc.ServerStream) error {
		for range 3 {
			require.NoError(t, s.RecvMsg(nil))
			require.NoError(t, s.SendMsg(nil))
		}
		first.check(t, 3, 3, 0)
		weir.Must(second.TryAcquire(t.Context(), 1))
		return s.SendMsg(nil)
	})
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Empty(t, s.trailer)
	assert.Equal(t, 3, s.sent)
	first.check(t, 4, 3, 1)
}

// A message that waits for permits holds back the stream, for at most MaxWait, and not longer than the stream lasts.
func TestLimits_StreamWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1, 10)
		limits := oneMethod(t, Policy{Limit: Of(l), Streams: StreamReceived, MaxWait: time.Minute})
		held := weir.Must(l.TryAcquire(t.Context(), 1))
		time.AfterFunc(time.Second, held.Release)
		began := time.Now()
		_, err := runStream(t.Context(), limits, 1, func(s grpc.ServerStream) error { return s.RecvMsg(nil) })
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(began))

		held = weir.Must(l.TryAcquire(t.Context(), 1))
		defer held.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = runStream(ctx, limits, 1, func(s grpc.ServerStream) error { return s.RecvMsg(nil) })
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		_, err = runStream(t.Context(), limits, 1, func(s grpc.ServerStream) error { return s.RecvMsg(nil) })
		assert.Equal(t, codes.Unavailable, status.Code(err))
		assert.Equal(t, time.Minute+2*time.Second, time.Since(began))
	})
}

func TestLimits_StreamTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := oneMethod(t, Policy{Limit: Of(slots(t, 1, 0)), Timeout: time.Second})
		_, err := runStream(t.Context(), limits, 9, func(s grpc.ServerStream) error {
			for {
				if err := s.RecvMsg(nil); err != nil {
					return err
				}
				time.Sleep(400 * time.Millisecond)
			}
		})
		late, ok := errors.AsType[*timeout.Error](err)
		require.True(t, ok)
		assert.Equal(t, "p", late.Source.Strategy)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	})
}

// A message that waits when the stream ends does not decide how it ends.
func TestLimits_StreamEndsWhileAMessageWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1, 10)
		held := weir.Must(l.TryAcquire(t.Context(), 1))
		defer held.Release()
		ctx, cancel := context.WithCancel(t.Context())
		limits := oneMethod(t, Policy{Limit: Of(l), Streams: StreamReceived})
		_, err := runStream(ctx, limits, 1, func(s grpc.ServerStream) error {
			received := make(chan error)
			go func() { received <- s.RecvMsg(nil) }()
			synctest.Wait() // it waits for a permit
			cancel()
			err := <-received
			assert.Equal(t, codes.Canceled, status.Code(err))
			require.ErrorIs(t, err, context.Canceled)
			return nil
		})
		require.NoError(t, err)

		limits = oneMethod(t, Policy{Limit: Of(l), Streams: StreamReceived, Timeout: time.Second})
		_, err = runStream(t.Context(), limits, 1, func(s grpc.ServerStream) error { return s.RecvMsg(nil) })
		_, ok := err.(timedOut) // it is the outer error that counts
		assert.True(t, ok, "%T", err)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	})
}

// One goroutine receives while another one sends. Each refused message ends the stream once.
func TestLimits_StreamMessagesConcurrentSafe(t *testing.T) {
	for range 20 {
		b := tokens(t, 100)
		limits := oneMethod(t, Policy{Limit: Of(b), Streams: StreamMessages, Metered: true, Headers: Draft11})
		s, err := runStream(t.Context(), limits, 1000, func(s grpc.ServerStream) error {
			var sender sync.WaitGroup
			sender.Go(func() {
				for s.SendMsg(nil) == nil {
					_, _ = Charge(s.Context(), 1)
				}
			})
			for s.RecvMsg(nil) == nil {
				_, _ = LeaseFrom(s.Context())
			}
			sender.Wait()
			return nil
		})
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Len(t, s.trailer[pushbackTrailer], 1, "grpc-go does not retry if there are two")
		assert.Zero(t, free(b))
	}
}

// A panic in a callback for a message gives back what the stream holds.
func TestLimits_StreamPanics(t *testing.T) {
	l := slots(t, 5, 0)
	limits := weir.Must(NewLimits(&LimitsOptions{
		Global: Policy{Limit: Of(l)},
		Policies: map[string]Policy{
			"first":  {Limit: Of(l), Streams: StreamReceived},
			"second": {Limit: Of(l), Streams: StreamReceived, Cost: func(*Request) int { panic("cost") }},
		},
		Methods: map[string][]string{"*": {"first", "second"}},
	}))
	assert.PanicsWithValue(t, "cost", func() {
		_, _ = runStream(t.Context(), limits, 1, func(s grpc.ServerStream) error { return s.RecvMsg(nil) })
	})
	assert.Equal(t, 5, free(l))
}

// rejectsOnce rejects the first caller, and grants everything afterwards.
type rejectsOnce struct{ asked atomic.Int32 }

func (l *rejectsOnce) TryAcquire(context.Context, int) (limiter.Lease, error) {
	if l.asked.Add(1) == 1 {
		return custom.Rejected(time.Millisecond, ""), nil
	}
	return custom.Granted(1, func() {}), nil
}

func (l *rejectsOnce) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return l.TryAcquire(ctx, n)
}

// In every mode a rejection before the first answer is of trailers only, and the retry of grpc-go itself sends the stream
// again.
func TestLimits_RetryOfStreams(t *testing.T) {
	for mode := StreamHold; mode <= StreamMessages; mode++ {
		call := func(t *testing.T, w wire, dial ...grpc.DialOption) (testpb.TestService_FullDuplexCallClient, error) {
			limits := oneMethod(t, Policy{Limit: Of(new(rejectsOnce)), Streams: mode, Quota: 10, Headers: Draft11})
			stream, err := limited(t, w, limits, new(service), dial...).FullDuplexCall(t.Context())
			require.NoError(t, err)
			_ = stream.Send(&testpb.StreamingOutputCallRequest{}) // io.EOF if the rejection is here already
			_, err = stream.Recv()
			return stream, err
		}
		t.Run(mode.String()+"/with", func(t *testing.T) {
			eachWire(t, func(t *testing.T, w wire) {
				stream, err := call(t, w, grpcRetry)
				require.NoError(t, err)
				require.NoError(t, stream.CloseSend())
				_, err = stream.Recv()
				require.Equal(t, io.EOF, err)
			})
		})
		t.Run(mode.String()+"/without", func(t *testing.T) {
			eachWire(t, func(t *testing.T, w wire) {
				stream, err := call(t, w)
				require.Equal(t, codes.ResourceExhausted, status.Code(err))
				header, err := stream.Header()
				require.Nil(t, header, err)
				require.Len(t, stream.Trailer()[pushbackTrailer], 1)
			})
		})
	}
}
