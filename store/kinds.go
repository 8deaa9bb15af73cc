package store

import "github.com/weir-go/weir/limiter"

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
