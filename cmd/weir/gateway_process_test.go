package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary run as weir itself, so that tests have a process of their own for it.
const asProgram = "WEIR_TEST_AS_PROGRAM"

// patience is how long a test waits for what must happen, also on a machine that does much else.
const patience = 2 * time.Minute

// A program is a running server of weir.
type program struct {
	t             *testing.T
	ready         string // the line of the log that says that it is
	file          string // its configuration
	listen, admin string // addresses
	http          string // of weir rls
	stdout        io.Writer
	cmd           *exec.Cmd
	ended         chan error

	mu       sync.Mutex
	log      bytes.Buffer // stderr
	requests bytes.Buffer // stdout
}

// startGateway starts weir gateway with a configuration.
func startGateway(t *testing.T, config string, args ...string) *program {
	t.Helper()
	p := newProgram(t, "the gateway is ready", config)
	return p.start(append([]string{"gateway", "-config", p.file, "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0"}, args...)...)
}

// newProgram returns a program with a configuration, before its start.
func newProgram(t *testing.T, ready, config string) *program {
	t.Helper()
	p := &program{t: t, ready: ready, file: filepath.Join(t.TempDir(), "weir.yaml")}
	p.stdout = &lockedWriter{p: p, to: &p.requests}
	p.write(config)
	return p
}

// start starts weir and waits until it is ready. It ends with the test.
func (p *program) start(args ...string) *program {
	t := p.t
	t.Helper()
	p.ended = make(chan error, 1)
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout = p.stdout
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("the log of weir:\n%s", p.logged())
		}
	})
	ready := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.line(lines.Bytes(), ready)
		}
		if err := lines.Err(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("the log of weir: %v", err)
		}
		p.ended <- p.cmd.Wait()
		close(p.ended)
	}()
	select {
	case <-ready:
	case <-p.ended:
		require.Fail(t, "weir has ended", p.logged())
	case <-time.After(patience):
		require.Fail(t, "weir is not ready", p.logged())
	}
	return p
}

type lockedWriter struct {
	p  *program
	to *bytes.Buffer
}

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.to.Write(b)
}

// line takes a line of the log.
func (p *program) line(line []byte, ready chan struct{}) {
	var l struct{ Msg, Listen, Admin, HTTP string }
	_ = json.Unmarshal(line, &l)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.Write(line)
	p.log.WriteByte('\n')
	if l.Msg == p.ready {
		p.listen, p.admin, p.http = l.Listen, strings.TrimPrefix(l.Admin, "http://"), l.HTTP
		close(ready)
	}
}

// logged returns the log so far.
func (p *program) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// accessLog returns the lines of the access log so far.
func (p *program) accessLog() (lines []map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.requests.String()) {
		var l map[string]any
		require.NoError(p.t, json.Unmarshal([]byte(line), &l), line)
		lines = append(lines, l)
	}
	return lines
}

// write replaces the configuration, as editors do: in one step.
func (p *program) write(config string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(p.file+".new", []byte(config), 0o600))
	require.NoError(p.t, os.Rename(p.file+".new", p.file))
}

// awaitLog waits until the log has a text.
func (p *program) awaitLog(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.logged(), text) }, patience, 10*time.Millisecond, text)
}

// exit waits for the end of the process and returns its status.
func (p *program) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.Fail(p.t, "weir has not ended", p.logged())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *program) url(path string) string   { return "http://" + p.listen + path }
func (p *program) adminURL(s string) string { return "http://" + p.admin + s }

// client keeps no connections, so that no goroutine outlives a test.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// An answer is what a test wants of a response.
type answer struct {
	StatusCode int
	Header     http.Header
}

// get returns the answer of a URL and its body.
func get(t *testing.T, url string, header ...string) (answer, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header}, string(body)
}

