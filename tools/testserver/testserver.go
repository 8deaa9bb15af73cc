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
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"testing"
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

// A Server is a server for tests. Most callers need only its URL. The functions of this package make one; the zero value is
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
