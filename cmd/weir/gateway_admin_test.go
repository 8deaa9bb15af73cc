package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// post sends a form to the admin listener, as a page of the dashboard does.
func (p *process) post(path string, form url.Values, user, password string) answer {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.adminURL(path), strings.NewReader(form.Encode()))
	require.NoError(p.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "text/plain")
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	resp, err := client.Do(req)
	require.NoError(p.t, err)
	_ = resp.Body.Close()
	return answer{resp.StatusCode, resp.Header}
}

const adminRest = `
limiters:
  per-key: {partitioned: {key: api, each: {fixed_window: {permit_limit: 1, window: 1h}}}}
  overall: {fixed_window: {permit_limit: 100, window: 1h}}
`

func adminConfig(server, more string) string {
	return plainConfig(server, `
  pprof: true
  keys: {api: {header: X-Api-Key}}
  policies: {per-key: {limiter: per-key}, overall: {limiter: overall}}
  global: [overall]
  routes:
    - {match: "GET /orders/{id}", upstream: server, policies: [per-key]}
    - {match: /exempt, upstream: server, exempt: true}
`+more, adminRest)
}

func TestGateway_Dashboard(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("pass:word\n"), 0o600))
	p := startGateway(t, adminConfig(behind(t, ok), fmt.Sprintf("  dashboard: {token_file: %q}", file)))
	_, _ = get(t, p.url("/orders/1"), "X-Api-Key", "secret")
	resp, body := get(t, p.adminURL("/"), "Accept", "text/html")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, resp.Header.Get("Content-Type"), "text/html")
	for _, want := range []string{"gateway", "per-key", "overall", "gateway/server/127.0.0.1:"} {
		assert.Contains(t, body, want)
	}
	resp, _ = get(t, p.adminURL("/debug/pprof/"))
	assert.Equal(t, http.StatusOK, resp.StatusCode)

	reload := url.Values{"do": {"reload"}, "target": {p.file}}
	resp = p.post("/action", reload, "", "")
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	assert.Contains(t, resp.Header.Get("WWW-Authenticate"), "Basic ")
	assert.Equal(t, http.StatusUnauthorized, p.post("/action", reload, "ann", "wrong").StatusCode)
	assert.Equal(t, http.StatusUnauthorized, p.post("/action", reload, "", "pass:word").StatusCode, "who did it must be known")
	assert.Equal(t, http.StatusOK, p.post("/action", reload, "ann", "pass:word").StatusCode)
	p.awaitLog(`"ann"`)

	type result struct {
		Policy, Key string
		Granted     bool
	}
	ask := func(path, header string) (all []result) {
		query := url.Values{"method": {"GET"}, "url": {path}, "header": {header}}
		resp, body := get(t, p.adminURL("/check?"+query.Encode()), "Accept", "application/json")
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		var answer struct{ Results []result }
		require.NoError(t, json.Unmarshal([]byte(body), &answer), body)
		return answer.Results
	}
	var logged any
	require.Eventually(t, func() bool {
		lines := p.accessLog()
		if len(lines) > 0 {
			logged = lines[0]["key"]
		}
		return logged != nil
	}, patience, 10*time.Millisecond)
	for range 2 { // it takes nothing
		all := ask("/orders/7", "X-Api-Key: secret")
		require.Len(t, all, 2)
		assert.Equal(t, "overall", all[0].Policy)
		assert.True(t, all[0].Granted)
		assert.Equal(t, "per-key", all[1].Policy)
		assert.False(t, all[1].Granted, "its one permit is taken")
		assert.NotContains(t, all[1].Key, "secret")
		assert.Equal(t, logged, all[1].Key, "a key of the dashboard can be found in the access log")
		assert.True(t, ask("/orders/7", "X-Api-Key: other")[1].Granted)
	}
	assert.Empty(t, ask("/exempt", "X-Api-Key: secret"))
}

// TestGateway_AdminHost checks that no page of another site can read what the admin listener on the loopback interface has.
func TestGateway_AdminHost(t *testing.T) {
	p := startGateway(t, adminConfig(behind(t, ok), ""))
	machine, err := os.Hostname()
	require.NoError(t, err)
	for host, want := range map[string]int{
		"": 200, "localhost": 200, "LocalHost.:9900": 200, "weir.localhost": 200, "127.0.0.1": 200, "127.0.0.1:1": 200, "[::1]": 200, "[::1]:9900": 200, machine: 200,
		"evil.example": 403, "evil.example:9900": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "127.0.0.1:x:y": 403,
	} {
		for _, path := range []string{"/", "/metrics", "/ready", "/stream"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, p.adminURL(path), nil)
			require.NoError(t, err)
			req.Host = host
			if path != "/" && path != "/stream" {
				req.Method = http.MethodGet
			}
			resp, err := client.Do(req)
			require.NoError(t, err)
			_ = resp.Body.Close()
			assert.Equal(t, want, resp.StatusCode, "%s %s", host, path)
		}
	}
}

// TestGateway_ReadOnlyDashboard checks that no action is done without a password, also on the loopback interface.
func TestGateway_ReadOnlyDashboard(t *testing.T) {
	p := startGateway(t, adminConfig(behind(t, ok), ""))
	resp := p.post("/action", url.Values{"do": {"reload"}, "target": {p.file}}, "ann", "")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
}
