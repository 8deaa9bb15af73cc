package storetest

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errLost is the error of a call whose answer was lost.
var errLost = errors.New("storetest: the answer was lost")

// A trouble is what is wrong with the way to the server. The zero trouble is none.
type trouble struct {
	mu    sync.Mutex
	calls map[string]int
	err   error
	lose  bool
	delay time.Duration
	stall chan struct{} // closed when it is over; nil: there is none

	partOf  func(name, key string) string
	parts   map[string]error
	stalled map[string]chan struct{}
	keys    map[target]error
}

// Fail makes every method return err, and do nothing, until Fail(nil). Those who listen
// already go on listening.
func (m *Memory) Fail(err error) {
	m.trouble.set(func(t *trouble) { t.err = err })
}

// Lose makes every method do what it is asked, and then answer with an error.
func (m *Memory) Lose(on bool) {
	m.trouble.set(func(t *trouble) { t.lose = on })
}

// Delay makes every call take d: one half of it before the server does what is asked, the
// other until the answer is there. 0, as in the beginning: no time.
func (m *Memory) Delay(d time.Duration) {
	m.trouble.set(func(t *trouble) { t.delay = d })
}

// Stall makes every method wait, until its context ends, or until Stall(false); then it
// goes on.
func (m *Memory) Stall(on bool) {
	m.trouble.set(func(t *trouble) {
		switch {
		case on && t.stall == nil:
			t.stall = make(chan struct{})
		case !on && t.stall != nil:
			close(t.stall)
			t.stall = nil
		}
	})
}

// Calls is how often these methods have been called, those that failed included: with
// none, all methods.
func (m *Memory) Calls(methods ...string) int {
	n := 0
	m.trouble.set(func(t *trouble) {
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

func (t *trouble) set(f func(*trouble)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(t)
}

func (t *trouble) count(method string) {
	t.set(func(t *trouble) {
		if t.calls == nil {
			t.calls = map[string]int{}
		}
		t.calls[method]++
	})
}

// there is the way to the server.
func (t *trouble) there(ctx context.Context, method string) error {
	t.count(method)
	if err := t.pause(ctx); err != nil {
		return err
	}
	if err := t.standStill(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// back is the way of the answer.
func (t *trouble) back(ctx context.Context) error {
	t.mu.Lock()
	lost := t.lose
	t.mu.Unlock()
	if err := t.pause(ctx); err != nil {
		return err
	}
	if lost {
		return errLost
	}
	return nil
}

// pause takes half of the delay.
func (t *trouble) pause(ctx context.Context) error {
	t.mu.Lock()
	d := t.delay / 2
	t.mu.Unlock()
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *trouble) standStill(ctx context.Context) error {
	for {
		t.mu.Lock()
		stall := t.stall
		t.mu.Unlock()
		if stall == nil {
			return ctx.Err()
		}
		select {
		case <-stall:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// call makes a round trip and does f at the server, alone.
func (m *Memory) call(ctx context.Context, method string, f func()) error {
	if err := m.trouble.there(ctx, method); err != nil {
		return err
	}
	m.mu.Lock()
	m.sweepIfLarge()
	f()
	m.mu.Unlock()
	return m.trouble.back(ctx)
}

// roundTrip is call for a list of things that have room for the answers: these are only
// written if the answer comes back.
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