// behind starts a server behind the gateway.
func behind(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// plainConfig is a gateway before one server, with more of the gateway's part and the rest of the file. Its clients, which are the tests,
// have time also on a busy machine.
func plainConfig(server, gateway, rest string) string {
	return fmt.Sprintf("gateway:\n  read_header_timeout: 5m\n  upstreams: {server: {addresses: [%q]}}\n%s\n%s\n", server, gateway, rest)
}

func TestGateway(t *testing.T) {
	t.Parallel()
	server := behind(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s", r.Method, r.URL.Path)
	})
	p := startGateway(t, plainConfig(server, `
  body: problem-json
  keys: {api: {header: X-Api-Key}}
  policies: {per-key: {limiter: per-key, headers: draft-11}, unasked: {limiter: per-key}, unused: {limiter: per-key}}
  routes:
    - {match: "GET /orders/{id}", upstream: server, policies: [per-key]}
    - {match: /free/, upstream: server, strip_prefix: /free}
    - {match: /unasked, upstream: server, policies: [unasked]}
`, `
limiters: {per-key: {partitioned: {key: api, each: {fixed_window: {permit_limit: 2, window: 1h}}}}}
`), "-admin", ":0")
	assert.Regexp(t, `^127\.0\.0\.1:`, p.admin, "without a host, no other machine can connect")
	for i, want := range []int{200, 200, 429} {
		resp, body := get(t, p.url("/orders/7"), "X-Api-Key", "secret")
		require.Equal(t, want, resp.StatusCode, body)
		assert.Contains(t, resp.Header.Get("RateLimit"), fmt.Sprintf(`"per-key";r=%d`, max(1-i, 0)))
	}
	resp, body := get(t, p.url("/orders/7"), "X-Api-Key", "another")
	assert.Equal(t, "GET /orders/7", body)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	_, body = get(t, p.url("/free/x"))
	assert.Equal(t, "GET /x", body)
	resp, _ = get(t, p.url("/none"))
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)

	require.Eventually(t, func() bool { return len(p.accessLog()) == 6 }, patience, 10*time.Millisecond)
	lines := p.accessLog()
	assert.Equal(t, "granted", lines[0]["decision"])
	assert.Equal(t, "GET /orders/{id}", lines[0]["route"])
	assert.Equal(t, strings.TrimPrefix(server, "http://"), lines[0]["address"])
	assert.Equal(t, "rejected", lines[2]["decision"])
	assert.Equal(t, "per-key", lines[2]["policy"])
	assert.Equal(t, lines[0]["key"], lines[2]["key"])
	assert.NotEqual(t, lines[0]["key"], lines[3]["key"])
	assert.NotContains(t, fmt.Sprint(lines), "secret")

	resp, body = get(t, p.adminURL("/metrics"))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	for _, want := range []string{
		`http_server_request_duration_seconds_count{http_request_method="GET",http_response_status_code="429",http_route="/orders/{id}",url_scheme="http"} 1`,
		`weir_rate_limiter_requests_total{`, `go_goroutines`, `process_cpu_seconds_total`,
	} {
		assert.Contains(t, body, want)
	}
	for _, result := range []string{"acquired", "rejected"} { // Prometheus sees the first burst of rejections grow from 0
		assert.Regexp(t, `weir_rate_limiter_requests_total\{.*pipeline_name="gateway".*result="`+result+`".*strategy_name="unasked"\} 0`, body)
	}
	assert.NotContains(t, body, `strategy_name="unused"`)
	resp, _ = get(t, p.adminURL("/live"))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	resp, body = get(t, p.adminURL("/ready"))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, body, `"ready": true`)
	resp, _ = get(t, p.adminURL("/debug/pprof/"))
	assert.Equal(t, http.StatusNotFound, resp.StatusCode, "pprof only if the file says so")
}

// TestServers_WrongFile checks why servers do not begin.
func TestServers_WrongFile(t *testing.T) {
	t.Parallel()
	plain := func(routes string) string { return plainConfig("http://127.0.0.1:1", "  routes: "+routes, "") }
	for name, c := range map[string]struct {
		server, config string
		status         int
		text           string
	}{
		"wrong field":         {"gateway", plain("[{match: /, upstream: servers}]"), 1, `"servers"`},
		"no gateway":          {"gateway", "pipelines: {a: {strategies: []}}\n", 1, ":1:1: gateway is missing"},
		"no such file":        {"gateway", "", 2, "none.yaml"},
		"no certificate":      {"gateway", plain("[{match: /, upstream: server}]\n  tls: {certificate: /none, key: /none}"), 2, "/none"},
		"no rls":              {"rls", "pipelines: {a: {strategies: []}}\n", 1, ":1:1: rls is missing"},
		"no certificate, rls": {"rls", smallRLS("  tls: {certificate: /none, key: /none}"), 2, "/none"},
		"no such address":     {"rls", smallRLS("  http: 256.0.0.1:1"), 2, "rls.http: "},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "none.yaml")
			if c.config != "" {
				file = write(t, c.config)
			}
			r := weir("", c.server, "-config", file, "-listen", "127.0.0.1:0", "-admin", "off")
			assert.Equal(t, c.status, r.status, r.err)
			assert.Contains(t, r.err, c.text)
		})
	}
	r := weir("", "gateway")
	assert.Equal(t, 2, r.status)
	assert.Contains(t, r.err, "-config")
	r = weir("", "version")
	assert.Equal(t, 0, r.status)
	assert.Contains(t, r.out, "weir ")
}

// TestExample checks the configuration that the repository shows first.
func TestExample(t *testing.T) {
	r := weir("", "check", "../../examples/gateway/weir.yaml")
	assert.Equal(t, 0, r.status, r.err)
	assert.Empty(t, r.err)
}
