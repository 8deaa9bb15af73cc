package limiter

import (
	"context"
	"sync"
	"sync/atomic"
)

// A closeNotifier tells the sends that are in a limiter's queue when their channel is closed. It owns no Go
// channel, which would belong to the testing/synctest bubble in which it was made: a [Channel] may be made in one
// and closed outside.
type closeNotifier struct {
	closed atomic.Bool
	mu     sync.Mutex
	sends  map[*sendContext]context.CancelCauseFunc
}

// add has cancel called when the channel is closed, unless s is forgotten before.
func (l *closeNotifier) add(s *sendContext, cancel context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		cancel(errChannelClosed)
		return
	}
	if l.sends == nil {
		l.sends = make(map[*sendContext]context.CancelCauseFunc)
	}
	l.sends[s] = cancel
}

func (l *closeNotifier) remove(s *sendContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sends, s)
}

// notifyAll ends the contexts of all sends; the channel is closed.
func (l *closeNotifier) notifyAll() {
	l.mu.Lock()
	sends := l.sends
	l.sends = nil
	l.mu.Unlock()
	for _, cancel := range sends {
		cancel(errChannelClosed)
	}
}

// A sendContext is the context of a Send in the limiter's queue: the sender's,
// but it ends with the channel as well. Most of the time nobody asks for Done,
// and then joining the two costs nothing.
type sendContext struct {
	context.Context // the sender's
	closing         *closeNotifier

	mu      sync.Mutex
	joined  context.Context // both in one; nil until Done is asked for
	cancel  context.CancelCauseFunc
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
		s.closing.remove(s)
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
		s.closing.add(s, cancel)
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
	if s.closing.closed.Load() {
		return context.Canceled
	}
	return nil
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
