package testserver

import (
	"context"
	"errors"
)

// Addr is host:port.
func (s *Server) Addr() string { return s.addr }

// Own tells whether we started it. If not, an environment variable named it, and Kill, Pause, Resume and
// Restart are not for it.
func (s *Server) Own() bool { return s.own != nil }

// Kill ends it as a crash would: SIGKILL, to all its processes. It returns when nothing listens any more. Its
// data stay as they are, for Restart.
func (s *Server) Kill() {
	in := s.mine("Kill")
	in.mu.Lock()
	defer in.mu.Unlock()
	in.kill()
}

// Pause stops all its processes where they are: connections stay open, and nothing answers. The system goes on
// accepting connections for it.
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

// Restart starts it again on the same port, after Kill or after stopping it first, and returns when it
// answers. PostgreSQL keeps its data unless they are to be empty. Redis has none to keep, unless it was
// started with arguments that make it write them.
func (s *Server) Restart(empty bool) error {
	if s.own == nil {
		return errors.New("testserver: Restart of a server that an environment variable named")
	}
	s.own.mu.Lock()
	defer s.own.mu.Unlock()
	return s.own.restart(context.Background(), empty)
}

// Stop ends it and removes its data. A server that we did not start goes on, and a second Stop does nothing.
func (s *Server) Stop() {
	if s.own == nil {
		return
	}
	s.own.mu.Lock()
	defer s.own.mu.Unlock()
	s.own.stop()
	forget(s)
}

// mine panics for a server that is not ours: to kill what somebody else relies on cannot be meant.
func (s *Server) mine(method string) *instance {
	if s.own == nil {
		panic("testserver: " + method + " of a server that an environment variable named; use NewRedis or NewPostgres")
	}
	return s.own
}
