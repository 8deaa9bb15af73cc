package drill

import (
	"context"
	"sync/atomic"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// shared is what all limiters of package store can do.
type shared interface {
	limiter.Limiter
	limiter.StatisticsProvider
	Close() error
}

// made is a limiter with the way to give it new limits.
type made struct {
	shared
	reconfigure func(limitertest.Limits) error
}

// A builder makes a limiter of any kind.
type builder func(s *store.Store, name string, k limitertest.Kind, l limitertest.Limits, how *store.LimiterOptions) (made, error)

// build makes one that is not partitioned.
func build(s *store.Store, name string, k limitertest.Kind, l limitertest.Limits, how *store.LimiterOptions) (made, error) {
	switch k {
	case limitertest.Concurrency:
		by, err := s.Concurrency(name, l.Concurrency(), how)
		return made{by, func(l limitertest.Limits) error { return by.Reconfigure(l.Concurrency()) }}, err
	case limitertest.FixedWindow:
		by, err := s.FixedWindow(name, l.FixedWindow(), how)
		return made{by, func(l limitertest.Limits) error { return by.Reconfigure(l.FixedWindow()) }}, err
	case limitertest.SlidingWindow:
		by, err := s.SlidingWindow(name, l.SlidingWindow(), how)
		return made{by, func(l limitertest.Limits) error { return by.Reconfigure(l.SlidingWindow()) }}, err
	default:
		by, err := s.TokenBucket(name, l.TokenBucket(), how)
		return made{by, func(l limitertest.Limits) error { return by.Reconfigure(l.TokenBucket()) }}, err
	}
}

// partitioned is what the drills need of a partitioned limiter of any kind.
type partitioned interface {
	limiter.Partitioned[string]
	Statistics(key string) (limiter.Statistics, error)
	Close() error
}

// buildPartitioned makes one for all keys.
func buildPartitioned(s *store.Store, name string, k limitertest.Kind, l limitertest.Limits, how *store.LimiterOptions) (partitioned, func(limitertest.Limits) error, error) {
	switch k {
	case limitertest.Concurrency:
		by, err := s.PartitionedConcurrency(name, l.Concurrency(), how)
		return by, func(l limitertest.Limits) error { return by.Reconfigure(l.Concurrency()) }, err
	case limitertest.FixedWindow:
		by, err := s.PartitionedFixedWindow(name, l.FixedWindow(), how)
		return by, func(l limitertest.Limits) error { return by.Reconfigure(l.FixedWindow()) }, err
	case limitertest.SlidingWindow:
		by, err := s.PartitionedSlidingWindow(name, l.SlidingWindow(), how)
		return by, func(l limitertest.Limits) error { return by.Reconfigure(l.SlidingWindow()) }, err
	default:
		by, err := s.PartitionedTokenBucket(name, l.TokenBucket(), how)
		return by, func(l limitertest.Limits) error { return by.Reconfigure(l.TokenBucket()) }, err
	}
}

// oneKey is one key of a partitioned limiter.
type oneKey struct {
	partitioned
	last *atomic.Pointer[limiter.Statistics] // of the key: a closed limiter does not have them
}

const theKey = "a key"

// buildKeyed makes one key of a partitioned limiter.
func buildKeyed(s *store.Store, name string, k limitertest.Kind, l limitertest.Limits, how *store.LimiterOptions) (made, error) {
	by, reconfigure, err := buildPartitioned(s, name, k, l, how)
	if err != nil {
		return made{}, err
	}
	one := oneKey{by, new(atomic.Pointer[limiter.Statistics])}
	return made{one, func(l limitertest.Limits) error {
		err := reconfigure(l)
		_, _ = by.Statistics(theKey) // a key is converted when it is used
		return err
	}}, nil
}

func (o oneKey) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return o.partitioned.TryAcquire(ctx, theKey, n)
}

func (o oneKey) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return o.partitioned.Acquire(ctx, theKey, n)
}

func (o oneKey) Statistics() limiter.Statistics {
	if last := o.last.Load(); last != nil {
		return *last
	}
	st, _ := o.partitioned.Statistics(theKey) // the error is that it is closed
	return st
}

func (o oneKey) Close() error {
	last := o.Statistics()
	last.QueuedPermits = 0
	o.last.Store(&last)
	return o.partitioned.Close()
}
