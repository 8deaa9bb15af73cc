package definition

import (
	"fmt"
	"time"
)

// A Load makes this instance and the store agree. Err is valid once Done is closed.
type Load struct {
	Done chan struct{}
	Err  error
	next *Load // begins when this one has ended; nil: none is wanted
}

// join returns the Load that is under way, or a new one. With afresh, it is one that has not begun yet.
func (k *Keeper) join(afresh bool) *Load {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := &k.load
	if afresh && k.load != nil {
		l = &k.load.next
	}
	if *l == nil {
		*l = &Load{Done: make(chan struct{})}
		if l == &k.load {
			go k.run(k.load)
		}
	}
	return *l
}

func (k *Keeper) run(l *Load) {
	k.mu.Lock()
	ch := k.pending
	k.mu.Unlock()
	if ch == nil {
		ch = &change{why: agree}
	}
	l.Err = k.settle(ch)
	k.mu.Lock()
	k.loaded = time.Now()
	if k.load = l.next; k.load != nil {
		go k.run(k.load)
	}
	if l.Err != nil && (ch.why == setLater || !k.inForce.Load().Override.None()) {
		k.wakeAfter(k.host.RetryInterval)
	}
	k.mu.Unlock()
	close(l.Done)
	if l.Err == nil && ch.why == setLater {
		k.host.Settled()
	}
}

// wake loads, or does so later if the store is away. Every instance that knows an override ends it so when its time is over;
// one of them is the first.
func (k *Keeper) wake() {
	if k.host.Away() == nil {
		k.join(true)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wakeAfter(k.host.RetryInterval)
}

// wakeAfter calls wake after d, or sooner for what is pending. k.mu is locked.
func (k *Keeper) wakeAfter(d time.Duration) {
	if k.timer != nil {
		k.timer.Stop()
	}
	if k.pending != nil {
		d = min(d, k.host.RetryInterval)
	}
	k.timer = k.host.After(d, k.wake)
}

// Ready returns nil if a definition is in force, which it loads again in the background if that is due. Otherwise it returns
// the Load that the caller must wait for.
func (k *Keeper) Ready(now time.Time) *Load {
	if k.inForce.Load().Definition == nil {
		return k.join(false)
	}
	k.RefreshIfDue(now)
	return nil
}

// RefreshIfDue loads the definition in the background if that is due.
func (k *Keeper) RefreshIfDue(now time.Time) {
	in := k.inForce.Load()
	if in.Definition == nil || !now.After(in.Due) || k.host.Away() != nil {
		return
	}
	k.mu.Lock()
	then := *in
	then.Due = k.nextRefresh()
	first := k.inForce.CompareAndSwap(in, &then)
	k.mu.Unlock()
	if first {
		k.join(false)
	}
}

// Refresh returns a Load that begins now or later, or nil if the limiter was not used yet or the store is away.
func (k *Keeper) Refresh() *Load {
	if k.inForce.Load().Definition == nil || k.host.Away() != nil {
		return nil
	}
	return k.join(true)
}

// checkInterval is the least time between a Load and another one that checks for higher limits, or for a broken state.
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
	return k.join(false)
}

// Await makes sure that the definition in force is not older than the version of a state. If no definition can have had that
// version, the state is broken, and the error says so.
func (k *Keeper) Await(version int64) error {
	for {
		if in := k.inForce.Load(); in.Definition != nil && in.Definition.Version >= version {
			return nil
		}
		if err := k.see(version); err != nil {
			return err
		}
		l := k.join(false) // it can have begun before the state was read; then another one follows
		if <-l.Done; l.Err != nil {
			return l.Err
		}
	}
}

// versionSlack is how many µs a version can be ahead of the store's clock: the clocks of a store's servers differ a little,
// and after a failover another server sets the time.
const versionSlack = 60e6

// see makes the next definition newer than a version, unless no definition can have had it, as was checked a moment ago. Versions are times of the store's
// clock, or follow the version before. If a version in the far future were accepted, the next definition would have a later
// version still, and all keys would be converted as if that much time had passed.
func (k *Keeper) see(version int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if version <= k.most {
		k.seen = max(k.seen, version)
	} else if time.Since(k.loaded) < checkInterval {
		return fmt.Errorf("limiter %q: the key's state is broken: no definition can have had version %d", k.host.Name, version)
	}
	return nil
}
