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

// sendContexts keeps used ones. There is no Go channel in them, so it does not
// matter to which testing/synctest bubble they go.
var sendContexts = sync.Pool{New: func() any { return new(sendContext) }}

func newSendContext(ctx, life context.Context) *sendContext {
	s := sendContexts.Get().(*sendContext)
	s.Context, s.life = ctx, life
	return s
}

// settle ends the context: the limiter has answered. It may be used again if
// nobody can be looking at it any more.
func (s *sendContext) settle(reuse bool) {
	s.mu.Lock()
	s.settled = true
	s.leave()
	s.mu.Unlock()
	if reuse {
		*s = sendContext{}
		sendContexts.Put(s)
	}
}

// leave lets go of both contexts, if they were joined.
func (s *sendContext) leave() {
	if s.joined != nil {
		s.unlink()
		s.cancel(nil)
	}
}

// Done joins the two contexts, and starts no goroutine for it.
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

// keepsNoContext tells whether l is one of this package's limiters that forget
// a context when they answer. Somebody else's may have a goroutine that looks at
// it later.
func keepsNoContext(l Limiter) bool {
	switch l.(type) {
	case engine, *Unlimited:
		return true
	default:
		return false
	}
}
