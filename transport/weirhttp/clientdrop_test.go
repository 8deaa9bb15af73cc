package weirhttp_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
)

// streamingInTurn is a streaming whose responses have the statuses in turn, and then always the last.
type streamingInTurn struct {
	streaming
	statuses []int
	requests atomic.Int64
}

func (s *streamingInTurn) RoundTrip(r *http.Request) (*http.Response, error) {
	number := min(int(s.requests.Add(1)), len(s.statuses))
	resp, err := s.streaming.RoundTrip(r)
	if err == nil {
		resp.StatusCode = s.statuses[number-1]
	}
	return resp, err
}

// With a limit of 1, what a strategy does after a response that it handles waits for no permit of that response, whether the
// limiter has a queue or not.
func TestTransport_HandledResponseHoldsNoPermit(t *testing.T) {
	notFound := pipeline.HandleResult(func(resp *http.Response, err error) bool {
		return err == nil && resp.StatusCode == http.StatusNotFound
	})
	always := func(any, error) bool { return true }
	cases := map[string]struct {
		strategies []pipeline.Strategy // outside of the limiter
		statuses   []int
		requests   int64
		took       time.Duration
		released   bool // the response that the caller gets was handled, too
	}{
		"retry": {
			strategies: []pipeline.Strategy{retry.New(&retry.Options{Handle: notFound, Delay: time.Minute})},
			statuses:   []int{http.StatusNotFound, http.StatusOK}, requests: 2, took: time.Minute,
		},
		"retry in a retry": {
			strategies: []pipeline.Strategy{
				retry.New(&retry.Options{Handle: notFound, Delay: time.Minute}), retry.New(&retry.Options{Handle: always, MaxRetries: 1, Delay: -1}),
			},
			statuses: []int{http.StatusNotFound, http.StatusNotFound, http.StatusOK}, requests: 4, took: time.Minute,
		},
		"hedge, one attempt after the other": {
			strategies: []pipeline.Strategy{hedge.New(&hedge.Options{Handle: notFound, Delay: -1})},
			statuses:   []int{http.StatusNotFound, http.StatusOK}, requests: 2,
		},
		"hedge": {
			strategies: []pipeline.Strategy{hedge.New(&hedge.Options{Handle: notFound, Delay: time.Second})},
			statuses:   []int{http.StatusNotFound, http.StatusOK}, requests: 2,
		},
		"retry around a hedge that returns the first": {
			strategies: []pipeline.Strategy{
				retry.New(&retry.Options{Handle: notFound, Delay: time.Minute}), hedge.New(&hedge.Options{Handle: always, Delay: -1}),
			},
			statuses: []int{http.StatusNotFound, http.StatusOK}, requests: 4, took: time.Minute, released: true,
		},
		"fallback": {
			strategies: []pipeline.Strategy{fallback.New(func(_ context.Context, result any, err error) (any, error) { return result, err },
				&fallback.Options{Handle: notFound})},
			statuses: []int{http.StatusNotFound}, requests: 1, released: true,
		},
	}
	for name, c := range cases {
		for how, limit := range map[string]func() limiterOfOne{
			"":           func() limiterOfOne { return slots(1, 0) },
			", queued":   func() limiterOfOne { return slots(1, 10) },
			", adaptive": func() limiterOfOne { return adaptiveOfOne() },
		} {
			t.Run(name+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					outside, l := slots(1, 0), limit()
					base := &streamingInTurn{statuses: c.statuses}
					strategies := append([]pipeline.Strategy{ratelimit.New(outside, nil)}, c.strategies...)
					transport := roundTripper(t, base, nil, append(strategies, adaptive.New(l, nil))...)
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // so that a wait for itself ends
					defer cancel()
					began := time.Now()
					resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, "").WithContext(ctx))
					require.NoError(t, err)
					assert.Equal(t, c.statuses[len(c.statuses)-1], resp.StatusCode)
					assert.Equal(t, c.requests, base.requests.Load())
					assert.InDelta(t, c.took, time.Since(began), float64(400*time.Millisecond), "plus the first bytes of the bodies that are dropped")
					assert.Equal(t, c.released, l.Statistics().AvailablePermits == 1)
					assert.Zero(t, outside.Statistics().AvailablePermits, "a strategy further out holds its permit")
					require.NoError(t, resp.Body.Close())
					assert.EqualValues(t, 1, l.Statistics().AvailablePermits)
					assert.EqualValues(t, 1, outside.Statistics().AvailablePermits)
					assert.Zero(t, base.now.Load(), "all bodies are closed")
				})
			})
		}
	}
}

// A limiterOfOne is a limiter with a limit of 1.
type limiterOfOne interface {
	limiter.Limiter
	limiter.StatisticsProvider
}

func adaptiveOfOne() *adaptive.Limiter {
	return weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: 1, InitialLimit: 1, MaxLimit: 1}))
}

// During the wait of a retry, other requests can use the permit.
func TestTransport_RetryWaitsWithoutPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(1, 0)
		base := &streamingInTurn{statuses: []int{http.StatusNotFound, http.StatusOK}}
		notFound := pipeline.HandleResult(func(resp *http.Response, err error) bool {
			return err == nil && resp.StatusCode == http.StatusNotFound
		})
		transport := roundTripper(t, base, nil, retry.New(&retry.Options{Handle: notFound, Delay: time.Minute}), ratelimit.New(l, nil))
		time.AfterFunc(30*time.Second, func() { assert.EqualValues(t, 1, l.Statistics().AvailablePermits) })
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Len(t, readAll(t, resp), 10)
	})
}

// A request that cannot be sent again has its response whole, although a retry has dropped it.
func TestTransport_DroppedResponseIsReturned(t *testing.T) {
	l := slots(1, 0)
	long := strings.Repeat("x", 10<<10)
	base := &fakeBase{answer: func(*http.Request, int) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNotFound, Body: textBody(long)}, nil
	}}
	always := retry.New(&retry.Options{Handle: func(any, error) bool { return true }, MaxRetries: 1, Delay: -1})
	resp, err := roundTripper(t, base, nil, always, ratelimit.New(l, nil)).RoundTrip(newRequest(t, http.MethodPost, url, "body"))
	require.NoError(t, err)
	assert.Equal(t, long, readAll(t, resp))
	assert.Equal(t, 1, base.count())
	assert.EqualValues(t, 1, l.Statistics().AvailablePermits)
}
