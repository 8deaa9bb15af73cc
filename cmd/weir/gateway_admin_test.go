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
func (p *program) post(path string, form url.Values, user, password string) answer {
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
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("pass:word\n"), 0o600))
	p := startGateway(t, adminConfig(behind(t, ok), fmt.Sprintf("  dashboard: {token_file: %q}", file)))
	_, _ = get(t, p.url("/orders/1"), "X-Api-Key", "secret")
	resp, body := get(t, p.adminURL("/"), "Accept", "text/html")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, resp.Header.Get("Content-Type"), "text/html")
	for _, want := range []string{"gateway", "per-key", "overall"} {
		assert.Contains(t, body, want)
	}
	resp, _ = get(t, p.adminURL("/debug/pprof/"))
	assert.Equal(t, http.StatusOK, resp.StatusCode)

	reload := url.Values{"do": {"reload"}, "target": {p.file}}
	assert.Equal(t, http.StatusUnauthorized, p.post("/action", reload, "", "").StatusCode)
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

// TestGateway_CheckBehind checks what the check says of the pipeline of a route and of the circuits of its addresses.
func TestGateway_CheckBehind(t *testing.T) {
	t.Parallel()
	server := behind(t, ok)
	p := startGateway(t, fmt.Sprintf(`
gateway:
  access_log: {keys: true}
  dashboard: {show_keys: true}
  keys: {api: {header: X-Api-Key}, order: {path_value: id}}
  upstreams:
    server: {addresses: [%q]}
    half: {addresses: [%[1]q, "http://127.0.0.1:1"], health: {consecutive_failures: 1, break_duration: 1h}}
    down: {addresses: ["http://127.0.0.1:1", "http://127.0.0.1:2"], health: {consecutive_failures: 1, break_duration: 1h}}
  policies: {overall: {limiter: overall}}
  routes:
    - {match: "/api/orders/{id}", upstream: server, policies: [overall], pipeline: outer, strip_prefix: /api}
    - {match: /half, upstream: half}
    - {match: /down, upstream: down}
limiters:
  overall: {fixed_window: {permit_limit: 100, window: 1h}}
  per-order: {partitioned: {key: order, each: {fixed_window: {permit_limit: 1, window: 1h}}}}
  per-key: {partitioned: {key: api, each: {fixed_window: {permit_limit: 1, window: 1h}}}}
  every: {chain: [per-key, overall]}
pipelines:
  outer: {strategies: [rate_limiter: {limiter: per-order}, pipeline: {name: inner}, pipeline: {name: inner}]}
  inner:
    strategies:
      - rate_limiter: {partitioned: {key: api, each: {token_bucket: {token_limit: 1, tokens_per_period: 1, replenishment_period: 1h}}}}
      - rate_limiter: {name: chained, limiter: every}
      - rate_limiter: {name: silent, shadow: true, fixed_window: {permit_limit: 1, window: 1h}}
      - rate_limiter: {name: shedding, throttler: {}}
      - circuit_breaker: {}
`, server))
	type result struct {
		Policy, Limiter, Key, Reason, Warning string
		Matched, Granted                      bool
		RetryAfter                            time.Duration `json:"retry_after"`
	}
	type answer struct {
		Granted  bool
		By       string `json:"rejected_by"`
		NotAsked string `json:"not_asked"`
		Results  []result
	}
	ask := func(path, header string) (a answer) {
		query := url.Values{"url": {path}, "header": {header}}
		resp, body := get(t, p.adminURL("/check?"+query.Encode()), "Accept", "application/json")
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		require.NoError(t, json.Unmarshal([]byte(body), &a), body)
		for i := range a.Results {
			if r := &a.Results[i]; r.RetryAfter != 0 {
				assert.Greater(t, r.RetryAfter, 50*time.Minute)
				assert.LessOrEqual(t, r.RetryAfter, time.Hour)
				r.RetryAfter = time.Hour
			}
		}
		return a
	}
	want := answer{NotAsked: "inner/shedding", Results: []result{
		{Policy: "overall", Limiter: "overall", Matched: true, Granted: true},
		{Policy: "pipeline outer", Limiter: "per-order", Key: "7", Matched: true, Granted: true},
		{Policy: "pipeline inner", Limiter: "inner/RateLimiter", Key: "secret", Matched: true, Granted: true},
		{Policy: "pipeline inner", Limiter: "every", Matched: true, Granted: true},
		{Policy: "pipeline inner", Limiter: "inner/silent", Matched: true, Granted: true},
		{Policy: "pipeline inner", Limiter: "inner/shedding", Reason: "it cannot be asked without taking a permit"},
		{Policy: "pipeline inner", Limiter: "circuit inner/CircuitBreaker", Matched: true, Granted: true},
	}}
	for range 3 { // it takes nothing
		require.Equal(t, want, ask("/api/orders/7", "X-Api-Key: secret"))
	}
	_, _ = get(t, p.url("/api/orders/7"), "X-Api-Key", "secret")
	want.By = "per-order"
	for _, i := range []int{1, 2, 3} {
		want.Results[i].Granted, want.Results[i].Reason, want.Results[i].RetryAfter = false, "no permit free", time.Hour
	}
	want.Results[4].Reason = "no permit free"
	want.Results[4].Warning = "the strategy is in shadow mode: it only reports, and lets the execution go on"
	assert.Equal(t, want, ask("/api/orders/7", "X-Api-Key: secret"))
	assert.True(t, ask("/api/orders/8", "X-Api-Key: other").Results[2].Granted, "another key")

	for range 20 {
		_, _ = get(t, p.url("/half"))
		_, _ = get(t, p.url("/down"))
	}
	a := ask("/half", "A: b")
	assert.True(t, a.Granted)
	require.Len(t, a.Results, 2)
	assert.Equal(t, result{
		Policy: "upstream half", Limiter: "circuit of 127.0.0.1:1", Matched: true, Granted: true,
		Reason: "the circuit is open", Warning: "the address is asked only if no other one can be",
	}, a.Results[1])
	a = ask("/down", "A: b")
	assert.True(t, a.Granted, "a circuit never rejects")
	assert.Equal(t, result{
		Policy: "upstream down", Limiter: "circuit of 127.0.0.1:2", Matched: true, Granted: true,
		Reason: "the circuit is open", Warning: "the address is asked only if no other one can be",
	}, a.Results[1])
}
