package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/testserver"
)

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }

// storeConfig is a gateway whose limiter is in a store.
func storeConfig(server, store, more string) string {
	return plainConfig(server, fmt.Sprintf(`
  stores: {shared: {%s, call_timeout: 1s}}
  policies:
    overall: {limiter: overall}
    open: {limiter: open, fail_open: true}
  routes:
    - {match: /, upstream: server, policies: [overall]}
    - {match: /open, upstream: server, policies: [open]}
%s`, store, more), fmt.Sprintf(`
limiters:
  overall: {fixed_window: {permit_limit: 3, window: 1h}, store: shared}
  open: {fixed_window: {permit_limit: 3, window: 1h}, store: shared}
# %d
`, time.Now().UnixNano()))
}

// TestGateway_StoreAway checks that a store that is away at the start keeps nothing from starting.
func TestGateway_StoreAway(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone := l.Addr().String()
	require.NoError(t, l.Close())
	server := behind(t, ok)
	for _, store := range []string{
		fmt.Sprintf("redis: 'redis://user:hunter2@%s/0'", gone),
		fmt.Sprintf("postgres: 'postgres://user:hunter2@%s/weir', migrate: true", gone),
	} {
		p := startGateway(t, storeConfig(server, store, ""))
		resp, _ := get(t, p.url("/"))
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		resp, _ = get(t, p.url("/open"))
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		require.Eventually(t, func() bool {
			_, _ = get(t, p.url("/"))
			resp, body := get(t, p.adminURL("/ready"))
			return resp.StatusCode == http.StatusOK && strings.Contains(body, `"available": false`)
		}, patience, 50*time.Millisecond, "/ready tells it, and does not fail")
		_, body := get(t, p.adminURL("/ready"))
		assert.NotContains(t, body+p.logged(), "hunter2")
		_, body = get(t, p.adminURL("/check?url=/"))
		assert.Contains(t, body, "It would be rejected by overall.")
		_, body = get(t, p.adminURL("/check?url=/open"))
		assert.Contains(t, body, "It would be let through.")
		assert.Contains(t, body, "fail_open")

		p.write(strings.Replace(storeConfig(server, store, ""), "gateway:\n", "gateway:\n  ready: {require_stores: true}\n", 1))
		require.Eventually(t, func() bool {
			resp, body := get(t, p.adminURL("/ready"))
			return resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(body, "a store is unavailable")
		}, patience, 50*time.Millisecond, "the file can make it fail")
	}
}

// TestGateway_SharedLimits checks that two gateways with one store share a limit.
func TestGateway_SharedLimits(t *testing.T) {
	t.Parallel()
	server := behind(t, ok)
	for name, store := range map[string]func() string{
		"Redis":      func() string { return fmt.Sprintf("redis: %q, prefix: gateway-test", testserver.NewRedis(t).URL) },
		"PostgreSQL": func() string { return fmt.Sprintf("postgres: %q, migrate: true", testserver.NewPostgres(t).URL) },
	} {
		t.Run(name, func(t *testing.T) {
			config := storeConfig(server, store(), "")
			one, two := startGateway(t, config), startGateway(t, config)
			require.Eventually(t, func() bool {
				_, a := get(t, one.adminURL("/ready"))
				_, b := get(t, two.adminURL("/ready"))
				return strings.Contains(a, `"available": true`) && strings.Contains(b, `"available": true`)
			}, patience, 20*time.Millisecond, "the tables are made")
			counts := map[int]int{}
			for i := range 8 {
				resp, _ := get(t, []*program{one, two}[i%2].url("/"))
				counts[resp.StatusCode]++
			}
			assert.Equal(t, map[int]int{200: 3, 429: 5}, counts)
		})
	}
}

// neighbour is what real servers before and behind the gateway must let through.
func assertThrough(t *testing.T, url string) {
	t.Helper()
	_, body := get(t, url+"/echo?a=1;b=%2F", "X-Forwarded-For", "192.0.2.77")
	assert.Contains(t, body, "/echo?a=1;b=%2F")
	assertEcho(t, "ws"+strings.TrimPrefix(url, "http")+"/websocket")
}

// TestGateway_BetweenNeighbours puts the gateway between nginx or Caddy and nginx.
func TestGateway_BetweenNeighbours(t *testing.T) {
	t.Parallel()
	server := behind(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			_, _ = fmt.Fprintf(w, "%s for=%q proto=%q host=%q", r.RequestURI, r.Header["X-Forwarded-For"], r.Header["X-Forwarded-Proto"], r.Header["X-Forwarded-Host"])
			return
		}
		if r.URL.Path == "/ticks" {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
			}
			return
		}
		streams(w, r)
	})
	const upgrade = `proxy_http_version 1.1; proxy_set_header Host $http_host;
		proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection;`
	behindNginx := testserver.Nginx(t, fmt.Sprintf(`server { listen {{addr}}; location / { proxy_pass %s; proxy_buffering off; %s } }`, server, upgrade))
	p := startGateway(t, plainConfig("http://"+behindNginx.Addr(), `
  trusted_proxies: [127.0.0.1]
  keys: {client: {address: {}}}
  policies: {per-client: {limiter: per-client}}
  routes:
    - {match: /, upstream: server}
    - {match: /limited, upstream: server, policies: [per-client]}
`, `
limiters: {per-client: {partitioned: {key: client, each: {fixed_window: {permit_limit: 1, window: 1h}}}}}
`))
	before := map[string]string{
		"none": p.url(""),
		"nginx": "http://" + testserver.Nginx(t, fmt.Sprintf(`server { listen {{addr}}; location / {
			proxy_pass http://%s; %s proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; } }`, p.listen, upgrade)).Addr(),
		"Caddy": "http://" + testserver.Caddy(t, "http://{{addr}}\nreverse_proxy "+p.listen).Addr(),
	}
	for name, url := range before {
		t.Run(name, func(t *testing.T) {
			assertThrough(t, url)
			_, body := get(t, url+"/ticks")
			assert.Equal(t, "data: 0\n\ndata: 1\n\ndata: 2\n\n", body)
			_, body = get(t, url+"/echo", "X-Forwarded-For", "192.0.2.77")
			switch name {
			case "none", "nginx": // both pass on what the client claims: the gateway trusts this machine in the test
				assert.Contains(t, body, "192.0.2.77, ")
			default: // Caddy trusts no client by default
				assert.NotContains(t, body, "192.0.2.77")
			}
			assert.Contains(t, body, "127.0.0.1")
		})
	}
	// The limit is that of the client that nginx names, not of nginx.
	for client, want := range map[string]int{"192.0.2.1": 1, "192.0.2.2": 1} {
		granted := 0
		for range 3 {
			resp, _ := get(t, before["nginx"]+"/limited", "X-Forwarded-For", client)
			if resp.StatusCode == http.StatusOK {
				granted++
			}
		}
		assert.Equal(t, want, granted, client)
	}
}
