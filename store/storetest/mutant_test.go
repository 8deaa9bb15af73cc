package storetest

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A mutant is a Memory with a fault. A nil function means that this part works as in a Memory.
type mutant struct {
	*Memory
	before       func(b *backend.Batch)                                // runs before decide
	decide       func(m *Memory, b *backend.Batch)                     // replaces Memory.decide
	afterDecide  func(m *Memory, k target, b *backend.Batch)           // runs after decide
	acquire      func(m *Memory, r *backend.LeaseRequest)              // replaces Memory.acquire
	afterAcquire func(m *Memory, r *backend.LeaseRequest)              // runs after acquire
	renew        func(m *Memory, r *backend.LeaseRequest)              // replaces Renew
	release      func(m *Memory, r *backend.LeaseRequest)              // replaces Release
	replace      func(m *Memory, k target, old, next *backend.State)   // changes what Replace gets
	define       func(m *Memory, old *int64, next *backend.Definition) // changes what Define gets
	notice       func(n backend.Notice) (backend.Notice, bool)         // changes a notice; false: it is lost
	key          func(name, key string) string                         // changes a key
	deadCtx      bool                                                  // contexts have no effect
	racy         bool                                                  // see decideInTwoSteps
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
		if m.before != nil {
			m.before(b)
		}
		if m.decide != nil {
			m.decide(m.Memory, b)
		} else {
			m.Memory.decide(b)
		}
		if m.afterDecide != nil {
			m.afterDecide(m.Memory, target{b.Definition.Name, b.Key}, b)
		}
		b.Definition, b.Requests, b.Key = d, requests, key
	})
}

// decideInTwoSteps reads all states, and writes them later.
func (m *mutant) decideInTwoSteps(ctx context.Context, batches []*backend.Batch) error {
	old := make([]rate.State, len(batches))
	return m.call(ctx, "Decide", func() {
		for i, b := range batches {
			now := m.now()
			s, ok := m.stored(target{b.Definition.Name, b.Key}, now)
			if old[i] = s.State; !ok {
				old[i] = b.Definition.Full(now)
			}
		}
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
		for i, b := range batches {
			b.Outcome, b.Now, b.Granted = backend.Decided, m.now(), make([]int64, len(b.Requests))
			b.State = old[i]
			b.Definition.Decide(&b.State, b.Now, b.Requests, b.Granted)
			m.store(target{b.Definition.Name, b.Key}, b.Definition.Stored(b.State), b.Now)
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
	return m.each(ctx, "Acquire", requests, func(r *backend.LeaseRequest) {
		if m.acquire != nil {
			m.acquire(m.Memory, r)
		} else {
			m.Memory.acquire(r)
		}
		if m.afterAcquire != nil {
			m.afterAcquire(m.Memory, r)
		}
	})
}

func (m *mutant) Renew(ctx context.Context, requests []*backend.LeaseRequest) error {
	if m.renew == nil {
		return m.Memory.Renew(ctx, requests)
	}
	return m.each(ctx, "Renew", requests, func(r *backend.LeaseRequest) { m.renew(m.Memory, r) })
}

func (m *mutant) Release(ctx context.Context, requests []*backend.LeaseRequest) error {
	if m.release == nil {
		return m.Memory.Release(ctx, requests)
	}
	return m.each(ctx, "Release", requests, func(r *backend.LeaseRequest) { m.release(m.Memory, r) })
}

func (m *mutant) each(ctx context.Context, method string, requests []*backend.LeaseRequest, do func(*backend.LeaseRequest)) error {
	return roundTrip(ctx, m.Memory, method, requests, do)
}

func (m *mutant) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
	return m.Memory.Listen(m.context(ctx), ready, func(n backend.Notice) {
		if m.notice == nil {
			notice(n)
		} else if n, ok := m.notice(n); ok {
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

// everyRequest changes each request before it is decided.
func everyRequest(change func(*backend.Request)) func(*backend.Batch) {
	return func(b *backend.Batch) {
		for i := range b.Requests {
			change(&b.Requests[i])
		}
	}
}

// afterwards changes what is stored, and what is answered.
func afterwards(change func(s *rate.State)) func(*Memory, target, *backend.Batch) {
	return func(m *Memory, k target, b *backend.Batch) {
		if s, ok := m.states[k]; ok {
			change(&s.State)
			m.states[k] = s
		}
		change(&b.State)
	}
}

func upToNUL(_, key string) string {
	before, _, _ := strings.Cut(key, "\x00")
	return before
}

func validUTF8(_, key string) string { return string(bytes.ToValidUTF8([]byte(key), []byte("\uFFFD"))) }
