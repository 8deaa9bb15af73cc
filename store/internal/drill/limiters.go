package drill

import (
	"context"
	"sync/atomic"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

var kinds = []limitertest.Kind{
	limitertest.TokenBucket, limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.Concurrency,
}

// A reconfigureFunc gives a limiter new limits.
type reconfigureFunc func(limitertest.Limits) error

// A sharedLimiter is a shared limiter of any kind.
type sharedLimiter interface {
	limiter.Limiter
	limiter.Peeker
	limiter.Charger
	limiter.StatisticsProvider
	Close() error
}

// A testLimiter can be reconfigured whatever its kind.
type testLimiter struct {
	sharedLimiter
	reconfigure reconfigureFunc
}

// build makes a limiter that is not partitioned.
func build(s *store.Store, name string, k limitertest.Kind, l limitertest.Limits, options *store.LimiterOptions) (testLimiter, error) {
	made, reconfigure, err := buildShared(s, name, k, l, options)
	return testLimiter{made, reconfigure}, err
}

func buildShared(s *store.Store, name string, k limitertest.Kind, l limitertest.Limits, options *store.LimiterOptions) (sharedLimiter, reconfigureFunc, error) {
	made, err := s.Limiter(name, l.Of(k), options)
	return made, func(l limitertest.Limits) error { return made.Reconfigure(l.Of(k)) }, err
}

// partitioned is a partitioned limiter of any kind.
type partitioned interface {
	limiter.Partitioned[string]
	custom.KeyPeeker
	limiter.PartitionedCharger[string]
	Statistics(key string) (limiter.Statistics, error)
	Close() error
}

func buildPartitioned(s *store.Store, name string, k limitertest.Kind, l limitertest.Limits, options *store.LimiterOptions) (partitioned, reconfigureFunc, error) {
	made, err := s.Partitioned(name, l.Of(k), options)
	return made, func(l limitertest.Limits) error { return made.Reconfigure(l.Of(k)) }, err
}

// oneKey is one key of a partitioned limiter.
type oneKey struct {
	partitioned
	key  string
	last *atomic.Pointer[limiter.Statistics] // set by Close: a closed limiter has no statistics of a key
}

func newOneKey(p partitioned, key string) oneKey {
	return oneKey{p, key, new(atomic.Pointer[limiter.Statistics])}
}

const theKey = "a key"

// buildKeyed makes one key of a partitioned limiter.
func buildKeyed(s *store.Store, name string, k limitertest.Kind, l limitertest.Limits, options *store.LimiterOptions) (testLimiter, error) {
	p, reconfigure, err := buildPartitioned(s, name, k, l, options)
	if err != nil {
		return testLimiter{}, err
	}
	return testLimiter{newOneKey(p, theKey), func(l limitertest.Limits) error {
		err := reconfigure(l)
		_, _ = p.Statistics(theKey) // a key is converted when it is used
		return err
	}}, nil
}

func (o oneKey) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return o.partitioned.TryAcquire(ctx, o.key, n)
}

func (o oneKey) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return o.partitioned.Acquire(ctx, o.key, n)
}

func (o oneKey) Peek(ctx context.Context, n int) (limiter.Lease, error) {
	return o.PeekKey(ctx, o.key, n)
}

func (o oneKey) Charge(ctx context.Context, n int) (limiter.Level, error) {
	return o.partitioned.Charge(ctx, o.key, n)
}

func (o oneKey) Statistics() limiter.Statistics {
	if last := o.last.Load(); last != nil {
		return *last
	}
	st, _ := o.partitioned.Statistics(o.key) // the error is that it is closed
	return st
}

func (o oneKey) Close() error {
	last := o.Statistics()
	last.QueuedPermits = 0
	o.last.Store(&last)
	return o.partitioned.Close()
}
