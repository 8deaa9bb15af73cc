//go:build unix

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// silentStore listens like a Redis server that never answers, and returns a configuration whose requests wait for it.
func silentStore(t *testing.T, timeout time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		var all []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			all = append(all, c)
		}
		for _, c := range all {
			_ = c.Close()
		}
	}()
	return fmt.Sprintf(`
rls:
  shutdown_delay: 10s
  shutdown_timeout: %v
  stores: {silent: {redis: "redis://%s?max_retries=-1", call_timeout: 2s}}
  counters: {store: silent, outage: fail_open}
  domains: [{domain: edge, descriptors: [{key: slow, rate_limit: {requests_per_unit: 1, unit: hour}}, {key: fast, rate_limit: {limiter: fast}}]}]
limiters: {fast: {fixed_window: {permit_limit: 1000, window: 1h}}}
`, timeout, l.Addr())
}

// slowly asks, and returns when the request runs: the server answers the next one on the same connection.
func (e *envoy) slowly() <-chan error {
	stream, err := e.conn.NewStream(context.Background(), &grpc.StreamDesc{}, ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName)
	require.NoError(e.t, err)
	require.NoError(e.t, stream.SendMsg(requestOf("edge", "slow=1")))
	require.NoError(e.t, stream.CloseSend())
	assert.Equal(e.t, okay, e.code("edge", "fast=1"))
	answered := make(chan error, 1)
	go func() { answered <- stream.RecvMsg(new(ratelimitv3.RateLimitResponse)) }()
	return answered
}

func TestRLS_Shutdown(t *testing.T) {
	t.Parallel()
	p := startRLS(t, silentStore(t, 10*time.Second))
	e := p.envoy()
	watch, err := grpc_health_v1.NewHealthClient(e.conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	seen, err := watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, seen.GetStatus())
	answered := e.slowly()
	p.signal(syscall.SIGTERM)
	seen, err = watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, seen.GetStatus())
	assert.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, e.health("ratelimit"))
	resp, body := get(t, p.adminURL("/ready"))
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Contains(t, body, "the rate limit service stops")
	assert.Equal(t, okay, e.code("edge", "fast=1"), "requests are answered during the delay")
	require.NoError(t, <-answered, "a request that has begun is answered")
	assert.Equal(t, 0, p.exit(), "the client that watches does not hold it up")
	assert.Contains(t, p.logged(), "the rate limit service has stopped")
}

func TestRLS_Reload(t *testing.T) {
	t.Parallel()
	limit := func(n int, fields string) string {
		return fmt.Sprintf("rls: {%s domains: [{domain: edge, descriptors: [{key: a, rate_limit: {requests_per_unit: %d, unit: hour}}, "+
			"{key: b, rate_limit: {requests_per_unit: %d, unit: year, mode: envoy}}]}]}\n", fields, n, n)
	}
	p := startRLS(t, limit(1, ""))
	e := p.envoy()
	for _, key := range []string{"a=1", "b=1"} {
		assert.Equal(t, okay, e.code("edge", key))
		assert.Equal(t, over, e.code("edge", key))
	}
	reload := func(config, log string) {
		p.write(config)
		p.signal(syscall.SIGHUP)
		p.awaitLog(log)
	}
	reload(limit(4, "")+"# two\n", `"built":1`)
	require.Eventually(t, func() bool { return e.code("edge", "a=1") == okay }, patience, 10*time.Millisecond)
	assert.Equal(t, okay, e.code("edge", "a=1"), "1 + 1 were used before")
	assert.Equal(t, okay, e.code("edge", "a=1"))
	assert.Equal(t, over, e.code("edge", "a=1"), "the reload has given no new burst")
	assert.Equal(t, okay, e.code("edge", "b=1"), "the third")
	assert.Equal(t, okay, e.code("edge", "b=1"))
	assert.Equal(t, over, e.code("edge", "b=1"))

	reload("rls: {domains: [{domain: edge, descriptors: [{key: a, rate_limit: {unit: fortnight}}]}]}", "found the text \\\"fortnight\\\"")
	assert.Equal(t, over, e.code("edge", "a=1"), "what was in force stays")
	reload(limit(4, "listen: 127.0.0.1:1,"), "cannot change while the program runs")
	reload(limit(4, "shadow_mode: true,"), `"msg":"configuration loaded"`)
	require.Eventually(t, func() bool { return e.code("edge", "a=1") == okay }, patience, 10*time.Millisecond, "options change, too")
}

