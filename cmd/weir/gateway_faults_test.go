package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	for _, field := range []string{"retry_rejections: true", "name: x"} { // of a circuit breaker that rejects something
		r = weir(file(two, field), "check", "-")
		name, _, _ := strings.Cut(field, ":")
		assert.Contains(t, r.err, "-:2:85: gateway.upstreams.u.health: unknown field \""+name+"\", there are break_duration, consecutive_failures, ")
	}
	r = weir(file(`"http://127.0.0.1:1"`, "break_duration: 10s"), "check", "-")
	assert.Contains(t, r.err, "gateway.upstreams.u.health is without effect: there is one address, which is always asked")
}

// TestGateway_SwitchedBytes checks that the access log counts what a client gets after its connection was switched.
func TestGateway_SwitchedBytes(t *testing.T) {
	server := behind(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\nhello")
		line, _ := bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, line)
		_ = c.Close()
	})
	p := startGateway(t, plainConfig(server, "  routes: [{match: /, upstream: server}]", ""))
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url(""), "http://"))
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	b := bufio.NewReader(c)
	resp, err := http.ReadResponse(b, nil)
	require.NoError(t, err)
	_ = resp.Body.Close()
	_, err = io.WriteString(c, "line\n")
	require.NoError(t, err)
	got, err := b.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "helloline\n", got)
	_ = c.Close()
	assert.EventuallyWithT(t, func(t *assert.CollectT) {
		if lines := p.accessLog(); assert.Len(t, lines, 1) {
			assert.EqualValues(t, 101, lines[0]["status"])
			assert.EqualValues(t, len("helloline\n"), lines[0]["bytes"])
		}
	}, patience, 10*time.Millisecond)
}

// TestGateway_PoliciesBeginAtZero checks that a policy that nothing has asked yet is in the metrics: Prometheus then sees its first
// burst of rejections grow from 0.
func TestGateway_PoliciesBeginAtZero(t *testing.T) {
	t.Parallel()
	p := startGateway(t, plainConfig(behind(t, ok), `
  policies: {few: {limiter: few}, unused: {limiter: few}}
  routes: [{match: /, upstream: server}, {match: /few, upstream: server, policies: [few]}]
`, "limiters: {few: {concurrency: {permit_limit: 5}}}"))
	_, metrics := get(t, p.adminURL("/metrics"))
	for _, result := range []string{"acquired", "rejected"} {
		assert.Regexp(t, `weir_rate_limiter_requests_total\{.*pipeline_name="gateway".*result="`+result+`".*strategy_name="few"\} 0`, metrics)
	}
	assert.NotContains(t, metrics, `strategy_name="unused"`)
}
