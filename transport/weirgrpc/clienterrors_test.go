package weirgrpc

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// rejecting returns an invoker that answers with the status and the trailer.
func rejecting(err error, pushback ...string) grpc.UnaryInvoker {
	return func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, options ...grpc.CallOption) error {
		for _, option := range options {
			if o, ok := option.(grpc.TrailerCallOption); ok {
				*o.TrailerAddr = metadata.MD{"grpc-retry-pushback-ms": pushback}
			}
		}
		return err
	}
}

// asked returns the wait that the error of a call asks for, without a limit.
func asked(t *testing.T, invoker grpc.UnaryInvoker) (failure *StatusError, wait time.Duration, ok bool) {
	t.Helper()
	failure, found := errors.AsType[*StatusError](callOnce(t, nil, unaryMethod, invoker))
	require.True(t, found)
	wait, ok = failure.RetryAfter()
	return failure, wait, ok
}

func FuzzClient_Pushback(f *testing.F) {
	for _, text := range []string{"0", "1", "2147483647", "2147483648", "-1", "-0", "007", "+5", " 5", "5ms", "", "\xff", "1e3", "99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want, err := strconv.ParseInt(text, 10, 32)
		valid := err == nil && want >= 0
		failure, wait, ok := asked(t, rejecting(rejection(codes.ResourceExhausted, time.Hour), text))
		assert.Equal(t, valid, ok, "the RetryInfo does not count, also if the trailer is invalid")
		assert.Equal(t, valid, failure.Retryable())
		if valid {
			assert.Equal(t, time.Duration(want)*time.Millisecond, wait)
		}
	})
}

func TestClient_RetryInfoOfAnyForm(t *testing.T) {
	for _, c := range []struct {
		value []byte
		wait  time.Duration
		ok    bool
	}{
		{nil, 0, true},
		{[]byte{0x0a, 0x02, 0x08, 0x03}, 3 * time.Second, true},
		{[]byte{0x0a, 0x02, 0x10, 0xff}, 0, false},
		{[]byte{0x0a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 0, false},
	} {
		s := &spb.Status{Code: int32(codes.Unavailable), Details: []*anypb.Any{{TypeUrl: "type.googleapis.com/google.rpc.RetryInfo", Value: c.value}}}
		_, wait, ok := asked(t, failing(status.ErrorProto(s)))
		assert.Equal(t, c.ok, ok, "%x", c.value)
		assert.Equal(t, c.wait, wait)
	}
}
