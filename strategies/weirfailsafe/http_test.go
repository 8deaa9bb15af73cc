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
	base := new(http.Transport)
	defer base.CloseIdleConnections() // their goroutines would be leaks
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	response, err := weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: base})).RoundTrip(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode)
	assert.Equal(t, "hello", string(body))
	assert.EqualValues(t, 1, slot.Statistics().AvailablePermits)
}
