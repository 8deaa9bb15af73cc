package store

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/heavyhitters"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
	"github.com/weir-go/weir/store/internal/definition"
)

// A core is one limiter of a Store: everything that does not depend on its kind or on whether it is partitioned.
type core struct {
	s           *Store
	name        string
	partitioned bool
	leased      bool // concurrency: permits come back from their holders, not with time
	o           LimiterOptions
	keeper      *definition.Keeper // of what is in force
	closing     sync.Once
	closed      atomic.Bool

	keys     keyTable
	remote   remote
	count    leaseCounts
	fallback fallback
}

// named returns the limiters with a name, or all if it is empty, which are not closed.
func (s *Store) named(name string) (some []*core) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.cores {
		if name == "" || c.name == name {
			some = append(some, c)
		}
	}
	return some
}

// limits returns the limits in force, as far as this instance knows.
func (c *core) limits() rate.Limits { return c.keeper.InForce().Limits }

// checkRequest returns the error of a request that must not reach the queue or the store, or nil. waiting is true for
// Acquire and false for TryAcquire. If the context has ended and n is also out of range, Acquire returns the context's
// error, and TryAcquire the error of n.
func (c *core) checkRequest(ctx context.Context, n int, waiting bool) error {
	gone := ctxerr.Of(ctx)
	if gone != nil && waiting {
		return gone
	}
	err := c.inRange(n)
	if err != nil && n > 0 && int64(n) <= backend.MaxPermits && gone == nil && !c.closed.Load() {
		// If all callers ask for more than the limit was, no other code refreshes it.
		_ = calls.Wait(ctx, c.s.calls.Limit(ctx), c.keeper.RefreshIfDue(time.Now()))
		err = c.inRange(n)
	}
	switch {
	case err != nil:
		return err
	case gone != nil:
		return gone
	case c.closed.Load():
		return limiter.ErrClosed
	}
	return nil
}

func (c *core) inRange(n int) error {
	if most := c.limits().Permits; n < 0 || n > most {
		return fmt.Errorf("%w: %d of limiter %q, must be from 0 to %d", limiter.ErrPermitCount, n, c.name, most)
	}
	return nil
}

// countLease counts the answer to a call for a key, which is the caller's and not the stored one.
func (c *core) countLease(key string, lease limiter.Lease) limiter.Lease {
	if lease.Acquired() {
		c.count.granted.Add(1)
		return lease
	}
	c.count.failed.Add(1)
	if c.count.rejections.Counting() {
		c.count.rejections.Add(key, maphash.String(seed, key))
	}
	return lease
}

// leaseCounts are the figures of this instance.
type leaseCounts struct {
	granted, failed atomic.Int64 // leases
	rejections      heavyhitters.Counter[string]
	freePlus1       atomic.Int64                       // of leases, not partitioned: 1 + the last answer to Statistics; 0: none yet
	final           atomic.Pointer[limiter.Statistics] // once closed
}
