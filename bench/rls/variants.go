package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
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
	command      func(dir string, p ports) (command, error)
	results      []result
}

// A command is a program, its arguments and the environment that it has in addition to this one's.
type command struct {
	program string
	args    []string
	env     []string
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
func (p programs) otherCommand(redis string) func(dir string, ports ports) (command, error) {
	return func(dir string, ports ports) (command, error) {
		folder := filepath.Join(dir, "ratelimit", "config")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return command{}, err
		}
		return command{program: p.other, env: []string{
			"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "DISABLE_STATS=true",
			"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "REDIS_POOL_SIZE=16", "LOG_LEVEL=error",
			"HOST=127.0.0.1", "PORT=" + ports.http, "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + ports.admin,
			"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + ports.grpc,
		}}, os.WriteFile(filepath.Join(folder, "bench.yaml"), []byte(rules), 0o600)
	}
}

func hostOf(s *testserver.Server) string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// ports are free ports of this machine.
type ports struct{ grpc, http, admin string }

// A process is a server that runs.
type process struct {
	address string
	log     *log
	command *exec.Cmd
	ended   chan struct{} // closed when it has ended
	err     error         // how it has ended
}

// start starts a server on free ports, and waits until it accepts connections.
func start(ctx context.Context, of func(ports) (command, error)) (*process, error) {
	free, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	c, err := of(ports{free[0], free[1], free[2]})
	if err != nil {
		return nil, err
	}
	p := &process{address: "127.0.0.1:" + free[0], log: &log{}, command: exec.CommandContext(ctx, c.program, c.args...), ended: make(chan struct{})}
	p.command.Stderr, p.command.Stdout, p.command.Env = p.log, p.log, append(os.Environ(), c.env...)
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		p.err = p.command.Wait()
	}()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", p.address); err == nil {
			_ = conn.Close()
			return p, nil
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s ended: %w\n%s", c.program, cmp.Or(p.err, errors.New("without an error")), p.log)
		default:
		}
		if time.Since(began) > 20*time.Second || ctx.Err() != nil {
			p.stop()
			return nil, fmt.Errorf("%s does not listen: %w\n%s", c.program, cmp.Or(ctx.Err(), context.DeadlineExceeded), p.log)
		}
	}
}

func (p *process) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(3 * time.Second):
		_ = p.command.Process.Kill()
		<-p.ended
	}
}

// cpu returns the processor time that the process has used, as /proc of Linux tells it; elsewhere 0.
func (p *process) cpu() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // a clock tick
}

func freePorts(n int) ([]string, error) {
	var found []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() //nolint:errcheck // it has accepted nothing
		_, port, _ := net.SplitHostPort(l.Addr().String())
		found = append(found, port)
	}
	return found, nil
}

// A log keeps the beginning of what a process writes.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() < 1<<16 {
		l.text.Write(b)
	}
	return len(b), nil
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// weirCommand starts weir rls with the rules of the other server.
func (p programs) weirCommand(args ...string) func(dir string, ports ports) (command, error) {
	return func(dir string, ports ports) (command, error) {
		all := []string{"rls", "-ratelimit-config", dir, "-listen", "127.0.0.1:" + ports.grpc, "-admin", "off"}
		return command{program: p.weir, args: append(all, args...)}, os.WriteFile(filepath.Join(dir, "bench.yaml"), []byte(rules), 0o600)
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
