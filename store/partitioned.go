package store

import (
	"context"

	"github.com/weir-go/weir/limiter"
)

// A Partitioned is a [limiter.Partitioned] whose permits, for each key, are shared by all instances that have one with
// the same name. A key that is not in use takes no memory, neither here nor in the store, so the number of keys is not
// bounded. [limiter.Translate] adapts it to resources that are not strings.
//
// A key can be any bytes. A key of more than 200 bytes is stored as its SHA-256.
type Partitioned[O options] struct{ c *core }

type (
	// PartitionedTokenBucket has a shared token bucket for each key.
	PartitionedTokenBucket = Partitioned[limiter.TokenBucketOptions]
	// PartitionedFixedWindow has a shared fixed window for each key.
	PartitionedFixedWindow = Partitioned[limiter.FixedWindowOptions]
	// PartitionedSlidingWindow has a shared sliding window for each key.
	PartitionedSlidingWindow = Partitioned[limiter.SlidingWindowOptions]
	// PartitionedConcurrency has a shared concurrency limiter for each key.
	PartitionedConcurrency = Partitioned[limiter.ConcurrencyOptions]
)

func newPartitioned[O options](s *Store, name string, o O, how *LimiterOptions) (*Partitioned[O], error) {
	c, err := newCore(s, name, o, how, true)
	if err != nil {
		return nil, err
	}
	return &Partitioned[O]{c}, nil
}

// TryAcquire is [Limiter.TryAcquire] for a key.
func (p *Partitioned[O]) TryAcquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return p.c.tryAcquire(ctx, key, n)
}

// Acquire is [Limiter.Acquire] for a key. Each key has its own queue.
func (p *Partitioned[O]) Acquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return p.c.acquire(ctx, key, n)
}

// Statistics is [Partitioned.StatisticsContext] without a context. It takes at most Options.CallTimeout.
func (p *Partitioned[O]) Statistics(key string) (limiter.Statistics, error) {
	return p.StatisticsContext(context.Background(), key)
}

// StatisticsContext is [Limiter.StatisticsContext] for a key. SuccessfulLeases and FailedLeases are those of all keys
// together. The error is [limiter.ErrClosed].
func (p *Partitioned[O]) StatisticsContext(ctx context.Context, key string) (limiter.Statistics, error) {
	if p.c.closed.Load() {
		return limiter.Statistics{}, limiter.ErrClosed
	}
	return p.c.statistics(ctx, storedKey(key)), nil
}

// Reconfigure is [Limiter.Reconfigure] for all keys. Instances that cannot listen follow at the next call about a key,
// and after Options.RefreshInterval for all keys.
func (p *Partitioned[O]) Reconfigure(o O) error { return p.c.reconfigure(o) }

// ReconfigureLater is [Limiter.ReconfigureLater] for all keys.
func (p *Partitioned[O]) ReconfigureLater(o O) error { return p.c.reconfigureLater(o) }

// Options returns the limits in force, as far as this instance knows.
func (p *Partitioned[O]) Options() O { return optionsOf[O](p.c) }

// Close is [Limiter.Close].
func (p *Partitioned[O]) Close() error {
	p.c.close()
	return nil
}
