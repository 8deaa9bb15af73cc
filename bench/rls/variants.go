package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-go/weir/tools/testserver"
)

// programs are the servers.
type programs struct{ weir, other string }

// build builds both from source. The other one has the versions that the module of the comparison has.
func build(ctx context.Context, dir string) (p programs, err error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/weir-go/weir").Output()
	if err != nil {
		return p, err
	}
	p = programs{filepath.Join(dir, "weir"), filepath.Join(dir, "ratelimit")}
	for _, c := range []struct{ dir, program, target string }{
		{"cmd/weir", p.weir, "."}, {"tools/rlsoracle", p.other, "github.com/envoyproxy/ratelimit/src/service_cmd"},
	} {
		b := exec.CommandContext(ctx, "go", "build", "-o", c.program, c.target)
		b.Dir, b.Stderr = filepath.Join(strings.TrimSpace(string(root)), filepath.FromSlash(c.dir)), os.Stderr
		b.Env = append(os.Environ(), "GOWORK=off")
		if err := b.Run(); err != nil {
			return p, fmt.Errorf("go build in %s: %w", c.dir, err)
		}
	}
	return p, nil
}

// A variant is a server to measure.
type variant struct {
	name, folder string
	promised     time.Duration // p99.9; 0 if nothing is promised
	command      func(ctx context.Context, dir, address string) (*exec.Cmd, error)
	results      []result
}

// rules are those of both servers, in the other one's format: a limit for each client, and one that all share. Both are
// large enough to admit everything.
const rules = `domain: bench
descriptors:
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 1000000000}
  - key: path
    value: /api
    rate_limit: {unit: hour, requests_per_unit: 1000000000}
`

// otherCommand starts the server of envoyproxy/ratelimit. Its statistics are off, its pool is as large as its
// documentation says for such a load, and it listens on this machine only.
func (p programs) otherCommand(redis string) func(ctx context.Context, dir, address string) (*exec.Cmd, error) {
	return func(ctx context.Context, dir, address string) (*exec.Cmd, error) {
		folder := filepath.Join(dir, "ratelimit", "config")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
		http, err := testserver.FreeAddress()
		if err != nil {
			return nil, err
		}
		admin, err := testserver.FreeAddress()
		if err != nil {
			return nil, err
		}
		c := exec.CommandContext(ctx, p.other)
		c.Env = []string{
			"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "DISABLE_STATS=true",
			"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "REDIS_POOL_SIZE=16", "LOG_LEVEL=error",
			"HOST=127.0.0.1", "PORT=" + port(http), "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + port(admin),
			"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + port(address),
		}
		return c, os.WriteFile(filepath.Join(folder, "bench.yaml"), []byte(rules), 0o600)
	}
}

func hostOf(s *testserver.Server) string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// weirCommand starts weir rls with the rules of the other server.
func (p programs) weirCommand(args ...string) func(ctx context.Context, dir, address string) (*exec.Cmd, error) {
	return func(ctx context.Context, dir, address string) (*exec.Cmd, error) {
		all := append([]string{"rls", "-ratelimit-config", dir, "-listen", address, "-admin", "off"}, args...)
		return exec.CommandContext(ctx, p.weir, all...), os.WriteFile(filepath.Join(dir, "bench.yaml"), []byte(rules), 0o600)
	}
}

// What is promised: the p99.9 of limits in the process, and of limits that a Redis holds.
const (
	promisedInProcess = 5 * time.Millisecond
	promisedOnRedis   = 15 * time.Millisecond
)

// variants returns what is measured.
func (p programs) variants(redis, postgres *testserver.Server) []*variant {
	return []*variant{
		{name: "gRPC alone, no limits", folder: "alone", command: aloneCommand},
		{name: "weir rls, in process", folder: "exact", promised: promisedInProcess, command: p.weirCommand()},
		{name: "weir rls, in process, mode envoy", folder: "envoy", promised: promisedInProcess, command: p.weirCommand("-mode", "envoy")},
		{name: "weir rls, Redis", folder: "redis", promised: promisedOnRedis, command: p.weirCommand("-redis", redis.URL)},
		{name: "weir rls, Redis, mode envoy", folder: "redis-envoy", promised: promisedOnRedis, command: p.weirCommand("-redis", redis.URL, "-mode", "envoy")},
		{name: "envoyproxy/ratelimit, Redis", folder: "other", command: p.otherCommand(hostOf(redis))},
		{name: "weir rls, PostgreSQL", folder: "postgres", command: p.weirCommand("-postgres", postgres.URL)},
		{name: "weir rls, PostgreSQL, mode envoy", folder: "postgres-envoy", command: p.weirCommand("-postgres", postgres.URL, "-mode", "envoy")},
	}
}
