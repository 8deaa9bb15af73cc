package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/internal/ctxerr"
)

// Peek returns what TryAcquire(ctx, resource, n) would return now; see [Peeker]. It calls the partition function once.
//
// If the key has no partition, Peek calls Partition.New, asks that limiter and closes it, and makes no partition. If
// there are MaxPartitions partitions, such a key is rejected unless one of them is idle. Peek searches for one as a new
// key does.
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
func (p *PartitionedLimiter[R, K]) peek(ctx context.Context, part Partition[K], known bool, n int) (lease Lease, err error) {
	if err := cmp.Or(argumentError(ctx, n, false), keyError(part.Key)); err != nil {
		return Lease{}, err
	}
	there, err := p.use(func() (partition[K], error) {
		return p.pinned(part.Key)
	}, func(found partition[K]) (err error) {
		lease, err = peekLimiter(ctx, found.limiter(), n)
		return err
	})
	if !there && err == nil {
		return p.peekUnmade(ctx, part, known, n)
	}
	return lease, err
}

// peekUnmade is peek for a key that has no partition.
func (p *PartitionedLimiter[R, K]) peekUnmade(ctx context.Context, part Partition[K], known bool, n int) (Lease, error) {
	if most := p.max.Load(); most > 0 && p.count.Load() >= most && !p.search(p.hash(part.Key), moment(), true, candidate[K].isIdle) {
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

// Charge takes n permits of the resource's limiter, even if fewer are free; see [Charger]. It calls the partition
// function once.
//
// If the key has no partition and n is positive, Charge makes one, as TryAcquire does. If there is no room for it, the
// error is [ErrPartitionLimit]. If n is 0 or negative, Charge makes no partition: it calls Partition.New, returns the
// level of that limiter and closes it, whether or not there is room for a partition.
//
// The error is [errors.ErrUnsupported] if the limiter lends its permits, or is a custom limiter that is not a [Charger].
func (p *PartitionedLimiter[R, K]) Charge(ctx context.Context, resource R, n int) (level Level, err error) {
	part := p.partition(resource)
	if ctx.Err() != nil {
		return Level{}, ctxerr.Of(ctx)
	}
	there, err := p.use(func() (partition[K], error) {
		return p.findToCharge(ctx, part, n)
	}, func(found partition[K]) (err error) {
		if found.tracked != nil {
			level, err = found.tracked.charge(ctx, n)
		} else {
			level, err = found.Charge(ctx, n)
		}
		return err
	})
	if !there && err == nil {
		return levelOfNew(ctx, part)
	}
	return level, err
}

// findToCharge returns the partition of a key. If there is none and n is above 0, it makes it; otherwise it returns a zero
// one. A tracked limiter is pinned.
func (p *PartitionedLimiter[R, K]) findToCharge(ctx context.Context, part Partition[K], n int) (partition[K], error) {
	if n <= 0 {
		return p.pinned(part.Key)
	}
	hash := p.hash(part.Key)
	found, err := p.findOrMake(ctx, p.shard(hash), hash, part, moment())
	if found.entry == nil && err == nil {
		return found, fmt.Errorf("%w: %d partitions are in use", ErrPartitionLimit, p.max.Load())
	}
	return found, err
}

// levelOfNew returns the level of the limiter that a key would get.
func levelOfNew[K comparable](ctx context.Context, part Partition[K]) (Level, error) {
	if err := keyError(part.Key); err != nil {
		return Level{}, err
	}
	l, err := makeLimiter(part)
	if err != nil {
		return Level{}, err
	}
	defer func() { _ = closeLimiter(l) }()
	return chargeLimiter(ctx, l, 0)
}
