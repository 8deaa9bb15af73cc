package weirfailsafe_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/strategies/weirfailsafe"
	"github.com/weir-go/weir/transport/weirhttp"
)

// get returns the status and the body.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// newClient closes its connections in the end: their goroutines would be leaks.
func newClient(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) *http.Client {
	t.Helper()
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	if wrap == nil {
		return &http.Client{Transport: transport}
	}
	return &http.Client{Transport: wrap(transport)}
}

//nolint:bodyclose // policies and pipelines for responses, which are closed by those who get them
func TestFromLimiter_HTTPHandler(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done() // the pipeline's timeout reaches the handler
			return
		}
		_, _ = io.WriteString(w, "hello")
	})
	limited := httptest.NewServer(failsafehttp.NewHandler(answer, weir.Must(weirfailsafe.FromLimiter[*http.Response](bucket(1), nil))))
	defer limited.Close()
	client := newClient(t, nil)
	status, body := get(t, client, limited.URL)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "hello", body)
	status, body = get(t, client, limited.URL)
	assert.Equal(t, http.StatusTooManyRequests, status)
	assert.Contains(t, body, "retry after")

	// A handler has no error to return, so a timeout that cuts it short shows only
	// where something inside of the pipeline fails by it.
	failing := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		value, err := next.Run(ctx)
		return value, errors.Join(err, ctx.Err())
	})
	p := weir.Must(pipeline.New("web", timeout.New(20*time.Millisecond, nil), failing))
	slow := httptest.NewServer(failsafehttp.NewHandler(answer, weirfailsafe.FromPipeline[*http.Response](p, nil)))
	defer slow.Close()
	status, _ = get(t, client, slow.URL+"/slow")
	assert.Equal(t, http.StatusServiceUnavailable, status)
}

//nolint:bodyclose // policies and pipelines for responses, which are closed by those who get them
func TestFromPipeline_HTTPClient(t *testing.T) {
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls < 3 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, "hello")
	}))
	defer server.Close()

	// The timeout ends when the response has come, and must not take its body along.
	p := weir.Must(pipeline.New("client",
		retry.New(&retry.Options{
			Delay: -1,
			Handle: pipeline.HandleResult(func(r *http.Response, err error) bool {
				return err != nil || r.StatusCode == http.StatusBadGateway
			}),
			OnRetry: func(_ context.Context, a pipeline.Event) {
				if r, ok := a.Result.(*http.Response); ok {
					_ = r.Body.Close()
				}
			},
		}),
		timeout.New(time.Minute, nil),
	))
	client := newClient(t, func(base http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, weirfailsafe.FromPipeline[*http.Response](p, nil))
	})
	status, body := get(t, client, server.URL)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "hello", body)
	assert.Equal(t, 3, calls)
}

//nolint:bodyclose // policies and pipelines for responses, which are closed by those who get them
func TestFromLimiter_HTTPClient(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	window := 100 * time.Millisecond
	l := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: window}))
	limited := weir.Must(weirfailsafe.FromLimiter[*http.Response](l, nil))

	impatient := newClient(t, func(base http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, limited)
	})
	var failure error
	for failure == nil { // two in one window
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		require.NoError(t, err)
		response, err := impatient.Do(request)
		if failure = err; err == nil {
			_ = response.Body.Close()
		}
	}
	require.ErrorIs(t, failure, ratelimiter.ErrExceeded)
	require.ErrorIs(t, failure, pipeline.ErrRejected)

	waiting := retrypolicy.NewBuilder[*http.Response]().WithMaxRetries(100).WithDelayFunc(weirfailsafe.RetryAfter).Build()
	patient := newClient(t, func(base http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, waiting, limited)
	})
	status, _ := get(t, patient, server.URL)
	assert.Equal(t, http.StatusOK, status)
}

// With a limit of 1, the attempt after a response that a policy handles waits for no permit of that response.
func TestStrategy_HandledResponseHoldsNoPermit(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 1 {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, "hello")
	}))
	defer server.Close()
	notFound := pipeline.HandleResult(func(r *http.Response, err error) bool { return err == nil && r.StatusCode == http.StatusNotFound })
	slot := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	p := weir.Must(pipeline.New("partner",
		weirfailsafe.New(nil, retrypolicy.NewBuilder[any]().HandleIf(notFound).Build()), ratelimit.New(slot, nil)))
	client := newClient(t, func(base http.RoundTripper) http.RoundTripper {
		return weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: base}))
	})
	status, body := get(t, client, server.URL)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "hello", body)
	assert.EqualValues(t, 1, slot.Statistics().AvailablePermits)
}
