//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// A gate is a server whose requests wait to be let through, or stream until they end.
type gate struct {
	entered chan struct{}
	open    chan struct{}
}

func newGate() *gate { return &gate{make(chan struct{}, 100), make(chan struct{})} }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/stream" {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: first\n\n")
		_ = http.NewResponseController(w).Flush()
	}
	g.entered <- struct{}{}
	select {
	case <-g.open:
		_, _ = io.WriteString(w, "done")
	case <-r.Context().Done():
	}
}

func TestGateway_Shutdown(t *testing.T) {
	t.Parallel()
	g := newGate()
	p := startGateway(t, plainConfig(behind(t, g.ServeHTTP), `
  shutdown_delay: 300ms
  routes: [{match: /, upstream: server}]
`, ""))
	type result struct {
		status int
		body   string
		closed bool
		err    error
	}
	answered := make(chan result, 1)
	go func() {
		resp, err := client.Get(p.url("/slow"))
		if err != nil {
			answered <- result{err: err}
			return
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		answered <- result{resp.StatusCode, string(body), resp.Close, err}
	}()
	<-g.entered
	p.signal(syscall.SIGTERM)
	p.awaitLog("the gateway stops")
	resp, body := get(t, p.adminURL("/ready"))
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "before it refuses a connection")
	assert.Contains(t, body, "the gateway stops")
	resp, _ = get(t, p.adminURL("/live"))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	require.Eventually(t, func() bool { // after the delay
		c, err := net.Dial("tcp", p.listen)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, patience, 10*time.Millisecond)
	close(g.open)
	r := <-answered
	require.NoError(t, r.err)
	assert.Equal(t, "done", r.body)
	assert.Equal(t, http.StatusOK, r.status)
	assert.Equal(t, 0, p.exit())
	assert.Len(t, p.accessLog(), 1, "the log is complete")
}

// TestGateway_ShutdownCutsStreams checks that a stream does not keep the process longer than the timeout.
func TestGateway_ShutdownCutsStreams(t *testing.T) {
	t.Parallel()
	g := newGate()
	p := startGateway(t, plainConfig(behind(t, g.ServeHTTP), `
  shutdown_timeout: 200ms
  routes: [{match: /, upstream: server}]
`, ""))
	resp, err := client.Get(p.url("/stream"))
	require.NoError(t, err)
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "data: first\n", line)
	p.signal(syscall.SIGTERM)
	assert.Equal(t, 0, p.exit())
	assert.Contains(t, p.logged(), "cut off")
	_, err = io.ReadAll(resp.Body)
	assert.Error(t, err, "the answer broke off, which the client must see")
}

