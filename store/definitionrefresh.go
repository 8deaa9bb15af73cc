package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// refreshIfDue loads the definition in the background if that is due. It is called whenever the limiter is used.
func (c *core) refreshIfDue(now time.Time) {
	in := c.inForce.Load()
	if in == nil || !now.After(in.due) || c.s.calls.Away(c.name, "") {
		return
	}
	if c.inForce.CompareAndSwap(in, in.dueAt(c.nextRefresh())) {
		c.refresh()
	}
}

// refreshSoon makes the limiter load the definition at its next use after a random part of a second. The pause is random
// because all instances can have the same reason to load at once.
func (c *core) refreshSoon() {
	if in := c.inForce.Load(); in != nil {
		c.inForce.CompareAndSwap(in, in.dueAt(time.Now().Add(time.Duration(rand.Int64N(int64(time.Second))))))
	}
}

// The states of core.refreshing. A refresh does not see changes after its start; therefore, another one can be needed.
const (
	noRefresh    int32 = iota
	oneRefresh         // one is under way
	twoRefreshes       // one is under way, and another must follow
)

// refresh loads the definition in the background. One refresh is under way at a time, and one more follows it for all
// calls that come meanwhile.
func (c *core) refresh() {
	if c.s.calls.Away(c.name, "") {
		return
	}
	if c.refreshing.Swap(twoRefreshes) == noRefresh {
		c.refreshing.Store(oneRefresh) // it starts after this; calls in between are covered
		c.s.calls.Go(c.refreshAll)
	}
}

func (c *core) refreshAll() {
	for {
		_ = c.reloadDefinition()
		if c.refreshing.CompareAndSwap(oneRefresh, noRefresh) {
			return
		}
		c.refreshing.Store(oneRefresh)
	}
}

// reloadDefinition loads the definition and adopts it. A change that is under way here is adopted first: it knows why an
// override ends.
func (c *core) reloadDefinition() error {
	c.lockDefinition()()
	return c.loadAndAdopt(0)
}

// awaitVersion makes sure that the definition in force is not older than the version of a state. If no definition can
// have that version, the state is broken, and the error says so. Callers share a load. One that began before a caller's
// state was read can have missed its version; then the caller starts another one.
func (c *core) awaitVersion(version int64) error {
	for {
		if b := c.broken.Load(); b != nil && version >= b.version && time.Now().Before(b.until) {
			return b.err
		}
		if in := c.inForce.Load(); in != nil && in.Version >= version {
			return nil
		}
		l, own := c.shareLoad(func() error { return c.loadAndAdopt(version) })
		if <-l.done; own || errors.Is(l.err, ErrUnavailable) {
			return l.err
		}
	}
}

// A brokenVersion is a version that no definition can have. States with that version or a larger one are broken.
type brokenVersion struct {
	version int64
	until   time.Time // the store is not asked about such states before
	err     error
}

// versionSlack is how many µs a version can be ahead of the store's clock: the clocks of a store's servers differ a
// little, and after a failover another server sets the time.
const versionSlack = 60e6

// checkVersion returns an error if a state has a version that no definition can have. Versions are times of the store's
// clock, or follow the version before. If a version in the far future were accepted, the next definition would have a
// later version still, and all keys would be converted as if that much time had passed.
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

// loadAndAdopt loads the definition and adopts it. It defines the limits again if the store has lost them, as a store
// without a disk does at a restart, or if an older program has set its own since then. seen is the version that a state
// has, or 0. If the definition is of another kind, the error is that of kindMismatch.
//
// It waits for lockDefinition only if it has to define. Otherwise calls that were not decided, because their definition is
// outdated, would wait for a Reconfigure here that those of other instances overtake again and again.
func (c *core) loadAndAdopt(seen int64) error {
	in, newest := c.inForce.Load(), c.newest.Load() // before the load: what comes into force meanwhile is not lost
	found, now, err := c.s.calls.Load(c.name)
	if err != nil {
		return err
	}
	broken := c.checkVersion(seen, found, now)
	if broken == nil {
		newest = max(newest, seen)
	}
	switch {
	case found != nil && c.mismatches(found):
		if limits, by, pending := c.pendingReconfigure(); pending {
			return c.lockAndDefine(definitionChange{limits: limits, why: forReconfigureLater, by: by})
		}
		return c.kindMismatch(found)
	case found == nil || in != nil && (found.Version < in.Version || !follows(found, in.Definition)) || found.Version < newest:
		err = c.lockAndDefine(c.restoring())
	default:
		c.adopt(found, now, endedElsewhere)
	}
	return cmp.Or(err, broken)
}

// raiseCheckInterval is the least time between two checks for higher limits.
const raiseCheckInterval = time.Second

// checkForRaise loads the limits if a caller wants more permits than the known ones allow, because they may have been
// raised elsewhere. Without it, an instance whose callers all want that many would never call the store and never learn
// of the raise. Callers share a check, and there is at most one a second. The error is the context's.
func (c *core) checkForRaise(ctx context.Context) error {
	done := c.startRaiseCheck()
	if done == nil {
		return nil
	}
	limit := c.s.calls.Limit(ctx)
	if err := calls.Wait(ctx, limit, done); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// startRaiseCheck starts a check unless a load is under way, and returns a channel that is closed at its end, or nil if it
// is too early. If the check fails, the known limits stay in force.
func (c *core) startRaiseCheck() <-chan struct{} {
	if c.s.calls.Check(c.name, "") != nil {
		return nil
	}
	c.mu.Lock()
	early := !c.raiseChecked.IsZero() && time.Since(c.raiseChecked) < min(raiseCheckInterval, c.s.o.RefreshInterval)
	c.mu.Unlock()
	if early {
		return nil
	}
	l, _ := c.shareLoad(func() error {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.raiseChecked = time.Now()
		}()
		if c.inForce.Load() == nil {
			return c.defineFirst()
		}
		return c.loadAndAdopt(0)
	})
	return l.done
}

// storeMax sets a to v if v is larger.
func storeMax(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}
