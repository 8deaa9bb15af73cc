package storetest

import (
	"context"
	"errors"

	"github.com/weir-go/weir/store/backend"
)

var errDisconnected = errors.New("storetest: the connection was lost")

// A listener is one call of Listen. Its notices are queued without a bound, so that no other call waits for it.
// Memory.mu guards it.
type listener struct {
	notices      []backend.Notice
	signal       chan struct{} // one signal: there are notices
	disconnected chan struct{} // closed when the connection is lost
}

// NoListen(true) makes Listen return [errors.ErrUnsupported], and running calls of Listen another error.
// NoListen(false) ends that.
func (m *Memory) NoListen(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noListen = on
	if !on {
		return
	}
	for l := range m.listeners {
		close(l.disconnected)
		delete(m.listeners, l)
	}
}

// Listen implements [backend.Backend].
func (m *Memory) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
	l := &listener{signal: make(chan struct{}, 1), disconnected: make(chan struct{})}
	deaf := false
	err := m.call(ctx, "Listen", func() {
		if deaf = m.noListen; !deaf {
			m.listeners[l] = struct{}{}
		}
	})
	defer m.stopListening(l)
	switch {
	case err != nil:
		return err
	case deaf:
		return errors.ErrUnsupported
	}
	ready()
	return m.deliver(ctx, l, notice)
}

func (m *Memory) deliver(ctx context.Context, l *listener, notice func(backend.Notice)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.disconnected:
			return errDisconnected
		case <-l.signal:
		}
		m.mu.Lock()
		notices := l.notices
		l.notices = nil
		m.mu.Unlock()
		for _, n := range notices {
			notice(n)
		}
	}
}

func (m *Memory) stopListening(l *listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.listeners, l)
}

// tell queues a notice for all listeners.
func (m *Memory) tell(n backend.Notice) {
	for l := range m.listeners {
		l.notices = append(l.notices, n)
		select {
		case l.signal <- struct{}{}:
		default: // signaled already
		}
	}
}
