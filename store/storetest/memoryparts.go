package storetest

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/store/backend"
)

// SetShards divides the Memory into parts, as a Redis Cluster is: of says which part a key is in. nil, as in the
// beginning: it is one part. It must be called before any Store is made.
func (m *Memory) SetShards(of func(name, key string) string) {
	m.trouble.set(func(t *trouble) { t.partOf = of })
}

// ShardOf returns the part of a key; see [backend.Sharded].
func (m *Memory) ShardOf(name, key string) (part string) {
	m.trouble.set(func(t *trouble) {
		if t.partOf != nil {
			part = t.partOf(name, key)
		}
	})
	return part
}

// FailShard makes every question about a key in that part fail with err, until it is called with nil.
func (m *Memory) FailShard(part string, err error) {
	m.trouble.set(func(t *trouble) { put(&t.parts, part, err) })
}

// StallShard makes every call that asks about a key in that part wait until its context ends, or until StallPart
// with false.
func (m *Memory) StallShard(part string, on bool) {
	m.trouble.set(func(t *trouble) {
		switch stalled := t.stalled[part]; {
		case on && stalled == nil:
			put(&t.stalled, part, make(chan struct{}))
		case !on && stalled != nil:
			close(stalled)
			delete(t.stalled, part)
		}
	})
}

// FailKey makes every question about one key fail with err, as one under which something else is stored, until it is
// called with nil. With the key "" Load and Define of that name fail, too, with [backend.ErrDefinition].
func (m *Memory) FailKey(name, key string, err error) {
	m.trouble.set(func(t *trouble) { put(&t.keys, target{name, key}, err) })
}

func put[K, V comparable](m *map[K]V, k K, v V) {
	var none V
	if *m == nil {
		*m = map[K]V{}
	}
	if (*m)[k] = v; v == none {
		delete(*m, k)
	}
}

// reach waits where the part of a key is stalled, and returns what is wrong with the key.
func (m *Memory) reach(ctx context.Context, name, key string) (backend.Outcome, error) {
	part := m.ShardOf(name, key)
	var stalled chan struct{}
	m.trouble.set(func(t *trouble) { stalled = t.stalled[part] })
	if stalled != nil {
		select {
		case <-stalled:
		case <-ctx.Done():
			return backend.Unreachable, ctx.Err()
		}
	}
	var away, broken error
	m.trouble.set(func(t *trouble) { away, broken = t.parts[part], t.keys[target{name, key}] })
	switch {
	case away != nil:
		return backend.Unreachable, away
	case broken != nil:
		return backend.Failed, broken
	}
	return 0, nil
}

// reachDefinition is reach for the definition of that name.
func (m *Memory) reachDefinition(ctx context.Context, name string) error {
	outcome, err := m.reach(ctx, name, "")
	if outcome == backend.Failed {
		return fmt.Errorf("%w: %w", backend.ErrDefinition, err)
	}
	return err
}

// reachBatches returns those that can be asked, and answers the others.
func (m *Memory) reachBatches(ctx context.Context, all []*backend.Batch) (some []*backend.Batch) {
	for _, b := range all {
		if outcome, err := m.reach(ctx, b.Definition.Name, b.Key); err != nil {
			b.Outcome, b.Err = outcome, err
		} else {
			some = append(some, b)
		}
	}
	return some
}

func (m *Memory) reachHolds(ctx context.Context, all []*backend.LeaseRequest) (some []*backend.LeaseRequest) {
	for _, h := range all {
		if outcome, err := m.reach(ctx, h.Definition.Name, h.Key); err != nil {
			h.Outcome, h.Err = outcome, err
		} else {
			some = append(some, h)
		}
	}
	return some
}
