package store

import (
	"cmp"
	"context"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
)

// A Limiter is a [limiter.Limiter] whose permits are shared by all instances that have one with the same name. The queue belongs to
// this instance: its callers are served in order. An instance with enough waiting callers gets at least half of its even share.
//
// It is safe for use by many goroutines. The zero value is not usable; a [Store] makes Limiters.
type Limiter struct{ handle }

// TryAcquire takes n permits if they are available now. It makes at most one call to the store, and another one if it is
// rejected while this instance gives permits of the same key back. With n == 0 it asks whether any permit is available.
//
// While the store is away, the [OutagePolicy] decides, and the lease has [OutageKey]. If ctx ends before the store has
// answered, no decision was taken: the error wraps the context's error and has a method Undecided() bool that returns
// true.
func (l *Limiter) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return l.c.tryAcquire(ctx, "", n)
}

// Acquire takes n permits. If they are not available, it waits for them in this instance's queue. With n == 0 it waits
// until one permit is available.
//
// If ctx ends while Acquire waits in the queue, the error is the context's. If ctx ends before the store has answered,
// the error is that of [Limiter.TryAcquire].
func (l *Limiter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return l.c.acquire(ctx, "", n)
}

// Statistics is [Limiter.StatisticsContext] without a context. It takes at most Options.CallTimeout.
func (l *Limiter) Statistics() limiter.Statistics {
	return l.c.statistics(context.Background(), "")
}

// StatisticsContext loads the number of available permits from the store. If the store is away, does not answer within
// Options.CallTimeout, or ctx ends first, AvailablePermits is computed from the store's last answer, and LastKnown is true. If
// ctx has already ended, no call is made. All other figures are those of this instance.
func (l *Limiter) StatisticsContext(ctx context.Context) limiter.Statistics {
	return l.c.statistics(ctx, "")
}

// Limits returns the limits in force, as far as this instance knows.
func (l *Limiter) Limits() rate.Limits { return l.c.limits() }

// A Partitioned is a [limiter.Partitioned] whose permits, for each key, are shared by all instances that have one with
// the same name. A key that is not in use takes no memory, neither here nor in the store, so the number of keys is not
// bounded. [limiter.Translate] adapts it to resources that are not strings.
//
// A key can be any bytes. A key of more than 200 bytes is stored as its SHA-256.
type Partitioned struct{ handle }

// TryAcquire is [Limiter.TryAcquire] for a key.
func (p *Partitioned) TryAcquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return p.c.tryAcquire(ctx, key, n)
}

// Acquire is [Limiter.Acquire] for a key. Each key has its own queue.
func (p *Partitioned) Acquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return p.c.acquire(ctx, key, n)
}

// Statistics is [Partitioned.StatisticsContext] without a context. It takes at most Options.CallTimeout.
func (p *Partitioned) Statistics(key string) (limiter.Statistics, error) {
	return p.StatisticsContext(context.Background(), key)
}

// StatisticsContext is [Limiter.StatisticsContext] for a key. SuccessfulLeases and FailedLeases are those of all keys
// together. The error is [limiter.ErrClosed].
func (p *Partitioned) StatisticsContext(ctx context.Context, key string) (limiter.Statistics, error) {
	if p.c.closed.Load() {
		return limiter.Statistics{}, limiter.ErrClosed
	}
	return p.c.statistics(ctx, storedKey(key)), nil
}

// TopRejected returns the n keys that this instance has rejected most often, the most first; fewer if fewer were
// rejected, and 1024 at most. Rejections by the outage policy and of waiters count, too. See [limiter.KeyRejections] for
// what the numbers mean.
//
// Counting begins with the first call, also if n is 0, and ends by itself a minute after the last one; the counts are then
// forgotten. While it counts, it takes about 60 kB more memory. After Close there are no counts.
func (p *Partitioned) TopRejected(n int) []limiter.KeyRejections {
	top := p.c.count.rejections.Top(n)
	all := make([]limiter.KeyRejections, len(top))
	for i, c := range top {
		all[i] = limiter.KeyRejections{Key: c.Text(), Rejections: c.Count, Error: c.Error}
	}
	return all
}

