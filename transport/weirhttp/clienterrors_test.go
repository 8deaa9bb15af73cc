package weirhttp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

func TestRetryable(t *testing.T) {
	assert.False(t, weirhttp.Retryable(nil, nil))
	assert.False(t, weirhttp.Retryable(nil, context.Canceled))
	assert.True(t, weirhttp.Retryable(nil, context.DeadlineExceeded), "of a network timeout: the retry knows its own context")
	assert.True(t, weirhttp.Retryable(nil, io.ErrUnexpectedEOF))
	assert.True(t, weirhttp.Retryable(nil, pipeline.ErrRejected))
	assert.True(t, weirhttp.Retryable(nil, &timeout.Error{}))
	assert.True(t, weirhttp.Retryable(nil, &timeout.Error{Err: context.DeadlineExceeded}))
}

// A network timeout matches context.DeadlineExceeded, and is retried nevertheless.
func TestRetryable_NetworkTimeoutWhileTheCallerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: func(_ *http.Request, number int) (*http.Response, error) {
			if number == 0 {
				return nil, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
			}
			return answering(200), nil
		}}
		resp, err := roundTripper(t, base, nil, retrying(retry.Options{})).RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, "OK", readAll(t, resp))
	})
}

// http.Client.Timeout is a deadline of the request's context, so there is no time for another attempt.
func TestRetryable_ClientTimeoutEndsTheRequestsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctx context.Context
		base := &fakeBase{answer: func(r *http.Request, _ int) (*http.Response, error) {
			ctx = r.Context()
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		client := &http.Client{Transport: roundTripper(t, base, nil, retrying(retry.Options{})), Timeout: time.Second}
		_, err := client.Get(url) //nolint:bodyclose // there is no response
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		assert.Equal(t, 1, base.count())
		assert.True(t, weirhttp.Retryable(nil, err), "around the client it is a failure like any other")
	})
}

func TestRetryable_RequestsThatCannotBeSent(t *testing.T) {
	base := new(http.Transport)
	for name, change := range unsendable {
		t.Run(name, func(t *testing.T) {
			attempts := 0
			transport := roundTripper(t, plainBase(func(r *http.Request) (*http.Response, error) {
				attempts++
				return base.RoundTrip(r)
			}), nil, retrying(retry.Options{Delay: -1}))
			r := newRequest(t, http.MethodGet, "http://127.0.0.1:1", "")
			change(r)
			err := failing(t, transport, r)
			if name == "length without body" {
				return // noticed after dialing
			}
			assert.Equal(t, 1, attempts)
			assert.False(t, weirhttp.Retryable(nil, fmt.Errorf("wrapped: %w", err)))
		})
	}
}

// A StatusError names the request as it was sent, whenever Error is called.
func TestStatusError_ErrorAfterTheRequestWasReused(t *testing.T) {
	var failure error
	keep := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		value, err := next.Run(ctx)
		failure = err
		return value, err
	})
	transport := roundTripper(t, &fakeBase{answer: inTurn(503)}, nil, keep)
	r := newRequest(t, http.MethodGet, url, "")
	resp, err := transport.RoundTrip(r)
	require.NoError(t, err)
	assert.Same(t, r, resp.Request)
	readAll(t, resp)
	r.Method, r.URL.Host = http.MethodPost, "another.example.com"
	assert.EqualError(t, failure, "weirhttp: GET api.example.com: 503 Service Unavailable")
}
