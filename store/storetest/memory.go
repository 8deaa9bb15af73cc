package storetest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A Memory is a [backend.Backend] in memory, for tests. It decides by [backend.Definition.Decide]. Its clock is
// time.Now, which is fake inside testing/synctest; there the Memory must be made inside the bubble. Several Stores that
// share one Memory are like several instances of a service.
//
// The zero value is not usable; make a Memory with [NewMemory]. It is safe for use by many goroutines at once.
type Memory struct {
	mu          sync.Mutex // guards all fields
	faults      faults
	calls       map[string]int // by method
	step        int64          // µs by which the server's clock is ahead of time.Now
	definitions map[string]*backend.Definition
	states      map[target]backend.State
	leases      map[target]*keyLeases
	fence       int64 // the last one of all keys
	sweepAt     int   // the number of keys at which full ones are dropped
	listeners   map[*listener]struct{}
	noListen    bool
}

// A target is a key of a limiter.
type target struct{ name, key string }

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	m := &Memory{faults: newFaults(), calls: map[string]int{}, listeners: map[*listener]struct{}{}}
	m.Forget()
	return m
}

var _ backend.Backend = (*Memory)(nil)

func (m *Memory) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// Now returns the server's time in µs since 1970.
func (m *Memory) Now() (micros int64) {
	m.locked(func() { micros = m.now() })
	return micros
}

func (m *Memory) now() int64 { return time.Now().UnixMicro() + m.step }

// Step makes the server's clock jump by d, which can be negative.
func (m *Memory) Step(d time.Duration) {
	m.locked(func() { m.step += d.Microseconds() })
}

// Forget drops all states, leases and definitions, as the restart of a server without a disk does. Calls of Listen
// continue, unlike at a restart; [Memory.NoListen] ends them.
func (m *Memory) Forget() {
	m.locked(func() {
		m.definitions = map[string]*backend.Definition{}
		m.states = map[target]backend.State{}
		m.leases = map[target]*keyLeases{}
	})
}

// Keys returns the number of keys that have a state or leases. A bucket or window that is full has no state.
func (m *Memory) Keys() (n int) {
	m.locked(func() {
		m.sweep()
		n = len(m.states) + len(m.leases)
	})
	return n
}

// sweep drops full keys and expired leases.
func (m *Memory) sweep() {
	now := m.now()
	maps.DeleteFunc(m.states, func(_ target, s backend.State) bool { return fullAt(s) <= now })
	maps.DeleteFunc(m.leases, func(_ target, kl *keyLeases) bool { kl.expire(now); return len(kl.leases) == 0 })
	m.sweepAt = 2*(len(m.states)+len(m.leases)) + 1000
}

// fullAt returns from when a state can be forgotten.
func fullAt(s backend.State) int64 { return s.Schedule.FullAt(&s.State) }

// Decide implements [backend.Backend].
func (m *Memory) Decide(ctx context.Context, batches []*backend.Batch) error {
	return roundTrip(ctx, m, "Decide", batches, m.decide)
}

func (m *Memory) decide(b *backend.Batch) {
	k := target{b.Definition.Name, b.Key}
	b.Now = m.now()
	b.Granted = nil
	s, ok := m.stored(k, b.Now)
	switch d := m.definitions[k.name]; {
	case d != nil && d.Version > b.Definition.Version:
		b.Outcome, b.Version = backend.OutdatedDefinition, d.Version
		return
	case b.Definition.LineAt(b.Now) != b.Definition.LineAt(b.At) && b.Definition.Every != 0:
		b.Outcome = backend.OtherWindow
		return
	case !ok:
		s.State = b.Definition.Full(b.Now)
	case s.Version > b.Definition.Version:
		b.Outcome, b.Version = backend.OutdatedDefinition, s.Version
		return
	case s.Version < b.Definition.Version:
		b.Outcome, b.Stored = backend.OutdatedState, &s
		return
	}
	b.Outcome, b.State = backend.Decided, s.State
	b.Granted = make([]int64, len(b.Requests))
	b.Definition.Decide(&b.State, b.Now, b.Requests, b.Granted)
	m.store(k, b.Definition.Stored(b.State), b.Now)
}

// stored returns a copy of the state of a key; ok is false if there is none.
func (m *Memory) stored(k target, now int64) (s backend.State, ok bool) {
	if s, ok = m.states[k]; ok && fullAt(s) > now {
		s.Segments = slices.Clone(s.Segments)
		return s, true
	}
	return backend.State{}, false
}

func (m *Memory) store(k target, s backend.State, now int64) {
	if fullAt(s) <= now {
		delete(m.states, k)
		return
	}
	s.Segments = slices.Clone(s.Segments)
	m.states[k] = s
}

// Replace implements [backend.Backend].
func (m *Memory) Replace(ctx context.Context, all []*backend.Replacement) error {
	return roundTrip(ctx, m, "Replace", all, m.replace)
}

func (m *Memory) replace(r *backend.Replacement) {
	k, now := target{r.Definition.Name, r.Key}, m.now()
	s, ok := m.stored(k, now)
	r.Outcome, r.Done = backend.Decided, ok && sameState(s, r.Old)
	if r.Done {
		m.store(k, r.Next, now)
	}
}

func sameState(a, b backend.State) bool {
	return a.Version == b.Version && a.Schedule == b.Schedule && same(a.State, b.State)
}

func same(a, b rate.State) bool {
	return slices.Equal(a.Segments, b.Segments) && a.Line == b.Line && a.Missing == b.Missing && a.Refunded == b.Refunded && a.Floor == b.Floor
}

// Load implements [backend.Backend].
func (m *Memory) Load(ctx context.Context, name string) (d *backend.Definition, now int64, err error) {
	err = m.callDefinition(ctx, "Load", name, func() { d, now = m.definitions[name], m.now() })
	if err != nil {
		return nil, 0, err
	}
	return d, now, nil
}

// Define implements [backend.Backend].
func (m *Memory) Define(ctx context.Context, old int64, next *backend.Definition) (done bool, err error) {
	err = m.callDefinition(ctx, "Define", next.Name, func() {
		var version int64
		if d := m.definitions[next.Name]; d != nil {
			version = d.Version
		}
		if done = version == old; done {
			stored := *next // the caller can change its own
			m.definitions[next.Name] = &stored
			m.notify(backend.Notice{Name: next.Name})
		}
	})
	return done && err == nil, err
}

// Close does nothing, because other Stores can share the Memory.
func (m *Memory) Close() error {
	m.locked(func() { m.calls["Close"]++ })
	return nil
}
