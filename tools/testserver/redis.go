package testserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Redis is the one Redis server that this test process shares, started at the first call. What a test leaves
// in it the next one finds: use keys of your own.
func Redis(t testing.TB) *Server {
	t.Helper()
	s, err := sharedRedis.get(StartRedis)
	return usable(t, s, err, required(""))
}

// NewRedis starts a server of the test's own, stopped at the test's end. args go to redis-server
// ("--cluster-enabled", "yes"), after ours.
func NewRedis(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := startRedis(t.Context(), args)
	return ownedBy(t, usable(t, s, err, required(redisURL)))
}

// NewSentinel starts a Sentinel, stopped at the test's end, that makes a replica of the master the master half a second after
// the master has died. It calls the master "weir". The test is skipped where Redis is not a program on this machine.
func NewSentinel(t testing.TB, master *Server) *Server {
	t.Helper()
	program, found := redisProgram()
	if !found {
		t.Skip("no redis-server: a Sentinel is not started in Docker")
	}
	host, behind, _ := net.SplitHostPort(master.Addr())
	s, err := launch(t.Context(), recipe{
		name:     "sentinel",
		url:      func(addr string) string { return "redis://" + addr },
		answers:  redisAnswers,
		says:     "+monitor master weir",
		patience: 30 * time.Second,
		end:      syscall.SIGTERM,
		command: func(data string, port int) (*exec.Cmd, error) {
			file := filepath.Join(data, "sentinel.conf")
			config := fmt.Sprintf("bind 127.0.0.1\nport %d\nsentinel monitor weir %s %s 1\n"+
				"sentinel down-after-milliseconds weir 500\nsentinel failover-timeout weir 2000\n", port, host, behind)
			return exec.Command(program, file, "--sentinel"), os.WriteFile(file, []byte(config), 0o644)
		},
	})
	return ownedBy(t, usable(t, s, err, true))
}

// redisProgram finds Redis or Valkey on this machine.
func redisProgram() (string, bool) {
	if program, found := lookup("redis-server"); found {
		return program, true
	}
	return lookup("valkey-server")
}

// StartRedis is Redis for programs that are no tests. The caller stops the server; ctx is for the start only.
func StartRedis(ctx context.Context) (*Server, error) {
	if s, err := named(redisURL, "6379"); s != nil || err != nil {
		return s, err
	}
	return startRedis(ctx, nil)
}

func startRedis(ctx context.Context, args []string) (*Server, error) {
	r := recipe{
		name:     "redis",
		url:      func(addr string) string { return "redis://" + addr + "/0" },
		answers:  redisAnswers,
		says:     "ready to accept connections",
		patience: 30 * time.Second,
	}
	// Nothing is kept: tests are faster without, and a killed server comes back empty.
	args = append([]string{"--save", "", "--appendonly", "no"}, args...)
	program, found := redisProgram()
	switch {
	case found:
		r.end = syscall.SIGTERM
		r.command = func(data string, port int) (*exec.Cmd, error) {
			ours := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", data}
			return exec.Command(program, append(ours, args...)...), nil
		}
	case dockerWorks():
		inDocker(&r, container{
			image:   "redis:7",
			port:    6379,
			command: append([]string{"redis-server", "--protected-mode", "no"}, args...),
		})
	default:
		return nil, fmt.Errorf("%w: install Redis (apt-get install redis-server, brew install redis), start Docker, or name a server in %s", ErrNotFound, redisURL)
	}
	return launch(ctx, r)
}
