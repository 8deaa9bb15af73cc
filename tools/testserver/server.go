package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Addr is host:port.
func (s *Server) Addr() string { return s.addr }

// Own reports whether this package has started the server. If not, an environment variable names it, and Kill, Pause,
// Resume and Restart must not be called.
func (s *Server) Own() bool { return s.own != nil }

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
