// Package definition keeps the limits of one shared limiter in agreement with the store.
//
// keeper.go has what is in force here, and what an instance changes for all; loads.go the loads that callers share; inforce.go
// who is told of overrides. rules.go says which limits may come into force, as pure functions.
package definition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A Host is what a Keeper needs of its surroundings.
type Host struct {
	Name       string // of the limiter
	Generation int64
	// CallTimeout bounds Load and Define. A definition is loaded again after RefreshInterval, and what could not be set is
	// tried again after RetryInterval.
	CallTimeout, RefreshInterval, RetryInterval time.Duration

	Load   func() (*backend.Definition, int64, error)
	Define func(old int64, next *backend.Definition) (bool, error)
	// Away returns why nothing can be loaded now, or nil.
	Away func() error
	// After calls a function after a while, unless the limiter is closed by then.
	After func(time.Duration, func()) *time.Timer

	// Changed is called when another definition or another queue is in force here. again is true if the limits differ from
	// the earlier ones, or an override has begun or ended.
	Changed func(again bool)
	// Settled is called after ReconfigureLater, when the store has the limits.
	Settled func()
	// Overruled is called when limits that this instance wants are not in force, once for each reason.
	Overruled func(error)
}

// A Keeper keeps what is in force of the definition of one limiter, and what this instance wants to come into force.
//
// Two paths lead to the store. A load is shared by all callers who need one: it adopts a newer definition, sets the limits
// that are pending, and puts back what the store has lost. A change (Reconfigure, Override, EndOverride) is its caller's own,
// and one follows the other. A load never waits for a change, which those of other instances can overtake again and again. If
// both define at once, the store lets one of them do so, and the other tries again.
type Keeper struct {
	Overrides Overrides
	host      Host
	made      rate.Schedule // the constructor's limits
	inForce   atomic.Pointer[InForce]
	loads     loads
	turn      chan struct{}          // full while a change is made; not a mutex, for which time stands still in testing/synctest
	current   atomic.Pointer[change] // the one that is made; nil: none

	mu        sync.Mutex
	wanted    *change     // of the constructor, or the last Reconfigure in this process
	pending   bool        // wanted is not settled yet
	older     int64       // the latest Made of limits that were set before wanted was called
	overruled string      // what Overruled was last called with
	timer     *time.Timer // wakes for the end of an override, and for what is pending; nil: there was none yet
	seen      int64       // the largest version that a key's state had
	most      int64       // the largest version that a definition can have had at the last load
}

// New returns a Keeper for a limiter that was made now, with these limits.
func New(limits rate.Limits, host Host) *Keeper {
	k := &Keeper{host: host, made: limits.Schedule(unit), turn: make(chan struct{}, 1), pending: true}
	k.wanted = change{why: firstUse, limits: limits}.called()
	k.inForce.Store(&InForce{Limits: limits})
	k.loads.do = k.agree
	return k
}

// Kind returns the kind of the limits with which the limiter was made.
func (k *Keeper) Kind() rate.Kind { return k.made.Kind }

// InForce returns what is in force, as far as this instance knows.
func (k *Keeper) InForce() *InForce { return k.inForce.Load() }

// WithoutStore returns the limits by which this instance decides without the store. An override that is over by then is not in
// force, although the store does not know it yet.
func (k *Keeper) WithoutStore() rate.Limits {
	in := k.inForce.Load()
	if !in.Override.None() && !time.Now().Before(in.ends) {
		return in.Configured
	}
	return in.Limits
}

// overrideCheck is the longest time between two looks at the store's clock, which can step.
const overrideCheck = time.Minute

// adopt puts d in force here, unless a newer definition is known. ch was settled with it, at the store's time now.
func (k *Keeper) adopt(d *backend.Definition, ch *change, refused bool, now int64) {
	k.mu.Lock()
	if ch.why == set && ch.number > k.wanted.number { // else ReconfigureLater was called meanwhile
		k.wanted = ch
	}
	k.pending = k.pending && ch != k.wanted
	in := *k.inForce.Load()
	if in.Definition == nil || in.Definition.Version <= d.Version {
		in.Definition, in.Due, in.terms = d, refreshAfter(k.host.RefreshInterval), termsOf(d)
		if ch.limits.Kind != 0 && !refused {
			k.older = max(k.older, in.terms.Made)
		}
		if o := &in.terms.Override; !o.None() {
			left := time.Duration(o.Until-now) * time.Microsecond // Until is at most 100 years away
			in.ends = time.Now().Add(left)
			k.wakeAfter(min(left, overrideCheck))
		}
	}
	old := k.put(&in)
	k.Overrides.report(old, &in, now, k.current.Load()) // with the lock, so that the last call is about what is in force last
	k.mu.Unlock()
	k.announce(old, &in)
	if ch.why == setLater {
		go k.host.Settled()
	}
}

