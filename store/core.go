package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// A core is one limiter of a Store: what is the same whether it is partitioned or not, and
// whatever its kind.
type core struct {
	s        *Store
	name     string
	keyed    bool
	leased   bool // concurrency: permits come back from those who hold them, not with time
	o        LimiterOptions
	madeAt   stamp
	madeWith backend.Limits // the constructor's

	inForce     atomic.Pointer[inForce] // nil until the store was asked
	queueing    atomic.Pointer[queueing]
	newest      atomic.Int64 // the largest version of a definition that a state was seen of
	broken      atomic.Pointer[brokenVersion]
	closed      atomic.Bool
	overruledBy atomic.Pointer[error] // what was last told of
	refreshing  atomic.Int32

	definitionLock chan struct{} // full while the store is asked for the definition, or told of another

	mu              sync.Mutex
	wantedLimits    backend.Limits     // what the last constructor or Reconfigure here has said
	wantedAt        stamp              // when it said so
	reconfiguring   bool               // the store is being told what is wanted
	firstLoad       *definitionLoad    // the first question for the definition is under way
	raiseCheck      chan struct{}      // a look for higher limits is under way until this is closed
	raiseChecked    time.Time          // when the last such look ended
	finalStatistics limiter.Statistics // closed: the last figures

	keys       keyTable
	granted    atomic.Int64
	failed     atomic.Int64
	lastWaited atomic.Int64 // when a caller last began to wait, in ns since 1970
	lastFree   atomic.Int64 // not partitioned: one more than was free when Statistics was last answered; 0: never
	fallback   fallback
}

// newCore returns a limiter of that name.
func newCore(s *Store, name string, options any, how *LimiterOptions, keyed bool) (*core, error) {
	limits, q, err := check(name, options, how)
	if err != nil {
		return nil, err
	}
	var o LimiterOptions
	if how != nil {
		o = *how
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = defaultLeaseTTL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cores == nil {
		return nil, limiter.ErrClosed
	}
	c := &core{s: s, name: name, keyed: keyed, leased: limits.Kind == backend.KindConcurrency, o: o, madeWith: limits, wantedLimits: limits, madeAt: newStamp()}
	c.wantedAt = c.madeAt
	c.definitionLock = make(chan struct{}, 1)
	c.queueing.Store(&q)
	c.keys.c = c
	s.cores[name] = append(slices.Clip(s.cores[name]), c) // notice reads it without the lock
	return c, nil
}

// without returns a copy of all without c.
func without(all []*core, c *core) []*core {
	return slices.DeleteFunc(slices.Clone(all), func(other *core) bool { return other == c })
}

// limits are those in force, as far as is known here.
func (c *core) limits() backend.Limits {
	if in := c.inForce.Load(); in != nil {
		return in.Limits
	}
	return c.lastWanted()
}

// lastWanted are those that this program has said last.
func (c *core) lastWanted() backend.Limits {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wantedLimits
}

// checkRequest is what is looked at before anything else.
func (c *core) checkRequest(ctx context.Context, n int, wait bool) error {
	var ctxErr error
	if ctx.Err() != nil {
		ctxErr = contextError(ctx)
	}
	if wait && ctxErr != nil {
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

// contextError returns why ctx has ended, with the cause where one was set.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// tryAcquire is TryAcquire for a key.
func (c *core) tryAcquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if err := c.checkRequest(ctx, n, false); err != nil {
		return limiter.Lease{}, err
	}
	key = storedKey(key)
	if lease, from := c.tryLocally(key, n, false); from == byKeyState {
		return c.counted(lease), nil
	}
	lease, err := c.takeOrFallBack(ctx, key, n, false)
	if err != nil {
		return limiter.Lease{}, err
	}
	return c.counted(lease), nil
}

func (c *core) counted(lease limiter.Lease) limiter.Lease {
	if lease.Acquired() {
		c.granted.Add(1)
	} else {
		c.failed.Add(1)
	}
	return lease
}

// takeOrFallBack asks the store, or whatever stands in for it. The error is that of the context, or
// says that the limit was lowered below n meanwhile, or that the limiter was closed.
func (c *core) takeOrFallBack(ctx context.Context, key string, n int, waiting bool) (limiter.Lease, error) {
	var lease limiter.Lease
	var err error
	switch {
	case c.leased:
		lease, err = c.acquireLease(ctx, key, n, waiting)
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

// close may be called again. The Store forgets the limiter, so that a new one of the same
// name can be made.
func (c *core) close() {
	c.mu.Lock()
	was := c.closed.Load()
	c.mu.Unlock()
	if was {
		return
	}
	last := c.lastStatistics()
	c.mu.Lock()
	c.finalStatistics = last
	was = c.closed.Swap(true)
	c.mu.Unlock()
	if was {
		return
	}
	c.s.mu.Lock()
	if same := without(c.s.cores[c.name], c); len(same) > 0 {
		c.s.cores[c.name] = same
	} else {
		delete(c.s.cores, c.name) // also of the nil map of a store that is being closed
	}
	c.s.mu.Unlock()
	c.keys.close()
	c.fallback.close()
}
