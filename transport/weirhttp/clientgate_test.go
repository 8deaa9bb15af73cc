package weirhttp_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/transport/weirhttp"
)

// gated returns a Transport with a gate whose server answers with the status and Retry-After until the time.
func gated(t *testing.T, o *weirhttp.GateOptions, status int, retryAfter string, until time.Time, outside ...pipeline.Strategy) (*weirhttp.Transport, *fakeBase) {
	t.Helper()
	base := &fakeBase{answer: func(*http.Request, int) (*http.Response, error) {
		if time.Now().Before(until) {
			return answering(status, "Retry-After", retryAfter), nil
		}
		return answering(200), nil
	}}
	return roundTripper(t, base, nil, append(outside, weir.Must(weirhttp.NewGate(o)))...), base
}

// status sends a request and returns the status, or the error.
func status(t *testing.T, transport http.RoundTripper, r *http.Request) (int, error) {
	t.Helper()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	readAll(t, resp)
	return resp.StatusCode, nil
}

func TestGate_RejectsDuringThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, base := gated(t, nil, 429, "10", time.Now().Add(time.Second))
		got, err := status(t, transport, newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, 429, got)
		time.Sleep(4 * time.Second)
		_, err = status(t, transport, newRequest(t, http.MethodGet, url, ""))
		rejected, ok := err.(*ratelimit.RejectedError) //nolint:errorlint // as it is
		require.True(t, ok, "%v", err)
		assert.Equal(t, "paused as the server asked", rejected.Reason)
		left, _ := rejected.RetryAfter()
		assert.Equal(t, 6*time.Second, left)
		assert.Equal(t, 1, base.count())
		got, err = status(t, transport, newRequest(t, http.MethodGet, "http://another.example.com", ""))
		require.NoError(t, err)
		assert.Equal(t, 200, got)
		time.Sleep(6 * time.Second)
		got, err = status(t, transport, newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, 200, got)
	})
}

func TestGate_WhatPauses(t *testing.T) {
	for _, c := range []struct {
		status     int
		retryAfter string
		max, left  time.Duration
	}{
		{429, "9", 0, 9 * time.Second},
		{503, "9", 0, 9 * time.Second},
		{503, "3600", 0, time.Minute},
		{503, "3600", time.Second, time.Second},
		{503, "3600", -1, time.Hour},
		{429, "0", 0, 0},
		{502, "9", 0, 0},
		{200, "9", 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			transport, _ := gated(t, &weirhttp.GateOptions{MaxPause: c.max}, c.status, c.retryAfter, time.Now().Add(time.Second))
			_, err := status(t, transport, newRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
			_, err = status(t, transport, newRequest(t, http.MethodGet, url, ""))
			left, _ := pipeline.RetryAfter(err)
			assert.Equal(t, c.left, left, c)
		})
	}
}

// A slow answer with a shorter wait does not end a pause.
func TestGate_NeverShortensAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := plainBase(func(r *http.Request) (*http.Response, error) {
			if r.URL.RawQuery != "slow" {
				return answering(429, "Retry-After", "10"), nil
			}
			time.Sleep(time.Second)
			return answering(429, "Retry-After", "2"), nil
		})
		transport := roundTripper(t, base, nil, weir.Must(weirhttp.NewGate(nil)))
		var slow sync.WaitGroup
		slow.Go(func() { _, _ = status(t, transport, newRequest(t, http.MethodGet, url+"?slow", "")) })
		synctest.Wait()
		_, err := status(t, transport, newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		slow.Wait()
		_, err = status(t, transport, newRequest(t, http.MethodGet, url, ""))
		left, _ := pipeline.RetryAfter(err)
		assert.Equal(t, 9*time.Second, left)
	})
}

