package rls

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirrls"
)

// A service that cannot answer does not say that the request is wrong.
func TestServeJSON_Status(t *testing.T) {
	p := weir.Must(pipeline.New("closed", &version{service: weir.Must(weirrls.NewService(weir.Must(weirrls.NewRules()), nil))}))
	h := &handler{pipeline: p}
	w := httptest.NewRecorder()
	ask := func(body string) int {
		w = httptest.NewRecorder()
		h.serveJSON(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
		return w.Code
	}
	const request = `{"domain": "edge", "descriptors": [{"entries": [{"key": "a"}]}]}`
	assert.Equal(t, http.StatusOK, ask(request))
	assert.Equal(t, http.StatusBadRequest, ask(`{"domain": "edge"}`))
	assert.Equal(t, "weirrls: descriptors must not be empty\n", w.Body.String())
	require.NoError(t, p.Close())
	assert.Equal(t, http.StatusServiceUnavailable, ask(request))
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
