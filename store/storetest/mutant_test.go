package storetest

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A mutant is a Memory with something wrong. What is nil is as it is in a Memory.
type mutant struct {
	*Memory
	asks    func(b *backend.Batch)                              // before a decision
	decide  func(m *Memory, b *backend.Batch)                   // instead of it
	after   func(m *Memory, k target, b *backend.Batch)         // of it
	acquire func(m *Memory, h *backend.LeaseRequest)            // instead
	held    func(m *Memory, h *backend.LeaseRequest)            // after it
	renew   func(m *Memory, h *backend.LeaseRequest)            // instead
	release func(m *Memory, h *backend.LeaseRequest)            // instead
	replace func(m *Memory, k target, old, next *backend.State) // before it
	define  func(m *Memory, old *int64, next *backend.Definition)
	deaf    func(n backend.Notice) (backend.Notice, bool)
	key     func(name, key string) string
	deadCtx bool
	racy    bool
}

func (m *mutant) context(ctx context.Context) context.Context {
	if m.deadCtx {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (m *mutant) keyOf(name, key string) string {
	if m.key == nil {
		return key
	}
	return m.key(name, key)
}

func (m *mutant) Decide(ctx context.Context, batches []*backend.Batch) error {
	if m.racy {
		return m.decideInTwoSteps(ctx, batches)
	}
	return roundTrip(m.context(ctx), m.Memory, "Decide", batches, func(b *backend.Batch) {
		d, requests, key := b.Definition, b.Requests, b.Key
		b.Requests, b.Key = slices.Clone(requests), m.keyOf(b.Definition.Name, key)
		if m.asks != nil {
			m.asks(b)
		}
		if m.decide != nil {
			m.decide(m.Memory, b)
		} else {
			m.Memory.decide(b)
		}
		if m.after != nil {
			m.after(m.Memory, target{b.Definition.Name, b.Key}, b)
		}
		b.Definition, b.Requests, b.Key = d, requests, key
	})
}

// decideInTwoSteps reads all states, and writes them later.
func (m *mutant) decideInTwoSteps(ctx context.Context, batches []*backend.Batch) error {
	old := make([]backend.State, len(batches))
	return m.call(ctx, "Decide", func() {
		for i, b := range batches {
			now := m.now()
			s, ok := m.stored(target{b.Definition.Name, b.Key}, now)
			if old[i] = s; !ok {
				old[i] = b.Definition.InitialState(now)
			}
		}
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
		for i, b := range batches {
			b.Outcome, b.Now, b.Granted = backend.Decided, m.now(), make([]int64, len(b.Requests))
			b.State = b.Definition.Decide(old[i], b.Now, b.Requests, b.Granted)
			m.store(target{b.Definition.Name, b.Key}, b.State, b.Now)
		}
	})
}

func (m *mutant) Replace(ctx context.Context, all []*backend.Replacement) error {
	return roundTrip(m.context(ctx), m.Memory, "Replace", all, func(r *backend.Replacement) {
		key, old, next := r.Key, r.Old, r.Next
		r.Key = m.keyOf(r.Definition.Name, key)
		if m.replace != nil {
			m.replace(m.Memory, target{r.Definition.Name, r.Key}, &r.Old, &r.Next)
		}
		m.Memory.replace(r)
		r.Key, r.Old, r.Next = key, old, next
	})
}

func (m *mutant) Define(ctx context.Context, old int64, next *backend.Definition) (bool, error) {
	if m.define != nil {
		own := *next
		next = &own
		m.mu.Lock()
		m.define(m.Memory, &old, next)
		m.mu.Unlock()
	}
	return m.Memory.Define(ctx, old, next)
}

func (m *mutant) Acquire(ctx context.Context, requests []*backend.LeaseRequest) error {
	return m.each(ctx, "Acquire", requests, func(h *backend.LeaseRequest) {
		if m.acquire != nil {
			m.acquire(m.Memory, h)
		} else {
			m.Memory.acquire(h)
		}
		if m.held != nil {
			m.held(m.Memory, h)
		}
	})
}

func (m *mutant) Renew(ctx context.Context, requests []*backend.LeaseRequest) error {
	if m.renew == nil {
		return m.Memory.Renew(ctx, requests)
	}
	return m.each(ctx, "Renew", requests, func(h *backend.LeaseRequest) { m.renew(m.Memory, h) })
}

func (m *mutant) Release(ctx context.Context, requests []*backend.LeaseRequest) error {
	if m.release == nil {
		return m.Memory.Release(ctx, requests)
	}
	return m.each(ctx, "Release", requests, func(h *backend.LeaseRequest) { m.release(m.Memory, h) })
}

func (m *mutant) each(ctx context.Context, method string, requests []*backend.LeaseRequest, do func(*backend.LeaseRequest)) error {
	return roundTrip(ctx, m.Memory, method, requests, do)
}

func (m *mutant) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
	return m.Memory.Listen(m.context(ctx), ready, func(n backend.Notice) {
		if m.deaf == nil {
			notice(n)
		} else if n, ok := m.deaf(n); ok {
			notice(n)
		}
	})
}

// subject is the mutant as the suite sees it: one server a case.
func (m mutant) subject() Subject {
	all := &servers{byID: map[string]*Memory{}}
	of := func(b backend.Backend) *Memory { return b.(*mutant).Memory }
	return Subject{
		patience: 2 * time.Second,
		New: func(t testing.TB) backend.Backend {
			own := m
			own.Memory = all.of(t)
			return &own
		},
		SetTime: func(_ testing.TB, b backend.Backend, micros int64) { setTime(of(b), micros) },
		Keys:    func(_ testing.TB, b backend.Backend, name string) int { return keysOf(of(b), name) },
	}
}

// everyAsk changes each ask before it is decided.
func everyAsk(change func(d *backend.Definition, a *backend.Request)) func(*backend.Batch) {
	return func(b *backend.Batch) {
		for i := range b.Requests {
			change(b.Definition, &b.Requests[i])
		}
	}
}

// afterwards changes what is stored, and what is answered.
func afterwards(change func(b *backend.Batch, s *backend.State)) func(*Memory, target, *backend.Batch) {
	return func(m *Memory, k target, b *backend.Batch) {
		if s, ok := m.states[k]; ok {
			change(b, &s)
			m.states[k] = s
		}
		change(b, &b.State)
	}
}

func upToNUL(_, key string) string {
	before, _, _ := strings.Cut(key, "\x00")
	return before
}

func validUTF8(_, key string) string { return string(bytes.ToValidUTF8([]byte(key), []byte("\uFFFD"))) }
