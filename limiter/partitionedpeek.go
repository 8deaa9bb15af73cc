package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Peek returns what TryAcquire(ctx, resource, n) would return now; see [Peeker]. It calls the partition function once.
//
// If the key has no partition, Peek calls Partition.New, asks that limiter and closes it, and makes no partition. If
// there are MaxPartitions partitions, such a key is rejected unless one of them is idle. Peek looks for one for at most
// 100 µs.
//
// The error is [errors.ErrUnsupported] if the limiter is a custom one and no [Peeker].
func (p *PartitionedLimiter[R, K]) Peek(ctx context.Context, resource R, n int) (Lease, error) {
	return p.peek(ctx, p.partition(resource), true, n)
}

// PeekKey is [PartitionedLimiter.Peek] for a key instead of a resource.
//
// If the key has no partition, PeekKey must know which limiter it would get. It does if the PartitionedLimiter was made
// with [NewPartitionedByKey], or if resources are keys and the partition function returns the key unchanged. Otherwise,
// the error is [errors.ErrUnsupported].
func (p *PartitionedLimiter[R, K]) PeekKey(ctx context.Context, key K, n int) (Lease, error) {
	part, known := Partition[K]{Key: key, New: p.each}, p.each != nil
	if partition, ok := any(p.partition).(func(K) Partition[K]); ok && !known {
		part = partition(key)
		known = part.Key == key
		part.Key = key
	}
	return p.peek(ctx, part, known, n)
}

// peek is Peek. known reports whether part.New is the factory of the key.
func (p *PartitionedLimiter[R, K]) peek(ctx context.Context, part Partition[K], known bool, n int) (Lease, error) {
	e, err := p.pinned(part.Key)
	if e != nil {
		defer e.unpin()
	}
	if e == nil || !e.clocked() {
		if err := argumentError(ctx, n, false); err != nil {
			return Lease{}, err
		}
	}
	if e == nil {
		if err := cmp.Or(keyError(part.Key), err); err != nil {
			return Lease{}, err
		}
		return p.peekUnmade(ctx, part, known, n)
	}
	l := untracked(e.limiter())
	if a := p.change.Load(); a != nil {
		_ = a.apply(e.key, l)
	}
	return peekLimiter(ctx, l, n)
}

// peekUnmade is peek for a key that has no partition.
func (p *PartitionedLimiter[R, K]) peekUnmade(ctx context.Context, part Partition[K], known bool, n int) (Lease, error) {
	if most := p.max.Load(); most > 0 && p.count.Load() >= most && !p.canEvict(moment()) {
		return rejected(0, partitionLimit), nil
	}
	if !known {
		return Lease{}, fmt.Errorf("limiter: PeekKey does not know the limiter of a key without a partition: %w", errors.ErrUnsupported)
	}
	l, err := makeLimiter(part)
	if err != nil {
		return Lease{}, err
	}
	defer func() { _ = closeLimiter(l) }()
	return peekLimiter(ctx, l, n)
}

// canEvict reports whether a partition could be evicted. It looks at them for scanAtMost, and changes none.
func (p *PartitionedLimiter[R, K]) canEvict(now int64) bool {
	began := moment()
	for i := range p.shards {
		for from, more := 0, true; more; from += visitChains {
			var can bool
			if can, more = p.canEvictOf(&p.shards[i], from, now); can {
				return true
			}
			if moment()-began >= int64(scanAtMost) {
				return false
			}
		}
	}
	return false
}

// canEvictOf is canEvict for up to visitChains chains of a shard, beginning with that index. It also reports whether
// there are more.
func (p *PartitionedLimiter[R, K]) canEvictOf(s *shard[K], from int, now int64) (can, more bool) {
	if s.table.chains() == 0 {
		return false, false
	}
	var toAsk []*entry[K]
	more = s.visit(from, func(e *entry[K]) {
		switch {
		case can || e.pins.Load() > 0 || !p.mayForget(e):
		case e.mustAsk():
			e.pins.Add(1)
			toAsk = append(toAsk, e)
		default:
			idle, ok := e.idleAsOf(now)
			can = ok && int64(idle) > p.evictableAfter(e)
		}
	})
	defer func() {
		for _, e := range toAsk {
			e.unpin()
		}
	}()
	for _, e := range toAsk {
		if can {
			break
		}
		idle, ok := e.idleAsOf(now)
		can = ok && int64(idle) > p.evictableAfter(e)
	}
	return can, more
}
