package weirgrpc

import (
	"context"
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
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/weirtest"
)

// The quotas are in the header of a success, and in the trailer of an error, which grpc-go retries only without a header.
func TestLimits_QuotasOverTheWire(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		limits := weir.Must(NewLimits(&LimitsOptions{
			Global:   Policy{Limit: Of(slots(t, 10, 0))}, // has no quota
			Policies: map[string]Policy{"hour": {Limit: Of(tokens(t, 3))}, "keyed": {Limit: ByKey(keyedTokens(t, 1000), nil), Quota: 7}},
			Methods:  map[string][]string{"*": {"hour", "keyed"}},
			Headers:  Draft11,
		}))
		fails := false
		client := limited(t, w, limits, &service{unary: func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			if fails {
				return nil, status.Error(codes.Unavailable, "not now")
			}
			return &testpb.SimpleResponse{}, nil
		}})
		var header, trailer metadata.MD
		_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		require.NoError(t, err)
		assert.Equal(t, []string{`"hour";r=2;t=3600`, `"keyed";r=7`}, header["ratelimit"])
		assert.Empty(t, trailer)

		fails = true
		_, err = client.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		assert.Equal(t, codes.Unavailable, status.Code(err))
		assert.Equal(t, []string{`"hour";r=1;t=3600`, `"keyed";r=7`}, trailer["ratelimit"])
		assert.Empty(t, trailer[pushbackTrailer])

		stream, err := client.FullDuplexCall(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
		_, err = stream.Recv()
		require.NoError(t, err)
		header, err = stream.Header()
		require.NoError(t, err)
		assert.Equal(t, []string{`"hour";r=0;t=3600`, `"keyed";r=7`}, header["ratelimit"])
		require.NoError(t, stream.CloseSend())
		_, _ = stream.Recv()
		assert.Empty(t, stream.Trailer())

		_, err = client.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Len(t, status.Convert(err).Details(), 1)
		assert.Len(t, trailer[pushbackTrailer], 1)
		assert.Equal(t, []string{`"hour";r=0;t=3600`}, trailer["ratelimit"])
	})
}

// A handler can send the header itself. A stream without messages has the quotas, too.
func TestLimits_QuotasOfStreams(t *testing.T) {
	limits := oneMethod(t, Policy{Limit: Of(tokens(t, 3)), Headers: Legacy})
	for name, handler := range map[string]func(s grpc.ServerStream) error{
		"header":  func(s grpc.ServerStream) error { return s.SendHeader(metadata.Pairs("own", "1")) },
		"nothing": func(grpc.ServerStream) error { return nil },
		"failure": func(grpc.ServerStream) error { return errStore },
	} {
		f := &fakeStream{ctx: t.Context(), method: duplexMethod}
		err := limits.StreamInterceptor()(nil, headerStream{f}, &grpc.StreamServerInfo{FullMethod: duplexMethod},
			func(_ any, s grpc.ServerStream) error { return handler(s) })
		assert.Equal(t, name == "failure", err != nil)
		assert.Len(t, metadata.Join(f.header, f.trailer)["x-ratelimit-remaining"], 1, name)
		assert.Equal(t, name == "failure", len(f.header) == 0, name)
	}
}

// headerStream is a fakeStream as a [grpc.ServerStream].
type headerStream struct{ *fakeStream }

func (s headerStream) SetTrailer(md metadata.MD) { _ = s.fakeStream.SetTrailer(md) }

// A retry in a pipeline of the server that repeats a rejection does not send two pushbacks, and a success after a
// rejection sends none.
func TestByPipeline_OnePushback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := retry.New(&retry.Options{MaxRetries: 1, Handle: func(_ any, err error) bool { return err != nil }})
		rejected := weirtest.Reject(time.Second, "")
		for name, inner := range map[string]scripted{"rejected": follows(rejected), "admitted at last": follows(rejected, weirtest.Grant())} {
			l := weir.Must(NewLimits(&LimitsOptions{
				Policies: map[string]Policy{
					"again": {Limit: ByPipeline(weir.Must(pipeline.New("again", again)))},
					"inner": {Limit: Of(inner)},
				},
				Methods: map[string][]string{"*": {"again", "inner"}},
			}))
			_, trailer, err := callUnary(t.Context(), l, unaryMethod, answer)
			assert.Len(t, inner.Calls(), 2, name)
			assert.Equal(t, name == "rejected", err != nil, name)
			assert.Equal(t, name == "rejected", len(trailer[pushbackTrailer]) == 1, name)
		}
	})
}
