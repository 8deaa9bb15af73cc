package accesslog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cmd/weir/internal/logs"
)

func closed(t *testing.T, w *logs.Writer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, w.Close(ctx))
}

func TestLog(t *testing.T) {
	var to bytes.Buffer
	w := logs.NewWriter(&to)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/orders/7?token=secret", nil)
	e := Entry{
		Began: time.Now(), Took: 1500 * time.Microsecond, Request: r, Client: "192.0.2.1", Status: 429, Sent: 18,
		Route: "/orders/{id}", Upstream: "orders", Policy: "per-client", Decision: "rejected", Key: "secret", Fault: errors.New("why"),
	}
	New(w, Options{Key: func(string) string { return "#hash" }}).Write(&e)
	New(w, Options{Query: true, Key: func(key string) string { return key }}).Write(&e)
	closed(t, w)
	lines := strings.Split(strings.TrimSpace(to.String()), "\n")
	require.Len(t, lines, 2)
	assert.NotContains(t, lines[0], "secret")
	assert.Contains(t, lines[0], `"key":"#hash"`)
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &line))
	delete(line, "time")
	assert.Equal(t, map[string]any{
		"level": "INFO", "msg": "request", "client": "192.0.2.1", "method": "GET", "host": "example.com", "path": "/orders/7",
		"query": "token=secret", "protocol": "HTTP/1.1", "route": "/orders/{id}", "status": 429.0, "seconds": 0.0015, "bytes": 18.0,
		"upstream": "orders", "policy": "per-client", "decision": "rejected", "key": "secret", "error": "why",
	}, line)
}

// TestLog_Hostile checks that a request cannot make lines of its own, or very long ones.
func TestLog_Hostile(t *testing.T) {
	var to bytes.Buffer
	w := logs.NewWriter(&to)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.URL.Path = "/a\n{\"msg\":\"request\"}\x00\x1b[31m\xff" + strings.Repeat("x", 1<<20)
	r.Method, r.Host = "GET\r\nX", strings.Repeat("h", 1<<20)
	New(w, Options{}).Write(&Entry{Request: r})
	closed(t, w)
	assert.Equal(t, 1, strings.Count(to.String(), "\n"))
	assert.Less(t, to.Len(), 4096)
	assert.NotContains(t, to.String(), "\x1b")
	assert.True(t, json.Valid(to.Bytes()))
}
