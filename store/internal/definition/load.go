package definition

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A Load makes this instance and the store agree. Err is valid once Done is closed.
type Load struct {
	Done chan struct{}
	Err  error
	next *Load // begins when this one has ended; nil: none is wanted
}

// join returns the Load that is under way, or a new one. With afresh, it is one that has not begun yet. version is that of a
// state, or 0; only the Load that it makes learns it.
func (k *Keeper) join(afresh bool, version int64) *Load {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.load
	switch {
	case l == nil:
		l = &Load{Done: make(chan struct{})}
		k.start(l, version)
	case afresh && l.next == nil:
		l.next = &Load{Done: make(chan struct{})}
		l = l.next
	case afresh:
		l = l.next
	}
	return l
}

// start runs l. k.mu is locked.
func (k *Keeper) start(l *Load, version int64) {
	k.load = l
	ch := k.pending
	if ch == nil {
		ch = &change{why: agree}
	}
	go func() {
		l.Err = k.settle(ch, version)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.loaded = time.Now()
		if k.load = l.next; l.next != nil {
			k.start(l.next, 0)
		}
		close(l.Done)
	}()
}

// Ready returns nil if a definition is in force, which it loads again in the background if that is due. Otherwise it returns
// the Load that the caller must wait for.
func (k *Keeper) Ready(now time.Time) *Load {
	if k.inForce.Load().Definition == nil {
		return k.join(false, 0)
	}
	k.RefreshIfDue(now)
	return nil
}

// RefreshIfDue loads the definition in the background if that is due.
func (k *Keeper) RefreshIfDue(now time.Time) {
	if in := k.inForce.Load(); in.Definition != nil && now.After(in.Due) && k.host.Away() == nil && k.postpone(in, k.nextRefresh()) {
		k.join(false, 0)
	}
}

// RefreshSoon makes the limiter load the definition at its next use after a random part of a second. The pause is random
// because all instances can have the same reason to load at once.
func (k *Keeper) RefreshSoon() {
	k.postpone(k.inForce.Load(), time.Now().Add(rand.N(time.Second)))
}

// postpone reports whether in was in force, and is due at another time now.
func (k *Keeper) postpone(in *InForce, due time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	then := *in
	then.Due = due
	return k.inForce.CompareAndSwap(in, &then)
}

// Refresh returns a Load that begins now or later, or nil if the limiter was not used yet or the store is away.
func (k *Keeper) Refresh() *Load {
	if k.inForce.Load().Definition == nil || k.host.Away() != nil {
		return nil
	}
	return k.join(true, 0)
}

// checkInterval is the least time between two checks for higher limits, and between two of a broken state.
const checkInterval = time.Second

// CheckForRaise returns a Load that says whether higher limits are in force, or nil if it is too early for one or the store is
// away. Without it, an instance whose callers all want more than the known limits would never call the store and never learn
// of a raise.
func (k *Keeper) CheckForRaise() *Load {
	if k.host.Away() != nil {
		return nil
	}
	k.mu.Lock()
	early := k.load == nil && time.Since(k.loaded) < min(checkInterval, k.host.RefreshInterval)
	k.mu.Unlock()
	if early {
		return nil
	}
	return k.join(false, 0)
}

// A brokenVersion is a version that no definition can have. States with that version or a larger one are broken.
type brokenVersion struct {
	err     error // nil: there is none
	version int64
	until   time.Time // the store is not asked about such states before
}

// Await makes sure that the definition in force is not older than the version of a state. If no definition can have that
// version, the state is broken, and the error says so. A Load that began before the state was read can have missed the
// version; then another one follows.
func (k *Keeper) Await(version int64) error {
	for {
		k.mu.Lock()
		b := k.broken
		k.mu.Unlock()
		switch in := k.inForce.Load(); {
		case in.Definition != nil && in.Definition.Version >= version:
			return nil
		case b.err != nil && version >= b.version && time.Now().Before(b.until):
			return b.err
		}
		l := k.join(false, version)
		if <-l.Done; l.Err != nil {
			return l.Err
		}
	}
}

// versionSlack is how many µs a version can be ahead of the store's clock: the clocks of a store's servers differ a little,
// and after a failover another server sets the time.
const versionSlack = 60e6

// see returns the largest version that a state had, now that this one has that version; in is in force and found is in the store.
// Versions are times of the store's clock, or follow the version before. If a version in the far future were accepted, the next
// definition would have a later version still, and all keys would be converted as if that much time had passed.
func (k *Keeper) see(version int64, in, found *backend.Definition, now int64) int64 {
	most := now + versionSlack
	for _, d := range []*backend.Definition{in, found} {
		if d != nil {
			most = max(most, d.Version)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if version <= most {
		k.seen = max(k.seen, version)
	} else {
		err := fmt.Errorf("limiter %q: the key's state is broken: no definition can have had version %d", k.host.Name, version)
		k.broken = brokenVersion{err, version, time.Now().Add(checkInterval)}
	}
	return k.seen
}
