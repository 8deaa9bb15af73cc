package weirhttp

import (
	"context"
	"errors"
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
		assert.Equal(t, want, isGRPC(grpcCall(contentType)), contentType)
	}
	get, old := grpcCall("application/grpc"), grpcCall("application/grpc")
	get.Method, old.ProtoMajor = http.MethodGet, 1
	assert.False(t, isGRPC(get))
	assert.False(t, isGRPC(old))
}

func TestGRPC(t *testing.T) {
	for code, r := range map[string]Rejection{
		"8":  {Status: http.StatusTooManyRequests},
		"14": {Status: http.StatusServiceUnavailable, Err: pipeline.ErrRejected},
		"4":  {Status: http.StatusServiceUnavailable, Err: &timeout.Error{}},
		"13": {Status: http.StatusInternalServerError, Err: errors.New("a bug")},
		"2":  {Status: http.StatusConflict, Err: errors.New("unknown")},
		"1":  {Status: StatusClientClosedRequest},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Encoding", "gzip")
		grpcBody(w, nil, r)
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, code, w.Header().Get("Grpc-Status"))
		assert.Equal(t, "application/grpc", w.Header().Get("Content-Type"))
		assert.Empty(t, w.Header().Get("Content-Encoding"))
		assert.Empty(t, w.Body)
	}
}

// The answer is 200, but strategies and measurements see what it stands for.
func TestGRPC_StandsForItsStatus(t *testing.T) {
	var seen error
	measured := new(recordedStatus)
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(no())}}))
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
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(concurrencyInUse(t))},
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
