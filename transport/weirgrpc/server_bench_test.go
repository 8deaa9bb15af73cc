package weirgrpc

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weir-go/weir/transport/internal/admission"
)

func keyedLimits(t testing.TB, tokens int, change ...func(*LimitsOptions)) *Limits {
	return oneMethod(t, Policy{Limit: ByKey(keyedTokens(t, tokens), Metadata("x-api-key"))}, change...)
}

func keyedContext() context.Context {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-api-key", "alice", ":authority", "localhost"))
	return grpc.NewContextWithServerTransportStream(ctx, deafStream{})
}

// deafStream forgets what it is told.
type deafStream struct{}

func (deafStream) Method() string               { return unaryMethod }
func (deafStream) SetHeader(metadata.MD) error  { return nil }
func (deafStream) SendHeader(metadata.MD) error { return nil }
func (deafStream) SetTrailer(metadata.MD) error { return nil }

var message any = "message"

func benchmarkUnary(b *testing.B, i grpc.UnaryServerInterceptor) {
	ctx, info := keyedContext(), &grpc.UnaryServerInfo{FullMethod: unaryMethod}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = i(ctx, message, info, answer)
	}
}

// The difference of "bare" and another one is what the limits cost.
func BenchmarkUnary(b *testing.B) {
	b.Run("bare interceptor", func(b *testing.B) {
		benchmarkUnary(b, func(ctx context.Context, message any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			return h(ctx, message)
		})
	})
	b.Run("token bucket", func(b *testing.B) {
		benchmarkUnary(b, oneMethod(b, Policy{Limit: Of(tokens(b, math.MaxInt32))}).UnaryInterceptor())
	})
	b.Run("keyed token bucket", func(b *testing.B) {
		benchmarkUnary(b, keyedLimits(b, math.MaxInt32).UnaryInterceptor())
	})
	b.Run("keyed, rejected", func(b *testing.B) { benchmarkUnary(b, keyedLimits(b, 1).UnaryInterceptor()) })
	b.Run("keyed, draft 11", func(b *testing.B) {
		benchmarkUnary(b, oneMethod(b, Policy{
			Limit: ByKey(keyedTokens(b, math.MaxInt32), Metadata("x-api-key")), Quota: 100, Window: time.Hour, Headers: Draft11,
		}).UnaryInterceptor())
	})
}

func BenchmarkStreamMessage(b *testing.B) {
	for name, mode := range map[string]StreamMode{"hold": StreamHold, "messages": StreamMessages} {
		b.Run(name, func(b *testing.B) {
			l := oneMethod(b, Policy{Limit: Of(tokens(b, math.MaxInt32)), Streams: mode})
			b.ReportAllocs()
			_ = l.StreamInterceptor()(nil, &endlessStream{fakeStream{ctx: context.Background()}}, &grpc.StreamServerInfo{FullMethod: duplexMethod},
				func(_ any, s grpc.ServerStream) error {
					for b.Loop() {
						_ = s.RecvMsg(message)
						_ = s.SendMsg(message)
					}
					return nil
				})
		})
	}
}

// endlessStream receives and sends without end.
type endlessStream struct{ fakeStream }

func (*endlessStream) RecvMsg(any) error         { return nil }
func (*endlessStream) SendMsg(any) error         { return nil }
func (*endlessStream) SetTrailer(md metadata.MD) {}

// The call is the context, so only the call and the copy of the metadata's values are allocated.
func TestLimits_Allocations(t *testing.T) {
	i, ctx, info := keyedLimits(t, math.MaxInt32).UnaryInterceptor(), keyedContext(), &grpc.UnaryServerInfo{FullMethod: unaryMethod}
	call := func() { _, _ = i(ctx, message, info, answer) }
	call() // makes the partition
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, call), 2.0)
}

func TestLimits_AllocationsOfMessages(t *testing.T) {
	l := oneMethod(t, Policy{Limit: Of(tokens(t, math.MaxInt32)), Streams: StreamMessages})
	_ = l.StreamInterceptor()(nil, &endlessStream{fakeStream{ctx: context.Background()}}, &grpc.StreamServerInfo{FullMethod: duplexMethod},
		func(_ any, s grpc.ServerStream) error {
			assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
				_ = s.RecvMsg(message)
				_ = s.SendMsg(message)
			}), 0.0)
			assert.Equal(t, 1, admission.CallOf[*Request](s.Context()).Held(), "only the message received last is held")
			return nil
		})
}
