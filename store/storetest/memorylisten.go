package storetest

import (
	"context"
	"errors"

	"github.com/weir-go/weir/store/backend"
)

// errCut is what a Listen ends with that was cut off.
var errCut = errors.New("storetest: the connection was lost")

// A listener is one call of Listen. Its notices wait for it without end, so that nobody
// waits for a slow one. Memory.mu guards it.
type listener struct {
	notices []backend.Notice
	some    chan struct{} // has room for one
	cut     chan struct{} // closed when the connection is lost
}

// NoListen makes Listen return [errors.ErrUnsupported], and cuts those who listen off: their
// Listen returns another error. NoListen(false) lets others listen again.
func (m *Memory) NoListen(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deaf = on
	if !on {
		return
	}
	for l := range m.listeners {
		close(l.cut)
		delete(m.listeners, l)
	}
}

// Listen calls notice for what happens, until ctx ends or [Memory.NoListen] cuts it off.
func (m *Memory) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
	l := &listener{some: make(chan struct{}, 1), cut: make(chan struct{})}
	deaf := false
	err := m.call(ctx, "Listen", func() {
		if deaf = m.deaf; !deaf {
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
		case <-l.cut:
			return errCut
		case <-l.some:
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

// tell leaves a notice for all who listen, and does not wait for them.
func (m *Memory) tell(n backend.Notice) {
	for l := range m.listeners {
		l.notices = append(l.notices, n)
		select {
		case l.some <- struct{}{}:
		default: // it knows already
		}
	}
}
