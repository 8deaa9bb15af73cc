package storetest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A Memory is a [backend.Backend] in memory, for tests. It decides by [backend.Definition.Decide]. Its clock is
// time.Now, which is fake inside testing/synctest; there the Memory must be made inside the bubble. Several Stores that
// share one Memory are like several instances of a service.
//
// The zero value is not usable; make a Memory with [NewMemory]. It is safe for use by many goroutines at once.
type Memory struct {
	faults faults

	mu          sync.Mutex
	step        int64 // µs by which the server's clock is ahead of time.Now
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
	m := &Memory{listeners: map[*listener]struct{}{}}
	m.forget()
	return m
}

var _ backend.Backend = (*Memory)(nil)

// Now returns the server's time in µs since 1970.
func (m *Memory) Now() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now()
}

func (m *Memory) now() int64 { return time.Now().UnixMicro() + m.step }

// Step makes the server's clock jump by d, which can be negative.
func (m *Memory) Step(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.step += d.Microseconds()
}

// Forget drops all states, leases and definitions, as the restart of a server without a disk does. Calls of Listen go
// on; see [Memory.NoListen].
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
}

func (m *Memory) forget() {
	m.definitions = map[string]*backend.Definition{}
	m.states = map[target]backend.State{}
	m.leases = map[target]*keyLeases{}
}

// Keys returns for how many keys anything is stored. Nothing is stored for a key that is full, or of which no permits
// are held.
func (m *Memory) Keys() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	return len(m.states) + len(m.leases)
}

// sweep drops full keys and expired leases.
func (m *Memory) sweep() {
	now := m.now()
	maps.DeleteFunc(m.states, func(_ target, s backend.State) bool { return fullAt(s) <= now })
	maps.DeleteFunc(m.leases, func(_ target, kl *keyLeases) bool { kl.expire(now); return len(kl.leases) == 0 })
	m.sweepAt = 2*(len(m.states)+len(m.leases)) + 1000
}

func (m *Memory) sweepIfLarge() {
	if len(m.states)+len(m.leases) > m.sweepAt {
		m.sweep()
	}
}

// fullAt is [backend.Definition.FullAt] by the schedule of the state.
func fullAt(s backend.State) int64 { return s.Definition().FullAt(s) }

// Decide implements [backend.Backend].
func (m *Memory) Decide(ctx context.Context, batches []*backend.Batch) error {
	return roundTrip(ctx, m, "Decide", reachable(ctx, m, batches, batchFields), m.decide)
}

func (m *Memory) decide(b *backend.Batch) {
	k := target{b.Definition.Name, b.Key}
	b.Now = m.now()
	s, ok := m.stored(k, b.Now)
	switch d := m.definitions[k.name]; {
	case d != nil && d.Version > b.Definition.Version:
		b.Outcome, b.State, b.Granted = backend.OutdatedDefinition, backend.State{Schedule: backend.Schedule{Version: d.Version}}, nil
		return
	case !ok:
		s = b.Definition.InitialState(b.Now)
	case s.Version > b.Definition.Version:
		b.Outcome, b.State, b.Granted = backend.OutdatedDefinition, s, nil
		return
	case s.Version < b.Definition.Version:
		b.Outcome, b.State, b.Granted = backend.OutdatedState, s, nil
		return
	}
	b.Outcome = backend.Decided
	b.Granted = make([]int64, len(b.Requests))
	b.State = b.Definition.Decide(s, b.Now, b.Requests, b.Granted)
	m.store(k, b.State, b.Now)
}

// stored returns the state of a key; ok is false if there is none.
func (m *Memory) stored(k target, now int64) (s backend.State, ok bool) {
	if s, ok = m.states[k]; ok && fullAt(s) > now {
		return s, true
	}
	return backend.State{}, false
}

func (m *Memory) store(k target, s backend.State, now int64) {
	if fullAt(s) <= now {
		delete(m.states, k)
		return
	}
	s.Taken = slices.Clone(s.Taken)
	m.states[k] = s
}

// Replace implements [backend.Backend].
func (m *Memory) Replace(ctx context.Context, all []*backend.Replacement) error {
	return roundTrip(ctx, m, "Replace", reachable(ctx, m, all, replacementFields), m.replace)
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
	return a.Schedule == b.Schedule && a.Tick == b.Tick && a.Missing == b.Missing && a.RefundFloor == b.RefundFloor && slices.Equal(a.Taken, b.Taken)
}

// Load implements [backend.Backend].
func (m *Memory) Load(ctx context.Context, name string) (*backend.Definition, int64, error) {
	var d *backend.Definition
	var now int64
	if err := m.reachDefinition(ctx, name); err != nil {
		return nil, 0, err
	}
	err := m.call(ctx, "Load", func() { d, now = m.definitions[name], m.now() })
	if err != nil {
		return nil, 0, err
	}
	return d, now, nil
}

// Define implements [backend.Backend].
func (m *Memory) Define(ctx context.Context, old int64, next *backend.Definition) (bool, error) {
	var done bool
	if err := m.reachDefinition(ctx, next.Name); err != nil {
		return false, err
	}
	err := m.call(ctx, "Define", func() {
		var version int64
		if d := m.definitions[next.Name]; d != nil {
			version = d.Version
		}
		if done = version == old; done {
			own := *next
			m.definitions[next.Name] = &own
			m.tell(backend.Notice{Name: next.Name})
		}
	})
	return done && err == nil, err
}

// Interruptible returns true.
func (m *Memory) Interruptible() bool { return true }

// Close does nothing, because other Stores can share the Memory.
func (m *Memory) Close() error {
	m.faults.count("Close")
	return nil
}