// Limits returns the limits in force, as far as this instance knows. All keys have the same.
func (p *Partitioned) Limits(string) (rate.Limits, error) { return p.c.limits(), nil }

// TokenBucket is [Store.Limiter] for a token bucket.
func (s *Store) TokenBucket(name string, o limiter.TokenBucketOptions, shared *LimiterOptions) (*Limiter, error) {
	return s.Limiter(name, o, shared)
}

// FixedWindow is [Store.Limiter] for a fixed window.
func (s *Store) FixedWindow(name string, o limiter.FixedWindowOptions, shared *LimiterOptions) (*Limiter, error) {
	return s.Limiter(name, o, shared)
}

// SlidingWindow is [Store.Limiter] for a sliding window.
func (s *Store) SlidingWindow(name string, o limiter.SlidingWindowOptions, shared *LimiterOptions) (*Limiter, error) {
	return s.Limiter(name, o, shared)
}

// Concurrency is [Store.Limiter] for a concurrency limiter.
func (s *Store) Concurrency(name string, o limiter.ConcurrencyOptions, shared *LimiterOptions) (*Limiter, error) {
	return s.Limiter(name, o, shared)
}

// PartitionedTokenBucket is [Store.Partitioned] for token buckets.
func (s *Store) PartitionedTokenBucket(name string, o limiter.TokenBucketOptions, shared *LimiterOptions) (*Partitioned, error) {
	return s.Partitioned(name, o, shared)
}

// PartitionedFixedWindow is [Store.Partitioned] for fixed windows.
func (s *Store) PartitionedFixedWindow(name string, o limiter.FixedWindowOptions, shared *LimiterOptions) (*Partitioned, error) {
	return s.Partitioned(name, o, shared)
}

// PartitionedSlidingWindow is [Store.Partitioned] for sliding windows.
func (s *Store) PartitionedSlidingWindow(name string, o limiter.SlidingWindowOptions, shared *LimiterOptions) (*Partitioned, error) {
	return s.Partitioned(name, o, shared)
}

// PartitionedConcurrency is [Store.Partitioned] for concurrency limiters.
func (s *Store) PartitionedConcurrency(name string, o limiter.ConcurrencyOptions, shared *LimiterOptions) (*Partitioned, error) {
	return s.Partitioned(name, o, shared)
}

// A handle is what a Limiter and a Partitioned have in common.
type handle struct{ c *core }

func newCore(s *Store, name string, options limiter.Options, shared *LimiterOptions, partitioned bool) (*core, error) {
	limits, err := check(name, options, shared)
	if err != nil {
		return nil, err
	}
	o := *cmp.Or(shared, new(LimiterOptions))
	o.LeaseTTL = cmp.Or(o.LeaseTTL, defaultLeaseTTL)
	c := &core{s: s, name: name, partitioned: partitioned, leased: limits.Kind == rate.Concurrency, o: o}
	c.keeper, c.keys.c, c.remote.c = newKeeper(c, limits), c, c
	c.fallback.inForce, c.fallback.share = c.keeper.WithoutStore, o.LocalShare
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cores == nil {
		return nil, limiter.ErrClosed
	}
	s.cores[c] = struct{}{}
	return c, nil
}

// close can be called more than once; each call returns when the limiter is closed. Then the Store forgets it: until then, closing
// the Store waits for it.
func (c *core) close() {
	c.closing.Do(func() {
		final := c.finalStatistics()
		c.count.final.Store(&final)
		c.closed.Store(true)
		c.count.rejections.Close()
		c.keys.close()
		c.fallback.close()
		c.s.mu.Lock()
		delete(c.s.cores, c) // does nothing on the nil map of a Store that is being closed
		c.s.mu.Unlock()
	})
}

// Close closes the limiter in this instance: waiting callers are rejected, and later calls return [limiter.ErrClosed].
// Leases stay valid and are renewed until they are released or the [Store] is closed. Afterwards, the Store can make
// another limiter with the same name. Close can be called more than once.
func (h *handle) Close() error {
	h.c.close()
	return nil
}
