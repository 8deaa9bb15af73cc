package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestGateway_LastAddress has an upstream with one address, as most have: what one client or one route does to it must not be
// answered with 503 for all others.
func TestGateway_LastAddress(t *testing.T) {
	server := behind(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/slow":
			<-r.Context().Done()
		default:
			ok(w, r)
		}
	})
	p := startGateway(t, plainConfig(server, `
  routes:
    - {match: /, upstream: server}
    - {match: /slow, upstream: server, pipeline: impatient}
`, "pipelines: {impatient: {strategies: [timeout: {timeout: 20ms}]}}"))
	for path, want := range map[string]int{"/panic": http.StatusBadGateway, "/slow": http.StatusGatewayTimeout} {
		for range 8 {
			resp, _ := get(t, p.url(path))
			assert.Equal(t, want, resp.StatusCode)
		}
		for range 5 {
			resp, _ := get(t, p.url("/"))
			assert.Equal(t, http.StatusOK, resp.StatusCode, "after %s", path)
		}
	}
}

func TestCheck_GatewayHealth(t *testing.T) {
	file := func(addresses, health string) string {
		return fmt.Sprintf("gateway:\n  upstreams: {u: {addresses: [%s], health: {%s}}}\n  routes: [{match: /, upstream: u}]\n", addresses, health)
	}
	const two = `"http://127.0.0.1:1", "http://127.0.0.1:2"`
	for health, want := range map[string]string{
		"":                    "; prefers the other addresses for 5s after 5 failures in a row, or after failures of 10% of at least 100 requests in 30s\n",
		"break_duration: 10s": "; prefers the other addresses for 10s after 5 failures in a row, or after failures of 10% of at least 100 requests in 30s\n",
		"failure_ratio: off":  "; prefers the other addresses for 5s after 5 failures in a row\n",
		"consecutive_failures: off, minimum_throughput: 9": "; prefers the other addresses for 5s after failures of 10% of at least 9 requests in 30s\n",
		"off: true": "; treats addresses that fail like others\n",
	} {
		r := weir(file(two, health), "explain", "-")
		assert.Equal(t, 0, r.status, r.err)
		assert.Contains(t, r.out, want)
	}
	r := weir(file(two, "failure_ratio: off, consecutive_failures: off"), "check", "-")
	assert.Contains(t, r.err, "failure_ratio")
	r = weir(file(`"http://127.0.0.1:1"`, "break_duration: 10s"), "check", "-")
	assert.Contains(t, r.err, "gateway.upstreams.u.health is without effect: there is one address, which is always asked")
}
