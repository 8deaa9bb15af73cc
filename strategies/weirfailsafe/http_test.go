package weirfailsafe_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
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
