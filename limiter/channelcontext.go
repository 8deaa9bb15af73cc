package limiter

import (
	"context"
	"sync"
	"sync/atomic"
)

// A closeNotifier ends the contexts of the sends that are in a limiter's queue when their channel is closed. It has no
// Go channel, which would belong to the testing/synctest bubble in which it was made: a [Channel] can be made in a
// bubble and closed outside.
type closeNotifier struct {
	closed atomic.Bool
	mu     sync.Mutex
	sends  map[*sendContext]context.CancelCauseFunc
}

// add registers cancel, which is called when the channel is closed, unless s is removed before.
func (n *closeNotifier) add(s *sendContext, cancel context.CancelCauseFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed.Load() {
		cancel(errChannelClosed)
		return
	}
	if n.sends == nil {
		n.sends = make(map[*sendContext]context.CancelCauseFunc)
	}
	n.sends[s] = cancel
}

func (n *closeNotifier) remove(s *sendContext) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sends, s)
}

// notifyAll ends the contexts of all sends. The channel is closed.
func (n *closeNotifier) notifyAll() {
	n.mu.Lock()
	sends := n.sends
	n.sends = nil
	n.mu.Unlock()
	for _, cancel := range sends {
		cancel(errChannelClosed)
	}
}

// A sendContext is the context of a Send in the limiter's queue: the sender's context, which also ends when the channel
// is closed. Most of the time Done is not called, and then joining the two costs nothing.
type sendContext struct {
	context.Context // the sender's
	closing         *closeNotifier

	mu      sync.Mutex
	joined  context.Context // ends with the sender's context and with the channel; nil until Done is called
	cancel  context.CancelCauseFunc
	settled bool // the limiter has answered
}

// settle ends the context, because the limiter has answered.
func (s *sendContext) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = true
	s.endJoined()
}

// endJoined ends the joined context, if there is one.
func (s *sendContext) endJoined() {
	if s.joined != nil {
		s.closing.remove(s)
		s.cancel(nil)
	}
}

// Done joins the two contexts. It starts no goroutine if the sender's context is one of package context.
func (s *sendContext) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joined == nil {
		joined, cancel := context.WithCancelCause(s.Context)
		s.joined, s.cancel = joined, cancel
		s.closing.add(s, cancel)
		if s.settled {
			s.endJoined()
		}
	}
	return s.joined.Done()
}

// Err returns the error of the sender's context, or [context.Canceled] once the channel is closed.
func (s *sendContext) Err() error {
	if err := s.current().Err(); err != nil {
		return err
	}
	if s.closing.closed.Load() {
		return context.Canceled
	}
	return nil
}

// Value returns the sender's value. It asks the joined context, if there is one, because that is how package context
// finds out that it need not start a goroutine.
func (s *sendContext) Value(key any) any { return s.current().Value(key) }

// current returns the joined context, or the sender's if they are not joined.
func (s *sendContext) current() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joined != nil {
		return s.joined
	}
	return s.Context
}
