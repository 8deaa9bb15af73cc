package storetest

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

// A mutant is a Memory with something wrong. What is nil is as it is in a Memory.
type mutant struct {
	*Memory
	asks    func(b *store.Batch)                              // before a decision
	decide  func(m *Memory, b *store.Batch)                   // instead of it
	after   func(m *Memory, k target, b *store.Batch)         // of it
	hold    func(m *Memory, h *store.Hold)                    // instead
	held    func(m *Memory, h *store.Hold)                    // after it
	renew   func(m *Memory, h *store.Hold)                    // instead
	release func(m *Memory, h *store.Hold)                    // instead
	replace func(m *Memory, k target, old, next *store.State) // before it
	define  func(m *Memory, old *int64, next *store.Definition)
	deaf    func(n store.Notice) (store.Notice, bool)
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

func (m *mutant) Decide(ctx context.Context, batches []*store.Batch) error {
	if m.racy {
		return m.decideInTwoSteps(ctx, batches)
	}
	return roundTrip(m.context(ctx), m.Memory, "Decide", batches, func(b *store.Batch) {
		d, asks, key := b.Definition, b.Asks, b.Key
		b.Asks, b.Key = slices.Clone(asks), m.keyOf(b.Definition.Name, key)
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
		b.Definition, b.Asks, b.Key = d, asks, key
	})
}

// decideInTwoSteps reads all states, and writes them later.
func (m *mutant) decideInTwoSteps(ctx context.Context, batches []*store.Batch) error {
	old := make([]store.State, len(batches))
	return m.call(ctx, "Decide", func() {
		for i, b := range batches {
			now := m.now()
			s, ok := m.stored(target{b.Definition.Name, b.Key}, now)
			if old[i] = s; !ok {
				old[i] = b.Definition.Fresh(now)
			}
		}
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
		for i, b := range batches {
			b.Outcome, b.Now, b.Granted = store.Decided, m.now(), make([]int64, len(b.Asks))
			b.State = b.Definition.Decide(old[i], b.Now, b.Asks, b.Granted)
			m.store(target{b.Definition.Name, b.Key}, b.State, b.Now)
		}
	})
}

func (m *mutant) Replace(ctx context.Context, all []*store.Replacement) error {
	return roundTrip(m.context(ctx), m.Memory, "Replace", all, func(r *store.Replacement) {
		key, old, next := r.Key, r.Old, r.Next
		r.Key = m.keyOf(r.Definition.Name, key)
		if m.replace != nil {
			m.replace(m.Memory, target{r.Definition.Name, r.Key}, &r.Old, &r.Next)
		}
		m.Memory.replace(r)
		r.Key, r.Old, r.Next = key, old, next
	})
}

func (m *mutant) Define(ctx context.Context, old int64, next *store.Definition) (bool, error) {
	if m.define != nil {
		own := *next
		next = &own
		m.mu.Lock()
		m.define(m.Memory, &old, next)
		m.mu.Unlock()
	}
	return m.Memory.Define(ctx, old, next)
}

func (m *mutant) Hold(ctx context.Context, holds []*store.Hold) error {
	return m.each(ctx, "Hold", holds, func(h *store.Hold) {
		if m.hold != nil {
			m.hold(m.Memory, h)
		} else {
			m.Memory.hold(h)
		}
		if m.held != nil {
			m.held(m.Memory, h)
		}
	})
}

func (m *mutant) Renew(ctx context.Context, holds []*store.Hold) error {
	if m.renew == nil {
		return m.Memory.Renew(ctx, holds)
	}
	return m.each(ctx, "Renew", holds, func(h *store.Hold) { m.renew(m.Memory, h) })
}

func (m *mutant) Release(ctx context.Context, holds []*store.Hold) error {
	if m.release == nil {
		return m.Memory.Release(ctx, holds)
	}
	return m.each(ctx, "Release", holds, func(h *store.Hold) { m.release(m.Memory, h) })
}

func (m *mutant) each(ctx context.Context, method string, holds []*store.Hold, do func(*store.Hold)) error {
	return roundTrip(ctx, m.Memory, method, holds, do)
}

func (m *mutant) Listen(ctx context.Context, ready func(), notice func(store.Notice)) error {
	return m.Memory.Listen(m.context(ctx), ready, func(n store.Notice) {
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
	of := func(b store.Backend) *Memory { return b.(*mutant).Memory }
	return Subject{
		patience: 2 * time.Second,
		New: func(t testing.TB) store.Backend {
			own := m
			own.Memory = all.of(t)
			return &own
		},
		SetTime: func(_ testing.TB, b store.Backend, micros int64) { setTime(of(b), micros) },
		Keys:    func(_ testing.TB, b store.Backend, name string) int { return keysOf(of(b), name) },
	}
}

// everyAsk changes each ask before it is decided.
func everyAsk(change func(d *store.Definition, a *store.Ask)) func(*store.Batch) {
	return func(b *store.Batch) {
		for i := range b.Asks {
			change(b.Definition, &b.Asks[i])
		}
	}
}

// afterwards changes what is stored, and what is answered.
func afterwards(change func(b *store.Batch, s *store.State)) func(*Memory, target, *store.Batch) {
	return func(m *Memory, k target, b *store.Batch) {
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
