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
func (m *Memory) ShardOf(name, key string) (shard string) {
	m.faults.set(func(t *faults) {
		if t.shardOf != nil {
			shard = t.shardOf(name, key)
		}
	})
	return shard
}

// FailShard makes every request about a key in that shard fail with err, until FailShard with nil.
func (m *Memory) FailShard(shard string, err error) {
	m.faults.set(func(t *faults) { put(&t.shards, shard, err) })
}

// StallShard(shard, true) makes every call with a key in that shard wait until its context ends, or until
// StallShard(shard, false).
func (m *Memory) StallShard(shard string, on bool) {
	m.faults.set(func(t *faults) {
		switch stalled := t.stalled[shard]; {
		case on && stalled == nil:
			put(&t.stalled, shard, make(chan struct{}))
		case !on && stalled != nil:
			close(stalled)
			delete(t.stalled, shard)
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
	shard := m.ShardOf(name, key)
	var stalled chan struct{}
	m.faults.set(func(t *faults) { stalled = t.stalled[shard] })
	if stalled != nil && !awaitClosed(ctx, stalled) {
		return backend.Unreachable, ctx.Err()
	}
	var away, broken error
	m.faults.set(func(t *faults) { away, broken = t.shards[shard], t.keys[target{name, key}] })
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

// reachable returns the items that can be answered, and sets the outcome of the others. fields returns what all items
// have.
func reachable[T any](ctx context.Context, m *Memory, all []*T, fields func(*T) (*backend.Definition, string, *backend.Outcome, *error)) (some []*T) {
	for _, item := range all {
		d, key, outcome, err := fields(item)
		if o, e := m.reach(ctx, d.Name, key); e != nil {
			*outcome, *err = o, e
		} else {
			some = append(some, item)
		}
	}
	return some
}

func batchFields(b *backend.Batch) (*backend.Definition, string, *backend.Outcome, *error) {
	return b.Definition, b.Key, &b.Outcome, &b.Err
}

func replacementFields(r *backend.Replacement) (*backend.Definition, string, *backend.Outcome, *error) {
	return r.Definition, r.Key, &r.Outcome, &r.Err
}

func leaseFields(h *backend.LeaseRequest) (*backend.Definition, string, *backend.Outcome, *error) {
	return h.Definition, h.Key, &h.Outcome, &h.Err
}
