// Package testserver starts the servers that tests speak to, and puts a bad network in front of them.
//
// Where Redis and PostgreSQL come from, the first that is there:
//
//   - WEIR_REDIS_URL or WEIR_POSTGRES_URL, used as it is. A test that needs a server of its own (NewRedis,
//     NewPostgres) does not look at them.
//   - a program on this machine: redis-server or valkey-server; initdb and postgres.
//   - Docker, with the images redis:7 and postgres:15.
//
// Prometheus and Chromium are programs on this machine: the one that WEIR_PROMETHEUS, WEIR_PROMTOOL or WEIR_CHROMIUM names, or
// else one on PATH. Each test gets its own.
//
// A test that finds none is skipped and says what to do about it; with WEIR_REQUIRE_SERVERS=1 it fails instead.
//
// A package whose tests use it needs a TestMain that stops what was started:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Runner(m)) }
//
// On Linux the servers die with the test process however that ends. What it cannot do then is to remove their
// folders of temporary files. Elsewhere a process that is killed leaves its servers behind.
//
// Nothing of it works inside a bubble of testing/synctest: the servers know another time.
package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The environment variables that say where servers come from.
const (
	redisURL       = "WEIR_REDIS_URL"
	postgresURL    = "WEIR_POSTGRES_URL"
	requireServers = "WEIR_REQUIRE_SERVERS"
)

// ErrNotFound is the error where there is no server and nothing to start one with. The text of the error
// that wraps it says what to do.
var ErrNotFound = errors.New("testserver: no server found")

// A Server is a server for tests. Most callers need only its URL. Kill, Pause, Resume and Restart are only for servers that this package
// has started. The functions of this package make one; the zero value is
// not usable.
type Server struct {
	// URL is redis://127.0.0.1:port/0, postgres://postgres@127.0.0.1:port/postgres?sslmode=disable, or what
	// the environment variable said. For other servers it is http://127.0.0.1:port.
	URL string

	addr string
	own  *instance // nil where an environment variable named the server
}

// named is the server that the environment variable names; nil if it names none.
func named(variable, defaultPort string) (*Server, error) {
	raw := os.Getenv(variable)
	if raw == "" {
		return nil, nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		// Not err itself: it quotes the URL, and that may hold a password.
		return nil, errors.New("testserver: " + variable + " is not a URL")
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	return &Server{URL: raw, addr: net.JoinHostPort(u.Hostname(), port)}, nil
}

// launch starts a server by its recipe.
func launch(ctx context.Context, r recipe) (*Server, error) {
	in, err := newInstance(ctx, r)
	if err != nil {
		return nil, err
	}
	s := &Server{URL: r.url(in.addr()), addr: in.addr(), own: in}
	remember(s)
	return s, nil
}

// usable is s, or the end of the test: skipped where no server was found and none is required, failed
// otherwise.
func usable(t testing.TB, s *Server, err error, required bool) *Server {
	t.Helper()
	switch {
	case err == nil:
		return s
	case errors.Is(err, ErrNotFound) && !required:
		t.Skip(err)
	default:
		t.Fatal(err)
	}
	return nil
}

// ownedBy stops s at the end of the test, and shows what s had to say if the test failed.
func ownedBy(t testing.TB, s *Server) *Server {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what %s at %s said last:\n%s", s.own.name, s.addr, s.own.logTail())
		}
		s.Stop()
	})
	return s
}

// required reports whether a test without a server fails. If the variable unlessNamed names the server to use, a test that
// needs a second one does not fail.
func required(unlessNamed string) bool {
	return os.Getenv(requireServers) == "1" && os.Getenv(unlessNamed) == ""
}

// Addr is host:port.
func (s *Server) Addr() string { return s.addr }

// Kill ends the server as a crash would: SIGKILL to all its processes. It returns when nothing listens any more. The data
// stays as it is, for Restart.
func (s *Server) Kill() {
	in := s.mine("Kill")
	in.mu.Lock()
	defer in.mu.Unlock()
	in.kill()
}

// Pause stops all processes of the server: connections stay open, and nothing answers. The system still accepts
// connections.
func (s *Server) Pause() {
	in := s.mine("Pause")
	in.mu.Lock()
	defer in.mu.Unlock()
	in.pause()
}

// Resume ends Pause.
func (s *Server) Resume() {
	in := s.mine("Resume")
	in.mu.Lock()
	defer in.mu.Unlock()
	in.resume()
}

// Restart starts the server again on the same port, after Kill or after stopping it first, and returns when it answers.
// PostgreSQL keeps its data, unless empty is true. Redis has none to keep, unless its arguments make it write data.
func (s *Server) Restart(empty bool) error {
	if s.own == nil {
		return errors.New("testserver: Restart of a server that an environment variable named")
	}
	s.own.mu.Lock()
	defer s.own.mu.Unlock()
	return s.own.restart(context.Background(), empty)
}

// Stop ends the server and removes its data. It does nothing to a server that this package has not started, and nothing
// the second time.
func (s *Server) Stop() {
	if s.own == nil {
		return
	}
	s.own.mu.Lock()
	defer s.own.mu.Unlock()
	s.own.stop()
	forget(s)
}

// CPU returns the processor time that the server has used, as /proc of Linux tells it; elsewhere 0.
func (s *Server) CPU() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.mine("CPU").process.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // a clock tick
}

// Output returns the end of what the server has written since its last start.
func (s *Server) Output() string { return s.mine("Output").logTail() }

// mine panics for a server that this package has not started, because other programs can depend on it.
func (s *Server) mine(method string) *instance {
	if s.own == nil {
		panic("testserver: " + method + " of a server that an environment variable named; use NewRedis or NewPostgres")
	}
	return s.own
}

// A lazy server is started when the first test asks for it, and serves the whole test process.
type lazy struct {
	once   sync.Once
	server *Server
	err    error
}

var sharedRedis, sharedPostgres, durablePostgres lazy

// get does not take a test's context: the server outlives the test that asked first.
func (l *lazy) get(start func(context.Context) (*Server, error)) (*Server, error) {
	l.once.Do(func() { l.server, l.err = start(context.Background()) })
	return l.server, l.err
}

// running are the started servers that have not been stopped.
var running = struct {
	sync.Mutex
	servers map[*Server]struct{}
}{servers: map[*Server]struct{}{}}

func remember(s *Server) {
	running.Lock()
	defer running.Unlock()
	running.servers[s] = struct{}{}
}

func forget(s *Server) {
	running.Lock()
	defer running.Unlock()
	delete(running.servers, s)
}

// stopAll stops all running servers at the same time.
func stopAll() {
	running.Lock()
	var left []*Server
	for s := range running.servers {
		left = append(left, s)
	}
	running.Unlock()

	var wg sync.WaitGroup
	for _, s := range left {
		wg.Go(s.Stop)
	}
	wg.Wait()
}

// Runner runs m and stops the servers that were started. It is for goleak, which then looks for goroutines after that:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Runner(m)) }
func Runner(m *testing.M) interface{ Run() int } { return runner{m} }

type runner struct{ m *testing.M }

func (r runner) Run() int {
	defer stopAll() // deferred, because a test can panic
	return r.m.Run()
}
