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
  stores: {shared: {%s, call_timeout: 20s}}
  policies:
    overall: {limiter: overall}
    open: {limiter: open, fail_open: true}
  routes:
    - {match: /, upstream: server, policies: [overall]}
    - {match: /open, upstream: server, policies: [open]}
%s`, store, more), fmt.Sprintf(`
limiters:
  overall: {sliding_window: {permit_limit: 3, window: 10h, segments_per_window: 10}, store: shared}
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
