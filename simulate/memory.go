package simulate

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
)

// openStores are the stores of a run. Only build uses them: Configs and the pipelines that they define ask for them, one
// after the other.
type openStores struct {
	stores   map[storeKey]*store.Store
	memories map[string]*storetest.Memory // by the name of the store
}

// A storeKey says which instance has a [store.Store].
type storeKey struct {
	name     string
	instance int
}

// storeSpread is how much longer a call takes in each instance than in the one before. It is no round number, so that no
// answer comes at the moment of a tick or an arrival.
const storeSpread = 2018 * time.Nanosecond

// storeAnswer is how long an execution can be without the answer of a store and still has not waited for a permit: the
// time of its call, after a call that was under way when it asked, and a reserve.
const storeAnswer = 3 * time.Millisecond

// A memory is the backend of one instance's Store: the Memory that all instances share, behind a network.
type memory struct {
	*storetest.Memory
	seed    uint64
	key     storeKey
	halfway time.Duration // how long a call takes to the Memory, and as long its answer back
}

var _ deterministic.Maker = (*memory)(nil)

// MakeSource implements [deterministic.Maker].
func (m *memory) MakeSource(name, key string) *deterministic.Source {
	h := fnv.New64a()
	for _, s := range []string{m.key.name, name, key} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(m.key.instance)))
	return &deterministic.Source{Rand: rand.New(rand.NewPCG(m.seed, h.Sum64()))}
}

// call makes a call that takes some time.
func (m *memory) call(ctx context.Context, f func() error) error {
	if err := m.travel(ctx); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return m.travel(ctx)
}

// travel waits as long as the network takes in one direction.
func (m *memory) travel(ctx context.Context) error {
	t := time.NewTimer(m.halfway)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Decide implements [backend.Backend].
func (m *memory) Decide(ctx context.Context, batches []*backend.Batch) error {
	return m.call(ctx, func() error { return m.Memory.Decide(ctx, batches) })
}

// Replace implements [backend.Backend].
func (m *memory) Replace(ctx context.Context, all []*backend.Replacement) error {
	return m.call(ctx, func() error { return m.Memory.Replace(ctx, all) })
}

// Load implements [backend.Backend].
func (m *memory) Load(ctx context.Context, name string) (d *backend.Definition, now int64, err error) {
	err = m.call(ctx, func() (err error) {
		d, now, err = m.Memory.Load(ctx, name)
		return err
	})
	return d, now, err
}

// Define implements [backend.Backend].
func (m *memory) Define(ctx context.Context, old int64, next *backend.Definition) (done bool, err error) {
	err = m.call(ctx, func() (err error) {
		done, err = m.Memory.Define(ctx, old, next)
		return err
	})
	return done, err
}

// Acquire implements [backend.Backend].
func (m *memory) Acquire(ctx context.Context, requests []*backend.LeaseRequest) error {
	return m.call(ctx, func() error { return m.Memory.Acquire(ctx, requests) })
}

// Renew implements [backend.Backend].
func (m *memory) Renew(ctx context.Context, requests []*backend.LeaseRequest) error {
	return m.call(ctx, func() error { return m.Memory.Renew(ctx, requests) })
}

// Release implements [backend.Backend].
func (m *memory) Release(ctx context.Context, requests []*backend.LeaseRequest) error {
	return m.call(ctx, func() error { return m.Memory.Release(ctx, requests) })
}
