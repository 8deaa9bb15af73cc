package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

func grpcCall(contentType string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/shop.Orders/Get", http.NoBody)
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	r.Header.Set("Content-Type", contentType)
	return r
}

func TestIsGRPC(t *testing.T) {
	for contentType, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "application/grpc;charset=utf-8": true,
		"application/grpc-web": false, "application/grpc-web+proto": false, "application/json": false, "": false, "application/grpcish": false,
	} {
		assert.Equal(t, want, IsGRPC(grpcCall(contentType)), contentType)
	}
	get, old := grpcCall("application/grpc"), grpcCall("application/grpc")
	get.Method, old.ProtoMajor = http.MethodGet, 1
	assert.False(t, IsGRPC(get))
	assert.False(t, IsGRPC(old))
}

func TestGRPC(t *testing.T) {
	for code, r := range map[string]Rejection{
		"8":  {Status: http.StatusTooManyRequests},
		"14": {Status: http.StatusServiceUnavailable, Err: pipeline.ErrRejected},
		"4":  {Status: http.StatusServiceUnavailable, Err: &TimeoutError{}},
		"13": {Status: http.StatusInternalServerError, Err: errors.New("a bug")},
		"2":  {Status: http.StatusConflict, Err: errors.New("unknown")},
		"1":  {Status: StatusClientClosedRequest},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Encoding", "gzip")
		GRPC(w, nil, r)
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, code, w.Header().Get("Grpc-Status"))
		assert.Equal(t, "application/grpc", w.Header().Get("Content-Type"))
		assert.Empty(t, w.Header().Get("Content-Encoding"))
		assert.Empty(t, w.Body)
	}
	w := httptest.NewRecorder()
	GRPC(w, nil, Rejection{RetryAfter: 1500 * time.Millisecond})
	assert.Equal(t, "1500", w.Header().Get("Grpc-Retry-Pushback-Ms"))
	assert.Equal(t, "CAgSHnRoZSBxdW90YSBvZiBjYWxscyBpcyBleGNlZWRlZBo2Cih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUmV0cnlJbmZvEgoKCAgBEIDKte4B",
		w.Header().Get("Grpc-Status-Details-Bin"))
}

// Clients send a call again that is UNAVAILABLE, so it must not have been processed.
func TestGRPC_UnavailableOnlyIfNotProcessed(t *testing.T) {
	dialing := &net.OpError{Op: "dial", Err: errors.New("refused")}
	reading := &net.OpError{Op: "read", Err: errors.New("reset")}
	for _, tt := range []struct {
		status int
		err    error
		code   string
	}{
		{http.StatusGatewayTimeout, context.DeadlineExceeded, "4"},
		{http.StatusGatewayTimeout, nil, "4"},
		{http.StatusServiceUnavailable, fmt.Errorf("retry: %w", &timeout.Error{After: time.Second}), "4"},
		{http.StatusBadGateway, fmt.Errorf("upstream: %w", dialing), "14"},
		{http.StatusBadGateway, pipeline.ErrRejected, "14"},
		{http.StatusBadGateway, nil, "14"},
		{http.StatusBadGateway, reading, "2"},
		{http.StatusBadGateway, io.ErrUnexpectedEOF, "2"},
	} {
		w := httptest.NewRecorder()
		GRPC(w, nil, Rejection{Status: tt.status, Err: tt.err})
		assert.Equal(t, tt.code, w.Header().Get("Grpc-Status"), "%d, %v", tt.status, tt.err)
	}
}

// The answer is 200, but strategies and measurements see what it stands for.
func TestGRPC_StandsForItsStatus(t *testing.T) {
	var seen error
	measured := new(recordedStatus)
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limiter: no()}}))
	h := Measure(measured, nil)(around(t, nil, seeing(&seen))(l.Handler(served)))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, grpcCall("application/grpc"))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "8", w.Header().Get("Grpc-Status"))
	require.ErrorIs(t, seen, pipeline.ErrRejected)
	assert.Equal(t, http.StatusTooManyRequests, measured.status)
}

type recordedStatus struct{ status int }

func (r *recordedStatus) RecordRequest(_ context.Context, _, _, _ string, status int, _ string, _ time.Duration) {
	r.status = status
}

// The program can answer gRPC itself, and sees the rejection in any case.
func TestGRPC_OnRejected(t *testing.T) {
	var seen []int
	answers := false
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limiter: concurrencyInUse(t)},
		OnRejected: func(w http.ResponseWriter, _ *http.Request, r Rejection) {
			seen = append(seen, r.Status)
			if answers {
				w.WriteHeader(http.StatusTeapot)
			}
		}}))
	for _, want := range []int{http.StatusOK, http.StatusTeapot} {
		w := httptest.NewRecorder()
		l.Handler(served).ServeHTTP(w, grpcCall("application/grpc"))
		assert.Equal(t, want, w.Code)
		answers = true
	}
	assert.Equal(t, []int{503, 503}, seen)
}