// The dashboard can override limits, and the answers tell the limits of the override.
func TestRLS_Override(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	p := startRLS(t, smallRLS("  dashboard: {token_file: "+token+"}"))
	e := p.envoy()
	act := func(do, limiter string, more ...string) {
		form := url.Values{"do": {do}, "target": {limiter}}
		for i := 0; i+1 < len(more); i += 2 {
			form.Set(more[i], more[i+1])
		}
		require.Equal(t, http.StatusOK, p.post("/action", form, "alice", "secret").StatusCode)
	}
	told := func(entry string) [2]uint32 {
		status := e.ask("edge", entry).GetStatuses()[0]
		return [2]uint32{status.GetCurrentLimit().GetRequestsPerUnit(), status.GetLimitRemaining()}
	}
	entries := map[string]string{"rls/edge/remote_address": "remote_address=1", "per-path": "path=/", "all": "all=1"}
	configured := map[string]uint32{"rls/edge/remote_address": 2, "per-path": 1, "all": 3}
	for name, entry := range entries {
		n := configured[name]
		assert.Equal(t, [2]uint32{n, n - 1}, told(entry), name)
		field := "set.permit_limit"
		if name == "per-path" {
			field = "set.token_limit"
		}
		act("override", name, "for", "1h", "reason", "test", field, "10")
		assert.Equal(t, [2]uint32{10, 8}, told(entry), name)
	}
	p.write(smallRLS("  dashboard: {token_file: "+token+"}") + "# two\n")
	p.signal(syscall.SIGHUP)
	p.awaitLog(`"msg":"configuration loaded"`)
	for name, entry := range entries {
		assert.Equal(t, [2]uint32{10, 7}, told(entry), "%s: a reload keeps it", name)
		act("end-override", name)
		assert.Equal(t, [2]uint32{configured[name], 0}, told(entry), name)
	}
}

// The files of the other server, as Kubernetes mounts them: links into a directory that is replaced.
func TestRLS_RatelimitConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(name, edge, internal string) {
		at := filepath.Join(dir, "..2026_"+name)
		require.NoError(t, os.Mkdir(at, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(at, "edge.yaml"), []byte(edge), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(at, "internal.yaml"), []byte(internal), 0o600))
		require.NoError(t, os.Symlink(filepath.Base(at), filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	edge := func(n int, unit string) string {
		return fmt.Sprintf("domain: edge\ndescriptors:\n  - key: a\n    rate_limit:\n      unit: %s\n      requests_per_unit: %d\n", unit, n)
	}
	const internal = "domain: internal\ndescriptors:\n  - key: x\n    rate_limit: {unlimited: true}\n"
	version("1", edge(1, "year"), internal)
	for _, name := range []string{"edge.yaml", "internal.yaml"} {
		require.NoError(t, os.Symlink("..data/"+name, filepath.Join(dir, name)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README"), []byte("not YAML: ["), 0o600))
	p := (&program{t: t, ready: "the rate limit service is ready"}).start("rls", "-ratelimit-config", dir, "-mode", "envoy", "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0")
	e := p.envoy()
	assert.Equal(t, okay, e.code("edge", "a=1"))
	assert.Equal(t, over, e.code("edge", "a=1"))
	assert.Equal(t, okay, e.code("internal", "x=1"))
	_, body := get(t, p.adminURL("/ready"))
	assert.Contains(t, body, dir)

	version("2", edge(1_000_000, "year"), internal) // in this mode, what is rejected counts
	require.Eventually(t, func() bool { return e.code("edge", "a=1") == okay }, patience, 100*time.Millisecond, "without a signal")
	version("3", edge(1, "fortnight"), "domain: edge\n")
	p.signal(syscall.SIGHUP)
	p.awaitLog("configuration refused, what was in force stays")
	p.awaitLog(`edge.yaml:5:13: descriptors[0].rate_limit.unit: must be one of second, minute`)
	p.awaitLog(`internal.yaml:1:9: domain: must not be \"edge\", which is in ` + filepath.Join(dir, "edge.yaml"))
	assert.Equal(t, okay, e.code("internal", "x=1"))
	version("4", edge(100, "year"), internal)
	p.signal(syscall.SIGHUP)
	require.Eventually(t, func() bool {
		_, body := get(t, p.adminURL("/ready"))
		return !strings.Contains(body, "fortnight")
	}, patience, 50*time.Millisecond)
	p.signal(syscall.SIGTERM)
	assert.Equal(t, 0, p.exit())
}

// The directory has the domains, and the file everything else.
func TestRLS_RatelimitConfigWithFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte("domain: edge\ndescriptors:\n  - key: a\n    rate_limit: {unit: hour, requests_per_unit: 1}\n"), 0o600))
	p := startRLS(t, "# ours\nrls:\n  headers: true\n  mode: exact\n", "-ratelimit-config", dir)
	e := p.envoy()
	assert.Len(t, e.ask("edge", "a=1").GetResponseHeadersToAdd(), 3)
	assert.Equal(t, over, e.code("edge", "a=1"))
	p.write("rls:\n  hedaers: true\n")
	p.signal(syscall.SIGHUP)
	p.awaitLog(p.file + `:2:3: rls: unknown field`)
	p.write("rls: {domains: [{domain: x}]}\n")
	p.signal(syscall.SIGHUP)
	p.awaitLog(p.file + `:1:16: rls.domains: must be left out with -ratelimit-config`)
	assert.Equal(t, over, e.code("edge", "a=1"))
}
