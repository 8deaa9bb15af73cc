package storetest

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/store"
)

// Divide divides the Memory into parts, as a Redis Cluster is: of says which part a key is in. nil, as in the
// beginning: it is one part. It must be called before any Store is made.
func (m *Memory) Divide(of func(name, key string) string) {
	m.trouble.set(func(t *trouble) { t.partOf = of })
}

// PartOf returns the part of a key; see [store.Parted].
func (m *Memory) PartOf(name, key string) (part string) {
	m.trouble.set(func(t *trouble) {
		if t.partOf != nil {
			part = t.partOf(name, key)
		}
	})
	return part
}

// FailPart makes every question about a key in that part fail with err, until it is called with nil.
func (m *Memory) FailPart(part string, err error) {
	m.trouble.set(func(t *trouble) { put(&t.parts, part, err) })
}

// StallPart makes every call that asks about a key in that part wait until its context ends, or until StallPart
// with false.
func (m *Memory) StallPart(part string, on bool) {
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
// called with nil. With the key "" Load and Define of that name fail, too, with [store.ErrDefinition].
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
func (m *Memory) reach(ctx context.Context, name, key string) (store.Outcome, error) {
	part := m.PartOf(name, key)
	var stalled chan struct{}
	m.trouble.set(func(t *trouble) { stalled = t.stalled[part] })
	if stalled != nil {
		select {
		case <-stalled:
		case <-ctx.Done():
			return store.Unreachable, ctx.Err()
		}
	}
	var away, broken error
	m.trouble.set(func(t *trouble) { away, broken = t.parts[part], t.keys[target{name, key}] })
	switch {
	case away != nil:
		return store.Unreachable, away
	case broken != nil:
		return store.Failed, broken
	}
	return 0, nil
}

// reachDefinition is reach for the definition of that name.
func (m *Memory) reachDefinition(ctx context.Context, name string) error {
	outcome, err := m.reach(ctx, name, "")
	if outcome == store.Failed {
		return fmt.Errorf("%w: %w", store.ErrDefinition, err)
	}
	return err
}

// reachBatches returns those that can be asked, and answers the others.
func (m *Memory) reachBatches(ctx context.Context, all []*store.Batch) (some []*store.Batch) {
	for _, b := range all {
		if outcome, err := m.reach(ctx, b.Definition.Name, b.Key); err != nil {
			b.Outcome, b.Err = outcome, err
		} else {
			some = append(some, b)
		}
	}
	return some
}

func (m *Memory) reachHolds(ctx context.Context, all []*store.Hold) (some []*store.Hold) {
	for _, h := range all {
		if outcome, err := m.reach(ctx, h.Definition.Name, h.Key); err != nil {
			h.Outcome, h.Err = outcome, err
		} else {
			some = append(some, h)
		}
	}
	return some
}