// put puts in into force, with the queue that is wanted, and returns what it replaces. k.mu is locked.
func (k *Keeper) put(in *InForce) (old *InForce) {
	in.Configured = k.wanted.limits
	if in.Definition != nil {
		in.Configured = in.terms.Configured.Limits(unit)
		in.Configured.QueueLimit, in.Configured.QueueOrder = k.wanted.limits.QueueLimit, k.wanted.limits.QueueOrder
	}
	in.Limits, in.Override = in.Configured, in.terms.Override
	if !in.Override.None() {
		in.Limits = in.Override.Limits
	}
	return k.inForce.Swap(in)
}

// announce calls Changed if in is another definition than old, or has another queue.
func (k *Keeper) announce(old, in *InForce) {
	newer := in.Definition != nil && (old.Definition == nil || old.Definition.Version != in.Definition.Version)
	if newer || old.Limits != in.Limits {
		k.host.Changed(old.Definition != nil && (old.terms.Configured != in.terms.Configured || old.Override != in.Override))
	}
}

// refreshAfter spreads the loads of instances that have learned of a definition together.
func refreshAfter(interval time.Duration) time.Time {
	return time.Now().Add(time.Duration(float64(interval) * (0.8 + 0.2*rand.Float64())))
}

// agree makes this instance and the store agree: it loads the definition, and sets what is pending.
func (k *Keeper) agree() error {
	err := k.settle(nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pending && k.wanted.why == setLater || err != nil && !k.inForce.Load().Override.None() {
		k.wakeAfter(k.host.RetryInterval)
	}
	return err
}

// wake loads, or does so later if the store is away. Every instance that knows an override ends it so when its time is over;
// one of them is the first.
func (k *Keeper) wake() {
	if k.host.Away() == nil {
		k.loads.join(true)
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
	if k.pending {
		d = min(d, k.host.RetryInterval)
	}
	k.timer = k.host.After(d, k.wake)
}

// RefreshIfDue loads the definition in the background if none is known, or if that is due. The channel is closed at the end.
func (k *Keeper) RefreshIfDue(now time.Time) <-chan struct{} {
	in := k.inForce.Load()
	if in.Definition != nil && !now.After(in.Due) || k.host.Away() != nil {
		return closed
	}
	then := *in
	if then.Due = refreshAfter(k.host.RefreshInterval); k.inForce.CompareAndSwap(in, &then) || in.Definition == nil {
		return k.loads.join(false).done
	}
	return closed
}

// Refresh loads the definition in the background, unless the limiter was not used yet or the store is away. The channel is
// closed when a load has ended that has begun after the call.
func (k *Keeper) Refresh() <-chan struct{} {
	if k.inForce.Load().Definition == nil || k.host.Away() != nil {
		return closed
	}
	return k.loads.join(true).done
}

// closed is the channel of a load that is not needed.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// checkInterval is the least time between a load and another one that checks for a broken state, or looks for the definition in
// another shard.
const checkInterval = time.Second

// Await makes sure that a definition is in force, and that it is not older than the version of a state. If no definition can have had that
// version, the state is broken, and the error says so. While the shard of the definition is away, which need not be that of the
// state, calls wait for one load that fails and no more: later loads, which can find the definition in another shard, are in the
// background.
func (k *Keeper) Await(version int64) error {
	for {
		if in := k.inForce.Load(); in.Definition != nil && in.Definition.Version >= version {
			return nil
		}
		ended, failed := k.loads.last() // before see: what that load has found counts
		recent := time.Since(ended) < checkInterval
		if err := k.see(version); err != nil && recent {
			return err
		}
		if err := k.host.Away(); err != nil && failed != nil {
			if !recent {
				k.loads.join(false)
			}
			return err
		}
		l := k.loads.join(false) // it can have begun before the state was read; then another one follows
		if <-l.done; l.err != nil {
			return l.err
		}
	}
}

// versionSlack is how many µs a version can be ahead of the store's clock: the clocks of a store's servers differ a little,
// and after a failover another server sets the time.
const versionSlack = 60e6

// see makes the next definition newer than a version, unless no definition can have had it at the last load.
// Versions are times of the store's clock, or follow the version before. If a version in the far future were accepted, the
// next definition would have a later version still, and all keys would be converted as if that much time had passed.
func (k *Keeper) see(version int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if version > k.most {
		return fmt.Errorf("limiter %q: the key's state is broken: no definition can have had version %d", k.host.Name, version)
	}
	k.seen = max(k.seen, version)
	return nil
}

// Reconfigure sets the limits for all instances, and the queue for this one. Only errors that wrap weir.ErrInvalidOptions or
// [ErrNotOverridden] are the caller's; any other one means that the store could not be told. After an error nothing has
// changed, unless an answer of the store was lost. The same holds for Override and EndOverride.
func (k *Keeper) Reconfigure(l rate.Limits) error { return k.change(change{why: set, limits: l}) }

// Override puts o in force for all instances.
func (k *Keeper) Override(o Override) error { return k.change(change{why: overrideOn, override: o}) }

// EndOverride ends the override in force; by says who does so.
func (k *Keeper) EndOverride(by string) error { return k.change(change{why: overrideEnds, by: by}) }

// turnTimeouts times CallTimeout is the longest that settle takes: no attempt starts after twice CallTimeout, and an attempt
// is two calls. A change waits for so long for the one before.
const turnTimeouts = 4

var errTooOften = errors.New("the limiter is reconfigured too often")

func (k *Keeper) change(c change) error {
	limit := time.NewTimer(turnTimeouts * k.host.CallTimeout)
	defer limit.Stop()
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-limit.C:
		return errTooOften
	}
	if err := k.host.Away(); err != nil {
		return err
	}
	ch := c.called()
	k.current.Store(ch)
	defer k.current.Store(nil)
	if ch.why != set {
		// The limits of this program come first: what it overrides are the limits that it has set, or that have overruled it.
		if err := k.Await(0); err != nil {
			return err
		}
	}
	return k.settle(ch)
}

// ReconfigureLater is Reconfigure in the background. Limits that others set meanwhile stay in force.
func (k *Keeper) ReconfigureLater(l rate.Limits) {
	k.mu.Lock()
	in := *k.inForce.Load()
	k.wanted, k.pending, k.older = change{why: setLater, limits: l}.called(), true, max(k.older, in.terms.Made)
	old := k.put(&in)
	k.mu.Unlock()
	k.announce(old, &in)
	k.wake()
}

const (
	// immediateTries is how many tries of settle follow without a pause. One Reconfigure elsewhere causes one or two.
	immediateTries = 4
	// maxPause is the longest pause between two later tries.
	maxPause = 10 * time.Millisecond
)

// settle makes the store and this instance agree on what ch wants, or on what stands against it; if ch is nil, on what is pending.
// Other instances, and another goroutine of this one, can define at the same time.
func (k *Keeper) settle(ch *change) error {
	begun := time.Now()
	for tries := 1; ; tries++ {
		f := facts{name: k.host.Name, made: k.made, generation: k.host.Generation, asked: time.Now()}
		f.inForce = k.inForce.Load().Definition // before the load: what comes into force meanwhile is not lost
		var err error
		if f.found, f.now, err = k.host.Load(); err != nil {
			return err
		}
		var found int64 // its version
		if f.found != nil {
			found = f.found.Version
		}
		k.mu.Lock()
		f.seen, f.older, k.most = k.seen, k.older, max(k.most, found, f.now+versionSlack)
		want, own := ch, k.current.Load()
		switch { // after the load: what is wanted by now comes after what it has found
		case ch != nil:
		case (f.inForce != nil || f.found != nil) && (!k.pending || own != nil && own.why == set && own.number > k.wanted.number):
			want = &change{} // a Reconfigure that was called later is under way
		default:
			want = k.wanted
		}
		k.mu.Unlock()
		next, refused, err := f.next(want)
		if next == nil {
			k.reportOverruled(err)
			return err
		}
		if next != f.found {
			defined, err := k.host.Define(found, next)
			if err != nil {
				return err
			}
			if !defined {
				var pause time.Duration
				if tries >= immediateTries {
					pause = rand.N(maxPause)
				}
				if time.Since(begun)+pause >= 2*k.host.CallTimeout {
					return errTooOften
				}
				time.Sleep(pause)
				continue
			}
		}
		k.adopt(next, want, refused != nil, f.now)
		if refused != nil {
			k.reportOverruled(refused)
		}
		return err
	}
}

// reportOverruled calls Overruled, once for each reason.
func (k *Keeper) reportOverruled(err error) {
	k.mu.Lock()
	again := k.overruled == err.Error()
	k.overruled = err.Error()
	k.mu.Unlock()
	if !again {
		k.host.Overruled(err)
	}
}
