package store

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/eventqueue"
	"github.com/weir-go/weir/internal/heavyhitters"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A core is one limiter of a Store: everything that does not depend on its kind or on whether it is partitioned.
type core struct {
	s           *Store
	name        string
	partitioned bool
	leased      bool // concurrency: permits come back from their holders, not with time
	o           LimiterOptions
	madeAt      stamp
	madeWith    rate.Schedule // the constructor's limits

	inForce     atomic.Pointer[loadedDefinition] // nil until the first answer of the store
	queueing    atomic.Pointer[queueing]
	newest      atomic.Int64 // the largest definition version that was seen in a state
	broken      atomic.Pointer[brokenVersion]
	closed      atomic.Bool
	overruledBy atomic.Pointer[error] // the last reason that was reported with EventOverruled

	overrideEvents atomic.Pointer[eventqueue.Queue[overrideEvent]] // see OnOverride; nil: none

	refreshing atomic.Int32 // noRefresh, oneRefresh or twoRefreshes

	definitionLock chan struct{} // full while a goroutine loads or changes the definition in the store

	mu              sync.Mutex
	wantedLimits    rate.Schedule      // what the last constructor or Reconfigure in this process has set
	wantedAt        stamp              // when that was
	reconfiguring   bool               // reconfigureLoop is running
	load            *definitionLoad    // not nil while callers can share a load of the definition
	raiseChecked    time.Time          // when the last check for higher limits ended
	overrideTimer   *time.Timer        // ends the override in force; nil: there is none
	finalStatistics limiter.Statistics // once closed

	keys         keyTable
	granted      atomic.Int64 // leases
	failed       atomic.Int64 // leases
	rejections   heavyhitters.Counter[string]
	anyKeyWaited atomic.Int64 // when a caller last began to wait, in ns since 1970
	freePlus1    atomic.Int64 // not partitioned: 1 + the last answer of the store to Statistics; 0: none yet
	fallback     fallback
}

func newCore(s *Store, name string, options limiter.Options, shared *LimiterOptions, partitioned bool) (*core, error) {
	limits, q, err := check(name, options, shared)
	if err != nil {
		return nil, err
	}
	var o LimiterOptions
	if shared != nil {
		o = *shared
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = defaultLeaseTTL
	}
	madeAt := newStamp()
	c := &core{
		s: s, name: name, partitioned: partitioned, leased: limits.Kind == rate.Concurrency, o: o,
		madeAt: madeAt, madeWith: limits, wantedAt: madeAt, wantedLimits: limits, definitionLock: make(chan struct{}, 1),
	}
	c.queueing.Store(&q)
	c.keys.c = c
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cores == nil {
		return nil, limiter.ErrClosed
	}
	s.cores[name] = append(slices.Clip(s.cores[name]), c) // a copy, because notice reads the old one without the lock
	return c, nil
}

// forget removes c from the limiters with its name.
func (s *Store) forget(c *core) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(s.cores[c.name]), func(other *core) bool { return other == c })
	if len(rest) > 0 {
		s.cores[c.name] = rest
	} else {
		delete(s.cores, c.name) // does nothing on the nil map of a Store that is being closed
	}
}

// limits returns the limits in force, as far as this instance knows.
func (c *core) limits() rate.Schedule {
	if in := c.inForce.Load(); in != nil {
		return in.Limits()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wantedLimits
}

// checkRequest returns the error of a request that must not reach the queue or the store, or nil. waiting is true for
// Acquire and false for TryAcquire. If the context has ended and n is also out of range, Acquire returns the context's
// error, and TryAcquire the error of n.
func (c *core) checkRequest(ctx context.Context, n int, waiting bool) error {
	var ctxErr error
	if ctx.Err() != nil {
		ctxErr = ctxerr.Of(ctx)
	}
	if waiting && ctxErr != nil {
		return ctxErr
	}
	if err := c.inRange(n); err != nil {
		if n < 0 || int64(n) > backend.MaxPermits || ctxErr != nil || c.closed.Load() {
			return err
		}
		if err := c.checkForRaise(ctx); err != nil {
			return err
		}
		if err := c.inRange(n); err != nil {
			return err
		}
	}
	if ctxErr != nil {
		return ctxErr
	}
	if c.closed.Load() {
		return limiter.ErrClosed
	}
	return nil
}

func (c *core) inRange(n int) error {
	if most := c.limits().Permits; n < 0 || int64(n) > most {
		return fmt.Errorf("%w: %d of limiter %q, must be from 0 to %d", limiter.ErrPermitCount, n, c.name, most)
	}
	return nil
}

// tryAcquire is TryAcquire for a key.
func (c *core) tryAcquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if err := c.checkRequest(ctx, n, false); err != nil {
		return limiter.Lease{}, err
	}
	stored := storedKey(key)
	if lease, from := c.tryLocally(stored, n, false); from == byKeyState {
		return c.countLease(key, lease), nil
	}
	lease, err := c.takeOrFallBack(ctx, stored, n, false)
	if err != nil {
		return limiter.Lease{}, err
	}
	return c.countLease(key, lease), nil
}

// countLease counts the answer to a call for a key, which is the caller's and not the stored one.
func (c *core) countLease(key string, lease limiter.Lease) limiter.Lease {
	if lease.Acquired() {
		c.granted.Add(1)
		return lease
	}
	c.failed.Add(1)
	if c.rejections.Counting() {
		c.rejections.Add(key, maphash.String(seed, key))
	}
	return lease
}

// takeOrFallBack asks the store, or answers by the outage policy. The error is the context's, [limiter.ErrClosed], or an
// [limiter.ErrPermitCount] if the limit was lowered below n meanwhile.
func (c *core) takeOrFallBack(ctx context.Context, key string, n int, waiting bool) (limiter.Lease, error) {
	var lease limiter.Lease
	var err error
	switch {
	case c.leased:
		lease, err = c.takeLease(ctx, key, n, waiting)
	case c.o.Block > 1:
		lease, err = c.takeFromBlock(ctx, key, n)
	default:
		lease, err = c.takeFromStore(ctx, key, n)
	}
	if errors.Is(err, ErrUnavailable) {
		if c.closed.Load() {
			return limiter.Lease{}, limiter.ErrClosed
		}
		return c.withoutStore(key, n, err), nil
	}
	if err == nil && !lease.Acquired() {
		err = c.inRange(n)
	}
	return lease, err
}

// close can be called more than once. The Store forgets the limiter, so that another one can be made with the same
// name.
func (c *core) close() {
	if c.closed.Load() {
		return
	}
	final := c.computeFinalStatistics()
	c.mu.Lock()
	c.finalStatistics = final
	was := c.closed.Swap(true)
	if c.overrideTimer != nil {
		c.overrideTimer.Stop()
	}
	c.mu.Unlock()
	if was {
		return
	}
	c.s.forget(c)
	c.rejections.Close()
	c.keys.close()
	c.fallback.close()
}
