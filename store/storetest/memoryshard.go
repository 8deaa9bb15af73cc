package storetest

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/store/backend"
)

// SetShards divides the Memory into shards, like a Redis Cluster; of returns the shard of a key. If nil, which is the
// default, there is one shard. It must be called before a Store is made.
func (m *Memory) SetShards(of func(name, key string) string) {
	m.faults.set(func(t *faults) { t.shardOf = of })
}

// ShardOf implements [backend.Sharded].
func (m *Memory) ShardOf(name, key string) (part string) {
	m.faults.set(func(t *faults) {
		if t.shardOf != nil {
			part = t.shardOf(name, key)
		}
	})
	return part
}

// FailShard makes every request about a key in that shard fail with err, until FailShard with nil.
func (m *Memory) FailShard(part string, err error) {
	m.faults.set(func(t *faults) { put(&t.shards, part, err) })
}

// StallShard(shard, true) makes every call with a key in that shard wait until its context ends, or until
// StallShard(shard, false).
func (m *Memory) StallShard(part string, on bool) {
	m.faults.set(func(t *faults) {
		switch stalled := t.stalled[part]; {
		case on && stalled == nil:
			put(&t.stalled, part, make(chan struct{}))
		case !on && stalled != nil:
			close(stalled)
			delete(t.stalled, part)
		}
	})
}

// FailKey makes every request about one key fail with err, as if something else were stored under it, until FailKey
// with nil. With the key "", Load and Define of that name fail, too, with [backend.ErrDefinition].
func (m *Memory) FailKey(name, key string, err error) {
	m.faults.set(func(t *faults) { put(&t.keys, target{name, key}, err) })
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

// reach waits while the shard of a key is stalled, and returns what is wrong with the key.
func (m *Memory) reach(ctx context.Context, name, key string) (backend.Outcome, error) {
	part := m.ShardOf(name, key)
	var stalled chan struct{}
	m.faults.set(func(t *faults) { stalled = t.stalled[part] })
	if stalled != nil {
		select {
		case <-stalled:
		case <-ctx.Done():
			return backend.Unreachable, ctx.Err()
		}
	}
	var away, broken error
	m.faults.set(func(t *faults) { away, broken = t.shards[part], t.keys[target{name, key}] })
	switch {
	case away != nil:
		return backend.Unreachable, away
	case broken != nil:
		return backend.Failed, broken
	}
	return 0, nil
}

// reachDefinition is reach for a definition.
func (m *Memory) reachDefinition(ctx context.Context, name string) error {
	outcome, err := m.reach(ctx, name, "")
	if outcome == backend.Failed {
		return fmt.Errorf("%w: %w", backend.ErrDefinition, err)
	}
	return err
}

// reachBatches returns the batches that can be decided, and sets the outcome of the others.
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

func (m *Memory) reachLeases(ctx context.Context, all []*backend.LeaseRequest) (some []*backend.LeaseRequest) {
	for _, h := range all {
		if outcome, err := m.reach(ctx, h.Definition.Name, h.Key); err != nil {
			h.Outcome, h.Err = outcome, err
		} else {
			some = append(some, h)
		}
	}
	return some
}
