package limiter

import (
	"context"
	"sync"
)

// A sendContext is the context of a Send in the limiter's queue: the sender's,
// but it ends with the channel as well. Most of the time nobody asks for Done,
// and then joining the two costs nothing.
type sendContext struct {
	context.Context // the sender's
	life            context.Context

	mu      sync.Mutex
	joined  context.Context // both in one; nil until Done is asked for
	cancel  context.CancelCauseFunc
	unlink  func() bool
	settled bool // the limiter has answered
}

// settle ends the context: the limiter has answered.
func (s *sendContext) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = true
	s.leave()
}

// leave lets go of both contexts, if they were joined.
func (s *sendContext) leave() {
	if s.joined != nil {
		s.unlink()
		s.cancel(nil)
	}
}

// Done joins the two contexts, and starts no goroutine for it if the sender's is
// one of package context's.
func (s *sendContext) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joined == nil {
		joined, cancel := context.WithCancelCause(s.Context)
		s.joined, s.cancel = joined, cancel
		s.unlink = context.AfterFunc(s.life, func() { cancel(errChannelClosed) })
		if s.settled {
			s.leave()
		}
	}
	return s.joined.Done()
}

// Err is the sender's context's error, or Canceled once the channel is closed.
func (s *sendContext) Err() error {
	if err := s.current().Err(); err != nil {
		return err
	}
	return s.life.Err()
}

// Value is the sender's context's. It goes through the joined one, where there
// is one, because that is how package context finds what it need not watch.
func (s *sendContext) Value(key any) any { return s.current().Value(key) }

func (s *sendContext) current() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joined != nil {
		return s.joined
	}
	return s.Context
}
