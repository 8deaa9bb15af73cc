package storetest

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errAnswerLost = errors.New("storetest: the answer was lost")

// faults are what is wrong with the connection to the server. The zero value has none.
type faults struct {
	mu    sync.Mutex
	calls map[string]int
	err   error
	lose  bool
	delay time.Duration
	stall chan struct{} // closed at its end; nil: no stall

	shardOf func(name, key string) string
	shards  map[string]error
	stalled map[string]chan struct{}
	keys    map[target]error
}

// Fail makes every method return err and do nothing, until Fail(nil). Calls of Listen go on.
func (m *Memory) Fail(err error) {
	m.faults.set(func(t *faults) { t.err = err })
}

// LoseAnswers(true) makes every method do its work and then return an error.
func (m *Memory) LoseAnswers(on bool) {
	m.faults.set(func(t *faults) { t.lose = on })
}

// Delay makes every call take d: half of it before the server does its work, half after. The default is 0.
func (m *Memory) Delay(d time.Duration) {
	m.faults.set(func(t *faults) { t.delay = d })
}

// Stall(true) makes every method wait until its context ends, or until Stall(false).
func (m *Memory) Stall(on bool) {
	m.faults.set(func(t *faults) {
		switch {
		case on && t.stall == nil:
			t.stall = make(chan struct{})
		case !on && t.stall != nil:
			close(t.stall)
			t.stall = nil
		}
	})
}

// Calls returns how often these methods were called, including failed calls. Without arguments it counts all methods.
func (m *Memory) Calls(methods ...string) int {
	n := 0
	m.faults.set(func(t *faults) {
		for _, name := range methods {
			n += t.calls[name]
		}
		if len(methods) == 0 {
			for _, calls := range t.calls {
				n += calls
			}
		}
	})
	return n
}

func (t *faults) set(f func(*faults)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(t)
}

func (t *faults) count(method string) {
	t.set(func(t *faults) {
		if t.calls == nil {
			t.calls = map[string]int{}
		}
		t.calls[method]++
	})
}

// arrive is the request's way to the server.
func (t *faults) arrive(ctx context.Context, method string) error {
	t.count(method)
	if err := t.pause(ctx); err != nil {
		return err
	}
	if err := t.waitStall(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// reply is the answer's way back.
func (t *faults) reply(ctx context.Context) error {
	t.mu.Lock()
	lost := t.lose
	t.mu.Unlock()
	if err := t.pause(ctx); err != nil {
		return err
	}
	if lost {
		return errAnswerLost
	}
	return nil
}

// pause takes half of the delay.
func (t *faults) pause(ctx context.Context) error {
	t.mu.Lock()
	d := t.delay / 2
	t.mu.Unlock()
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (t *faults) waitStall(ctx context.Context) error {
	for {
		t.mu.Lock()
		stall := t.stall
		t.mu.Unlock()
		if stall == nil {
			return ctx.Err()
		}
		if !awaitClosed(ctx, stall) {
			return ctx.Err()
		}
	}
}

// awaitClosed waits until c is closed. It returns false if ctx ends before.
func awaitClosed(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// call makes a round trip, in which f has the server to itself.
func (m *Memory) call(ctx context.Context, method string, f func()) error {
	if err := m.faults.arrive(ctx, method); err != nil {
		return err
	}
	m.mu.Lock()
	m.sweepIfLarge()
	f()
	m.mu.Unlock()
	return m.faults.reply(ctx)
}

// roundTrip is call for a list whose items have room for the answers, which are written only if the answer arrives.
func roundTrip[T any](ctx context.Context, m *Memory, method string, list []*T, do func(*T)) error {
	answers := make([]T, len(list))
	for i, item := range list {
		answers[i] = *item
	}
	err := m.call(ctx, method, func() {
		for i := range answers {
			do(&answers[i])
		}
	})
	if err != nil {
		return err
	}
	for i, item := range list {
		*item = answers[i]
	}
	return nil
}