// One request gets Retry-After, and all requests to the host wait.
func TestGate_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var early atomic.Int64
		transport, base := gated(t, nil, 503, "10", time.Now().Add(10*time.Second),
			retry.New(&retry.Options{OnRetry: func(_ context.Context, e pipeline.Event) { early.Add(1) }}))
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				got, err := status(t, transport, newRequest(t, http.MethodGet, url, ""))
				assert.NoError(t, err)
				assert.Equal(t, 200, got)
			})
		}
		wg.Wait()
		assert.EqualValues(t, 20, early.Load())
		assert.Equal(t, 21, base.count())
	})
}

// A request that waits keeps its place when the pause is renewed, and others are rejected. It does not wait for a pause that
// outlasts its deadline.
func TestGate_Queue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var waited []time.Duration
		base := &fakeBase{answer: func(_ *http.Request, number int) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			waited = append(waited, time.Since(began))
			if number < 2 {
				return answering(429, "Retry-After", "20"), nil
			}
			return answering(200), nil
		}}
		gate := weir.Must(weirhttp.NewGate(&weirhttp.GateOptions{QueueLimit: 1}))
		transport := roundTripper(t, base, nil, gate)
		slow := roundTripper(t, plainBase(func(r *http.Request) (*http.Response, error) { // answers when the pause is over in part
			time.Sleep(15 * time.Second)
			return base.RoundTrip(r)
		}), nil, gate)
		get := func(transport http.RoundTripper) error {
			_, err := status(t, transport, newRequest(t, http.MethodGet, url, ""))
			return err
		}
		go func() { _ = get(slow) }()
		synctest.Wait()
		require.NoError(t, get(transport)) // pauses until 20 s
		done := make(chan error)
		go func() { done <- get(transport) }()
		synctest.Wait()
		require.ErrorIs(t, get(transport), pipeline.ErrRejected, "no room")
		require.NoError(t, <-done)
		assert.Equal(t, []time.Duration{0, 15 * time.Second, 35 * time.Second}, waited, "the pause was renewed at 15 s")

		mu.Lock()
		base.answer = func(*http.Request, int) (*http.Response, error) { return answering(429, "Retry-After", "20"), nil }
		mu.Unlock()
		require.NoError(t, get(transport))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began = time.Now()
		_, err := status(t, transport, newRequest(t, http.MethodGet, url, "").WithContext(ctx))
		require.ErrorIs(t, err, pipeline.ErrRejected)
		assert.Zero(t, time.Since(began), "no use in waiting")
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = status(t, transport, newRequest(t, http.MethodGet, url, "").WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// A host beyond the bound is not paused until another pause has ended.
func TestGate_BoundsTheHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, base := gated(t, nil, 429, "10", time.Now().Add(time.Hour))
		send := func(host int) bool {
			before := base.count()
			_, _ = status(t, transport, newRequest(t, http.MethodGet, "http://"+strconv.Itoa(host), ""))
			return base.count() > before
		}
		for host := range 1025 {
			assert.True(t, send(host))
		}
		assert.False(t, send(1023))
		assert.True(t, send(1024))
		time.Sleep(10 * time.Second)
		assert.True(t, send(1024))
		assert.False(t, send(1024))
	})
}

// A pipeline outside of a Transport has requests to hosts that the Gate does not know.
func TestGate_WithoutATransport(t *testing.T) {
	p := weir.Must(pipeline.New("p", weir.Must(weirhttp.NewGate(nil))))
	for range 2 {
		resp, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (*http.Response, error) {
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"9"}}}, nil
		})
		require.NoError(t, err)
		assert.Equal(t, 429, resp.StatusCode)
	}
}

func TestGateOptions_Validate(t *testing.T) {
	_, err := weirhttp.NewGate(&weirhttp.GateOptions{MaxPause: -2, QueueLimit: -1})
	assert.ErrorIs(t, err, weir.ErrInvalidOptions)
	assert.EqualError(t, err, "weirhttp: QueueLimit must be at least 0, got -1; MaxPause must be at least 0, or -1 for no limit, got -2ns")
}
