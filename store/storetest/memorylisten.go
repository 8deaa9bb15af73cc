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

// NoListen makes Listen return [errors.ErrUnsupported] while on is true. Calls of Listen that are running when on becomes
// true return another error.
func (m *Memory) NoListen(on bool) {
	m.locked(func() {
		if m.noListen = on; on {
			for l := range m.listeners {
				close(l.disconnected)
				delete(m.listeners, l)
			}
		}
	})
}

// Listen implements [backend.Backend].
func (m *Memory) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
	l := &listener{signal: make(chan struct{}, 1), disconnected: make(chan struct{})}
	unsupported := false
	err := m.call(ctx, "Listen", func() {
		if unsupported = m.noListen; !unsupported {
			m.listeners[l] = struct{}{}
		}
	})
	defer m.locked(func() { delete(m.listeners, l) })
	switch {
	case err != nil:
		return err
	case unsupported:
		return errors.ErrUnsupported
	}
	ready()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.disconnected:
			return errDisconnected
		case <-l.signal:
		}
		var notices []backend.Notice
		m.locked(func() { notices, l.notices = l.notices, nil })
		for _, n := range notices {
			notice(n)
		}
	}
}

// notify queues a notice for all listeners.
func (m *Memory) notify(n backend.Notice) {
	for l := range m.listeners {
		l.notices = append(l.notices, n)
		select {
		case l.signal <- struct{}{}:
		default: // signaled already
		}
	}
}
