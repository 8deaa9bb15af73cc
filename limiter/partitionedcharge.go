package limiter

import (
	"context"
	"fmt"
)

// Charge takes n permits of the resource's limiter, even if fewer are free; see [Charger]. It calls the partition
// function once.
//
// If the key has no partition and n is positive, Charge makes one, as TryAcquire does. If there is no room for it, the
// error is [ErrPartitionLimit]. If n is 0 or negative, Charge makes no partition: it calls Partition.New, returns the
// level of that limiter and closes it, whether or not there is room for a partition.
//
// The error is [errors.ErrUnsupported] if the limiter lends its permits, or is a custom limiter that is not a [Charger].
func (p *PartitionedLimiter[R, K]) Charge(ctx context.Context, resource R, n int) (Level, error) {
	part := p.partition(resource)
	if ctx.Err() != nil {
		return Level{}, contextError(ctx)
	}
	hash := p.hash(part.Key)
	s := p.shard(hash)
	e := s.table.find(hash, part.Key)
	if e == nil || !e.pin() {
		var err error
		if e, err = p.findToCharge(ctx, s, hash, part, n); err != nil {
			return Level{}, err
		}
	}
	if e == nil {
		return levelOfNew(ctx, part)
	}
	defer e.unpin()
	if a := p.change.Load(); a != nil {
		_ = a.apply(e.key, untracked(e.limiter()))
	}
	if n > 0 {
		p.use(e)
	}
	return e.charge(ctx, n)
}

// findToCharge returns the partition of a key, pinned. If there is none and n is above 0, it makes it; otherwise it
// returns nil.
func (p *PartitionedLimiter[R, K]) findToCharge(
	ctx context.Context, s *shard[K], hash uint64, part Partition[K], n int,
) (*entry[K], error) {
	if n <= 0 {
		return p.pinned(part.Key)
	}
	e, _, err := p.findOrMake(ctx, s, hash, part, unknown, true)
	if e == nil && err == nil {
		return nil, fmt.Errorf("%w: %d partitions are in use", ErrPartitionLimit, p.max.Load())
	}
	return e, err
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

// charge calls the Charge of a limiter of any type.
func (e *entry[K]) charge(ctx context.Context, n int) (Level, error) {
	switch e.kind {
	case tokenBucketKind, fixedWindowKind:
		return (*bucket)(e.ptr).Charge(ctx, n)
	case slidingWindowKind:
		return (*SlidingWindow)(e.ptr).Charge(ctx, n)
	case customKind:
		return e.tracked().Charge(ctx, n)
	default:
		return chargeLimiter(ctx, e.limiter(), n)
	}
}
