package weirhttp_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/retry"
)

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
	})
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
