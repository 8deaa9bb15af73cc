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

// TestGateway_LastAddress has an upstream with one address, as most have: what one client or one route does to it must not be
// answered with 503 for all others.
func TestGateway_LastAddress(t *testing.T) {
	t.Parallel()
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
	for _, field := range []string{"retry_rejections: true", "name: x"} { // of a circuit breaker that rejects something
		r = weir(file(two, field), "check", "-")
		name, _, _ := strings.Cut(field, ":")
		assert.Contains(t, r.err, "-:2:85: gateway.upstreams.u.health: unknown field \""+name+"\", there are break_duration, consecutive_failures, ")
	}
	r = weir(file(`"http://127.0.0.1:1"`, "break_duration: 10s"), "check", "-")
	assert.Contains(t, r.err, "gateway.upstreams.u.health is without effect: there is one address, which is always asked")
}

// exchange sends bytes on a connection of their own, and returns everything that comes until it is closed.
func exchange(t *testing.T, p *process, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url(""), "http://"))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	all, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(all)
}

// TestGateway_EveryAnswerIsLogged checks that the access log and the metrics have the answers that net/http gives by itself.
func TestGateway_EveryAnswerIsLogged(t *testing.T) {
	t.Parallel()
	p := startGateway(t, plainConfig(behind(t, ok), "  routes: [{match: /, upstream: server}]", ""))
	var want []float64
	for _, c := range []struct {
		text   string
		status int
	}{
		{"nonsense\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", 417},
		{"GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", 2<<20) + "\r\n\r\n", 431},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: odd\r\n\r\n", 501},
		{"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505},
		{"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\nnonsense\r\n\r\n", 400}, // the second one
	} {
		if c.status == 431 { // the rest of the header is not read, and the connection may be reset
			conn, err := net.Dial("tcp", strings.TrimPrefix(p.url(""), "http://"))
			require.NoError(t, err)
			_, _ = io.WriteString(conn, c.text)
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		} else {
			assert.Contains(t, exchange(t, p, c.text), fmt.Sprintf("HTTP/1.1 %d ", c.status))
		}
		if strings.Contains(c.text, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") {
			want = append(want, 200)
		}
		want = append(want, float64(c.status))
	}
	assert.EventuallyWithT(t, func(t *assert.CollectT) {
		var got []float64
		for _, line := range p.accessLog() {
			got = append(got, line["status"].(float64))
			assert.Equal(t, "127.0.0.1", line["client"])
		}
		assert.ElementsMatch(t, want, got)
	}, patience, 10*time.Millisecond)
	_, metrics := get(t, p.adminURL("/metrics"))
	for _, status := range []string{"417", "431", "501", "505"} {
		assert.Regexp(t, `http_server_request_duration_seconds_count\{.*http_response_status_code="`+status+`".*\} 1`, metrics)
	}
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

func TestGateway_Via(t *testing.T) {
	t.Parallel()
	server := behind(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Join(r.Header["Via"], ", "))
	})
	for via, want := range map[string]string{"": "1.1 weir", "  via: edge\n": "1.1 edge", "  via: \"off\"\n": ""} {
		p := startGateway(t, plainConfig(server, via+"  routes: [{match: /, upstream: server}]", ""))
		_, got := get(t, p.url("/"))
		assert.Equal(t, want, got)
		_, got = get(t, p.url("/"), "Via", "1.0 before")
		assert.Equal(t, strings.TrimSuffix("1.0 before, "+want, ", "), got)
	}
}
