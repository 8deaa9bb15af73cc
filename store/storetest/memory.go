package storetest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A Memory is a [backend.Backend] in memory, for tests: it decides with
// [backend.Definition.Decide], so what it does is right by definition. Its clock is
// time.Now, which is fake inside testing/synctest; there it must be made inside the
// bubble. Several Stores can share one Memory, and are then like several instances of a
// service.
//
// The zero Memory is not usable; make one with [NewMemory]. It is safe for use by many
// goroutines at once.
type Memory struct {
	trouble trouble

	mu          sync.Mutex
	step        int64 // µs by which the server's clock is ahead of ours
	definitions map[string]*backend.Definition
	states      map[target]backend.State
	rooms       map[target]*room
	fence       int64 // the last one: of all keys, and never again the same
	sweepAt     int   // how many keys there are when the full ones are looked for
	listeners   map[*listener]struct{}
	deaf        bool
}

// A target is what a state belongs to.
type target struct{ name, key string }

// NewMemory returns a Memory in which nothing is.
func NewMemory() *Memory {
	m := &Memory{listeners: map[*listener]struct{}{}}
	m.forget()
	return m
}

var _ backend.Backend = (*Memory)(nil)

// Now is the server's time in microseconds since 1970.
func (m *Memory) Now() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now()
}

func (m *Memory) now() int64 { return time.Now().UnixMicro() + m.step }

// Step makes the server's clock jump by d, which may be negative.
func (m *Memory) Step(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.step += d.Microseconds()
}

// Forget empties the Memory, like the restart of a server that keeps nothing: states,
// leases and definitions are gone. Those who listen go on listening: see [Memory.NoListen].
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
}

func (m *Memory) forget() {
	m.definitions = map[string]*backend.Definition{}
	m.states = map[target]backend.State{}
	m.rooms = map[target]*room{}
}

// Keys is how many keys the Memory has anything stored of. A key that is full, or of
// which nobody holds anything, is not kept.
func (m *Memory) Keys() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	return len(m.states) + len(m.rooms)
}

// sweep drops the keys that are as if they had never been used.
func (m *Memory) sweep() {
	now := m.now()
	maps.DeleteFunc(m.states, func(_ target, s backend.State) bool { return fullAt(s) <= now })
	maps.DeleteFunc(m.rooms, func(_ target, r *room) bool { r.expire(now); return len(r.leases) == 0 })
	m.sweepAt = 2*(len(m.states)+len(m.rooms)) + 1000
}

func (m *Memory) sweepIfLarge() {
	if len(m.states)+len(m.rooms) > m.sweepAt {
		m.sweep()
	}
}

// fullAt is [backend.Definition.FullAt] by the grid that the state was written under.
func fullAt(s backend.State) int64 {
	d := backend.Definition{
		Limits: backend.Limits{Kind: s.Kind, Period: s.Period, Refill: s.Refill, Segments: s.Segments},
		Anchor: s.Anchor,
	}
	return d.FullAt(s)
}

// Decide decides all batches.
func (m *Memory) Decide(ctx context.Context, batches []*backend.Batch) error {
	return roundTrip(ctx, m, "Decide", m.reachBatches(ctx, batches), m.decide)
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

// Replace writes each Next whose Old is what is stored.
func (m *Memory) Replace(ctx context.Context, all []*backend.Replacement) error {
	var some []*backend.Replacement
	for _, r := range all {
		if outcome, err := m.reach(ctx, r.Definition.Name, r.Key); err != nil {
			r.Outcome, r.Err = outcome, err
		} else {
			some = append(some, r)
		}
	}
	return roundTrip(ctx, m, "Replace", some, m.replace)
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

// Load returns the definition of that name, and the time.
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

// Define makes next the definition if the one in force has the version old.
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

// Interruptible is true: methods return when their context ends.
func (m *Memory) Interruptible() bool { return true }

// Close does nothing: others may share the Memory.
func (m *Memory) Close() error {
	m.trouble.count("Close")
	return nil
}