func TestGateway_SecondSignal(t *testing.T) {
	t.Parallel()
	g := newGate()
	p := startGateway(t, plainConfig(behind(t, g.ServeHTTP), "  shutdown_timeout: 1h\n  routes: [{match: /, upstream: server}]", ""))
	status := make(chan int, 1)
	go func() {
		resp, err := client.Get(p.url("/slow"))
		if err != nil {
			status <- 0
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-g.entered
	p.signal(syscall.SIGINT)
	p.awaitLog("the gateway stops")
	p.signal(syscall.SIGINT)
	assert.Equal(t, 2, p.exit())
	assert.Equal(t, http.StatusServiceUnavailable, <-status)
}

// TestGateway_ReloadUnderLoad changes everything that a file can change while requests run. None is lost.
func TestGateway_ReloadUnderLoad(t *testing.T) {
	t.Parallel()
	server := behind(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	other := behind(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	config := func(version int) string {
		addresses := fmt.Sprintf("%q", server)
		if version%2 == 1 {
			addresses += fmt.Sprintf(", %q", other)
		}
		if version%3 == 2 {
			addresses = fmt.Sprintf("%q", other)
		}
		return fmt.Sprintf(`
gateway:
  access_log: {off: %[4]t}
  upstreams: {server-%[2]d: {addresses: [%[3]s]}}
  policies: {all: {limiter: slots-%[2]d}}
  routes:
    - {match: /, upstream: server-%[2]d, policies: [all], pipeline: attempts-%[1]d}
limiters:
  slots-%[2]d: {concurrency: {permit_limit: 2, queue_limit: 1000}}
pipelines:
  attempts-%[1]d: {strategies: [{retry: {max_retries: 1, handle: retryable}}, {timeout: {timeout: 10s}}]}
`, version, version/2, addresses, version%2 == 0)
	}
	p := startGateway(t, config(0))
	var sent, wrong atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			keeps := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}, Timeout: patience}
			defer keeps.CloseIdleConnections()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				text := fmt.Sprintf("client %d, request %d", i, n)
				resp, err := keeps.Post(p.url("/"), "text/plain", strings.NewReader(text))
				if err == nil {
					var body []byte
					body, err = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err == nil && (resp.StatusCode != http.StatusOK || string(body) != text) {
						err = fmt.Errorf("%d: %s", resp.StatusCode, body)
					}
				}
				if sent.Add(1); err != nil {
					wrong.Add(1)
					t.Errorf("%s: %v", text, err)
				}
			}
		})
	}
	const versions = 12
	for version := 1; version <= versions; version++ {
		before := sent.Load()
		p.write(config(version))
		p.signal(syscall.SIGHUP)
		require.Eventually(t, func() bool {
			return strings.Count(p.logged(), `"configuration loaded"`) > version && sent.Load() > before+50
		}, patience, 5*time.Millisecond, "version %d", version)
	}
	close(stop)
	clients.Wait()
	assert.Zero(t, wrong.Load(), "of %d requests", sent.Load())
	p.write("gateway: {routes: []")
	p.signal(syscall.SIGHUP)
	require.Eventually(t, func() bool {
		resp, body := get(t, p.adminURL("/ready"))
		return resp.StatusCode == http.StatusOK && strings.Contains(body, `"error"`)
	}, patience, 20*time.Millisecond, "a wrong file is told by /ready, and the last good one stays in force")
	resp, _ := get(t, p.url("/"))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	p.signal(syscall.SIGTERM)
	assert.Equal(t, 0, p.exit())
}

// TestGateway_UnixSocket listens on a socket that a process has left behind, and trusts the proxy that connects to it.
func TestGateway_UnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "weir") //nolint:usetesting // the path of a socket has at most about 100 bytes, and that of t.TempDir is long
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	left, err := net.Listen("unix", socket)
	require.NoError(t, err)
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, left.Close())

	server := behind(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%q", r.Header["X-Forwarded-For"])
	})
	p := startGateway(t, plainConfig(server, "  trusted_proxies: [unix]\n  routes: [{match: /, upstream: server}]", ""), "-listen", "unix:"+socket)
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://gateway/", nil)
	require.NoError(t, err)
	req.Header.Set("X-Forwarded-For", "192.0.2.7")
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	_ = resp.Body.Close()
	assert.Equal(t, `["192.0.2.7"]`, string(body))
	require.Eventually(t, func() bool { return len(p.accessLog()) == 1 }, patience, 10*time.Millisecond)
	assert.Equal(t, "192.0.2.7", p.accessLog()[0]["client"])

	r := weir("", "gateway", "-config", p.file, "-listen", "unix:"+socket, "-admin", "off")
	assert.Equal(t, 2, r.status)
	assert.Contains(t, r.err, "another process listens there")

	datagrams := filepath.Join(dir, "d") // a socket in use that cannot be connected to
	used, err := net.ListenPacket("unixgram", datagrams)
	require.NoError(t, err)
	defer used.Close()
	r = weir("", "gateway", "-config", p.file, "-listen", "unix:"+datagrams, "-admin", "off")
	assert.Equal(t, 2, r.status)
	assert.Contains(t, r.err, "cannot be replaced")
	assert.FileExists(t, datagrams)
}
