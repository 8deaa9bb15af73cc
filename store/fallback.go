package store

import (
	"sync"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
)

// A fallback has the limiter of FallBackLocally, which is made at its first use.
type fallback struct {
	inForce func() rate.Limits // while the store is away
	share   float64            // of them

	mu      sync.Mutex
	limiter *limiter.PartitionedLimiter[string, string]
	limits  rate.Limits // those of which the limiter has its share
	closed  bool
}

// get returns the limiter for the limits in force. Limits of the same kind change the limiter in place, so that permits
// that are held or were granted in this window still count. For limits of another kind there is a new limiter, which starts
// full.
func (f *fallback) get() *limiter.PartitionedLimiter[string, string] {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, limits := f.limits, f.inForce()
	if f.limiter != nil && (f.closed || was == limits) {
		return f.limiter
	}
	f.limits = limits
	if f.limiter != nil && was.Kind == limits.Kind {
		share := limits.Share(f.share)
		_ = f.limiter.Apply(func(_ string, l limiter.Limiter) error {
			_ = l.(limiter.Configurable).Reconfigure(share) // fails only if l is closed
			return nil
		})
		return f.limiter
	}
	if f.limiter != nil {
		_ = f.limiter.Close()
	}
	newOfKey := func(key string) (limiter.Limiter, error) {
		return limiter.FactoryFor[string](f.inForce().Share(f.share))(key)
	}
	f.limiter, _ = limiter.NewPartitioned(func(key string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: key, New: newOfKey}
	}, &limiter.PartitionedOptions{MaxPartitions: maxKeys})
	if f.closed {
		_ = f.limiter.Close()
	}
	return f.limiter
}

func (f *fallback) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.limiter != nil {
		_ = f.limiter.Close()
	}
}
