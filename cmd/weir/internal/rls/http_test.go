package rls

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/health"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirrls"
)

// TestHTTP has the requests of clients that cannot use gRPC. A service that cannot answer does not say that the request is wrong.
func TestHTTP(t *testing.T) {
	rules := weir.Must(weirrls.NewRules(weirrls.Domain{Name: "edge", Descriptors: []weirrls.Descriptor{
		{Key: "path", Limit: &weirrls.Limit{Window: &weirrls.Window{RequestsPerUnit: 1, Unit: weirrls.Year}}},
	}}))
	p := weir.Must(pipeline.New("rls", &version{service: weir.Must(weirrls.NewService(rules, nil))}))
	server := newHTTP(&handler{pipeline: p}, health.NewServer(), nil).Handler
	ask := func(method, path, body string, header ...string) (status int, answer string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const request = `{"domain": "edge", "descriptors": [{"entries": [{"key": "path", "value": "/"}]}]}`
	status, body := ask(http.MethodPost, "/json", request)
	assert.Equal(t, http.StatusOK, status)
	assert.Regexp(t, `"overallCode": ?"OK"`, body)
	status, body = ask(http.MethodPost, "/json", request)
	assert.Equal(t, http.StatusTooManyRequests, status)
	assert.Regexp(t, `"overallCode": ?"OVER_LIMIT"`, body)
	for body, want := range map[string]int{
		"":                                  http.StatusBadRequest,
		"{":                                 http.StatusBadRequest,
		`{"domain": "edge", "entries": []}`: http.StatusBadRequest,
		`{"domain": ""}`:                    http.StatusBadRequest,
		`{"domain": "edge"}`:                http.StatusBadRequest,
		`{"domain": "` + strings.Repeat("x", maxRequest) + `"}`: http.StatusRequestEntityTooLarge,
	} {
		status, _ := ask(http.MethodPost, "/json", body)
		assert.Equal(t, want, status, "%.40s", body)
	}
	_, body = ask(http.MethodPost, "/json", `{"domain": "edge"}`)
	assert.Equal(t, "weirrls: descriptors must not be empty\n", body)
	for header, value := range map[string]string{"Origin": "https://site.example", "Sec-Fetch-Site": "cross-site"} {
		status, _ = ask(http.MethodPost, "/json", request, header, value)
		assert.Equal(t, http.StatusForbidden, status, "the page of a site in a browser")
	}
	status, _ = ask(http.MethodGet, "/json", "")
	assert.Equal(t, http.StatusMethodNotAllowed, status)
	require.NoError(t, p.Close())
	status, _ = ask(http.MethodPost, "/json", request)
	assert.Equal(t, http.StatusServiceUnavailable, status)
}

func TestOpenToAll(t *testing.T) {
	assert.False(t, openToAll(nil))
	for address, want := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		assert.Equal(t, want, openToAll(l), address)
		require.NoError(t, l.Close())
	}
}
