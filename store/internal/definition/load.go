package definition

import (
	"fmt"
	"time"
)

// A load makes this instance and the store agree. err is valid once done is closed.
type load struct {
	done chan struct{}
	err  error
	next *load // begins when this one has ended; nil: none is wanted
}

// join returns the load that is under way, or a new one. With afresh, it is one that has not begun yet.
func (k *Keeper) join(afresh bool) *load {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := &k.load
	if afresh && k.load != nil {
		l = &k.load.next
	}
	if *l == nil {
		*l = &load{done: make(chan struct{})}
		if l == &k.load {
			go k.run(k.load)
		}
	}
	return *l
}

func (k *Keeper) run(l *load) {
	k.mu.Lock()
	ch := k.pending
	k.mu.Unlock()
	if ch == nil {
		ch = &change{why: agree}
	}
	l.err = k.settle(ch)
	k.mu.Lock()
	k.loaded = time.Now()
	if k.load = l.next; k.load != nil {
		go k.run(k.load)
	}
	if l.err != nil && (ch.why == setLater || !k.inForce.Load().Override.None()) {
		k.wakeAfter(k.host.RetryInterval)
	}
	k.mu.Unlock()
	close(l.done)
	if l.err == nil && ch.why == setLater {
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

// RefreshIfDue loads the definition in the background if that is due.
func (k *Keeper) RefreshIfDue(now time.Time) {
	in := k.inForce.Load()
	if in.Definition == nil || !now.After(in.Due) || k.host.Away() != nil {
		return
	}
	then := *in
	if then.Due = k.nextRefresh(); k.inForce.CompareAndSwap(in, &then) {
		k.join(false)
	}
}

// Refresh loads the definition in the background, unless the limiter was not used yet or the store is away. The channel is
// closed when a load has ended that has begun after the call.
func (k *Keeper) Refresh() <-chan struct{} {
	if k.inForce.Load().Definition == nil || k.host.Away() != nil {
		return closed
	}
	return k.join(true).done
}

// closed is the channel of a load that is not needed.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// checkInterval is the least time between a load and another one that checks for higher limits, or for a broken state.
const checkInterval = time.Second

// CheckForRaise loads the definition in the background, because higher limits can be in force, unless it is too early for that or
// the store is away. The channel is closed at the end. Without it, an instance whose callers all want more than the known
// limits would never call the store and never learn of a raise.
func (k *Keeper) CheckForRaise() <-chan struct{} {
	k.mu.Lock()
	early := k.load == nil && time.Since(k.loaded) < min(checkInterval, k.host.RefreshInterval)
	k.mu.Unlock()
	if early || k.host.Away() != nil {
		return closed
	}
	return k.join(false).done
}

// Await makes sure that a definition is in force, and that it is not older than the version of a state. If no definition can have had that
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
		if <-l.done; l.err != nil {
			return l.err
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
