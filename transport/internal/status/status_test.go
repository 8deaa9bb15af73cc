package status_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/internal/status"
	"github.com/weir-go/weir/weirtest"
)

func TestOf(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	alive := t.Context()
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want status.Cause
		http int
		grpc uint32
	}{
		{alive, &ratelimit.RejectedError{Lease: custom.Rejected(time.Second, "")}, status.OverQuota, 429, 8},
		{alive, &ratelimit.RejectedError{Lease: custom.Rejected(0, "")}, status.OverCapacity, 503, 14},
		{alive, &ratelimit.RejectedError{Lease: custom.Rejected(time.Second, limiter.ReasonUnavailable)}, status.Undecided, 503, 14},
		{alive, &ratelimit.RejectedError{Lease: custom.Rejected(0, limiter.ReasonClosed)}, status.Undecided, 503, 14},
		{gone, &ratelimit.RejectedError{Lease: custom.Rejected(time.Second, "")}, status.OverQuota, 429, 8},
		{alive, fmt.Errorf("in a pipeline: %w", &timeout.Error{After: time.Second}), status.TimedOut, 503, 4},
		{alive, pipeline.ErrRejected, status.OverCapacity, 503, 14},
		{gone, errors.New("any"), status.Gone, 499, 1},
		{late, errors.New("any"), status.Late, 503, 4},
		{alive, pipeline.ErrClosed, status.OverCapacity, 503, 14},
		{alive, limiter.ErrClosed, status.Undecided, 503, 14},
		{alive, context.DeadlineExceeded, status.TimedOut, 503, 4},
		{alive, errors.New("a bug"), status.Failed, 500, 13},
		{alive, limited(errors.New("the store is down")), status.Undecided, 503, 14}, // as of a policy
		{alive, limited(fmt.Errorf("%w: 9", limiter.ErrPermitCount)), status.OverQuota, 429, 8},
	} {
		got := status.Of(tt.ctx, tt.err)
		assert.Equal(t, tt.want, got, "%v", tt.err)
		assert.Equal(t, tt.http, got.HTTP())
		assert.Equal(t, tt.grpc, got.GRPC())
	}
}

// limited returns the error of a pipeline whose limiter returns err.
func limited(err error) error {
	l := weirtest.NewLimiter(weirtest.Fail(err))
	return weir.Must(pipeline.New("p", ratelimit.New(l, nil))).Execute(context.Background(), func(context.Context) error { return nil })
}

// Clients send a call again that is UNAVAILABLE, so it must not have been processed.
func TestCodeOf(t *testing.T) {
	dialing := &net.OpError{Op: "dial", Err: errors.New("refused")}
	reading := &net.OpError{Op: "read", Err: errors.New("reset")}
	for _, tt := range []struct {
		status int
		err    error
		want   uint32
	}{
		{400, nil, 3}, {401, nil, 16}, {403, nil, 7}, {404, nil, 12}, {408, nil, 4}, {429, nil, 8}, {499, nil, 1}, {500, nil, 13},
		{420, nil, 8}, // what a program has chosen for a rejection
		{409, errors.New("unknown"), 2},
		{503, pipeline.ErrRejected, 14},
		{503, fmt.Errorf("retry: %w", &timeout.Error{After: time.Second}), 4},
		{504, context.DeadlineExceeded, 4}, {504, nil, 4},
		{502, fmt.Errorf("upstream: %w", dialing), 14}, {502, pipeline.ErrRejected, 14}, {502, nil, 14},
		{502, reading, 2}, {502, io.ErrUnexpectedEOF, 2},
	} {
		assert.Equal(t, tt.want, status.CodeOf(tt.status, tt.err), "%d, %v", tt.status, tt.err)
	}
}

func TestPushback(t *testing.T) {
	assert.Equal(t, "-1", status.Pushback(time.Second, true))
	assert.Equal(t, "2", status.Pushback(time.Millisecond+1, false), "rounded up")
	assert.Empty(t, status.Pushback(0, false))
	assert.Equal(t, "2147483647", status.Pushback(1<<62, false))
	assert.Equal(t, "CAgSHnRoZSBxdW90YSBvZiBjYWxscyBpcyBleGNlZWRlZBo2Cih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUmV0cnlJbmZvEgoKCAgBEIDKte4B",
		status.Details(status.ResourceExhausted, status.Message(status.ResourceExhausted), 1500*time.Millisecond))
}

func TestWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, math.MaxInt64: 9223372037,
	} {
		assert.Equal(t, want, status.WholeSeconds(d), d)
	}
}
