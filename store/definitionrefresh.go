package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// refreshIfDue is called by whoever uses the limiter.
func (c *core) refreshIfDue(now time.Time) {
	in := c.inForce.Load()
	if in == nil || !now.After(in.due) || c.s.shardOf(c.name, "").breaker.err() != nil {
		return
	}
	if c.inForce.CompareAndSwap(in, c.newInForce(in.Definition)) {
		c.refresh()
	}
}

// refreshSoon has the next who uses the limiter look, at some time within a second: all
// instances may have a reason at the same moment.
func (c *core) refreshSoon() {
	if in := c.inForce.Load(); in != nil {
		soon := &inForce{Definition: in.Definition, due: time.Now().Add(time.Duration(rand.Int64N(int64(time.Second))))}
		c.inForce.CompareAndSwap(in, soon)
	}
}

// The states of refreshing. What has changed after a refresh has begun, that refresh may not see.
const (
	noRefresh    int32 = iota
	oneRefresh         // is under way
	twoRefreshes       // one is under way, and another one follows it
)

// refresh looks in the background whether the definition has changed. However often it is called, one refresh is under
// way at a time, and one more follows for all calls that came meanwhile.
func (c *core) refresh() {
	if c.s.shardOf(c.name, "").breaker.err() != nil {
		return
	}
	if c.refreshing.Swap(twoRefreshes) == noRefresh {
		c.refreshing.Store(oneRefresh) // it begins after this, also for calls that came in between
		c.s.goBackground(c.refreshAll)
	}
}

func (c *core) refreshAll() {
	for {
		_ = c.reload()
		if c.refreshing.CompareAndSwap(oneRefresh, noRefresh) {
			return
		}
		c.refreshing.Store(oneRefresh)
	}
}

// reload asks the store for the definition.
func (c *core) reload() error {
	defer c.lockDefinition()()
	return c.loadAndFollow(0)
}

// awaitVersion makes sure that the definition in force is not older than that version, which a state in the store has. If no
// definition can have had that version, the state is broken, and the error says so.
func (c *core) awaitVersion(version int64) error {
	if b := c.broken.Load(); b != nil && version >= b.version && time.Now().Before(b.until) {
		return b.err
	}
	defer c.lockDefinition()()
	if in := c.inForce.Load(); in != nil && in.Version >= version {
		return nil
	}
	return c.loadAndFollow(version)
}

// A brokenVersion is a version that no definition can have had. States with that version or a larger one are broken,
// and the store is not asked about them again before until.
type brokenVersion struct {
	version int64
	until   time.Time
	err     error
}

// versionSlack is by how many µs a version may be ahead of the store's clock. The clocks of a store's servers differ a
// little, and after a failover another one sets the time.
const versionSlack = 60e6

// checkVersion returns an error if a state has a version that no definition can have had: versions are times of the
// store's clock, or follow the version before. If such a version were believed, the next definition would have a larger
// one, and all keys would be converted as if so much time had gone by.
func (c *core) checkVersion(version int64, found *backend.Definition, now int64) error {
	most := now + versionSlack
	if found != nil {
		most = max(most, found.Version)
	}
	if in := c.inForce.Load(); in != nil {
		most = max(most, in.Version)
	}
	if version <= most {
		storeMax(&c.newest, version)
		return nil
	}
	err := fmt.Errorf("limiter %q: the key's state is broken: no definition can have had version %d", c.name, version)
	c.broken.Store(&brokenVersion{version: version, until: time.Now().Add(raiseCheckInterval), err: err})
	return err
}

// loadAndFollow adopts what the store has. If that has forgotten the definition, as one without a disk
// does when it is restarted, it is told again. One for which permits come back in another way
// altogether is of a limiter that only has the same name, and the error says so until that is changed.
// seen is the version that a state has, or 0.
func (c *core) loadAndFollow(seen int64) error {
	found, now, err := c.loadDefinition()
	if err != nil {
		return err
	}
	broken := c.checkVersion(seen, found, now)
	if err := c.follow(found); err != nil {
		return err
	}
	return broken
}

// follow adopts the definition that was found in the store, or tells the store again, also if an older program has set
// its limits in the meantime.
func (c *core) follow(found *backend.Definition) error {
	switch in := c.inForce.Load(); {
	case found != nil && found.Kind == backend.KindConcurrency != c.leased:
		if limits, by, telling := c.pendingReconfigure(); telling {
			return c.define(limits, forReconfigureLater, by)
		}
		return c.kindMismatch(found)
	case found == nil || in != nil && (found.Version < in.Version || !follows(found, in.Definition)) || found.Version < c.newest.Load():
		return c.define(c.limits(), forRestore, stamp{})
	default:
		c.adopt(found)
		return nil
	}
}

// raiseCheckInterval is how long after a look for higher limits the next one begins at the earliest.
const raiseCheckInterval = time.Second

// checkForRaise is called for a caller who wants more permits than the limits known here have: they may have been raised
// elsewhere. An instance whose callers all want so many would otherwise never ask the store, and never learn of it.
// Callers share a look, and many that want too much cost one look a second. The error is that of the context.
func (c *core) checkForRaise(ctx context.Context) error {
	done := c.startRaiseCheck()
	if done == nil {
		return nil
	}
	limit := time.NewTimer(c.s.o.CallTimeout)
	defer limit.Stop()
	if err := wait(ctx, limit, done); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// startRaiseCheck begins a look unless one is under way. The channel that it returns is closed at the end of the look, and nil
// if it is too early for the next. An error does not matter: the limits known here then stay in force.
func (c *core) startRaiseCheck() <-chan struct{} {
	if c.s.cannotAsk(c.s.shardOf(c.name, "")) != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raiseCheck != nil {
		return c.raiseCheck
	}
	if !c.raiseChecked.IsZero() && time.Since(c.raiseChecked) < min(raiseCheckInterval, c.s.o.RefreshInterval) {
		return nil
	}
	done := make(chan struct{})
	c.raiseCheck = done
	go func() {
		defer close(done)
		if c.inForce.Load() == nil {
			_ = c.defineFirst()
		} else {
			_ = c.reload()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raiseCheck, c.raiseChecked = nil, time.Now()
	}()
	return done
}

// storeMax sets a to v if that is larger.
func storeMax(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}
