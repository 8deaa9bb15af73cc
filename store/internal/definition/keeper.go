// Package definition keeps the limits of one shared limiter in agreement with the store.
//
// keeper.go has what is in force here, load.go the loads that callers share, change.go what an instance changes for all, and
// rules.go which limits may come into force, as pure functions.
package definition

import (
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

	// Changed is called when other limits or another queue are in force here. again is false the first time, and if only the
	// queue has changed.
	Changed func(again bool)
	// Settled is called after ReconfigureLater, when the store has the limits.
	Settled func()
	// Overruled is called when limits that this instance wants are not in force, once for each reason.
	Overruled func(error)
}

// InForce is what is in force here. It is never changed.
type InForce struct {
	Definition *backend.Definition // nil until the store has answered
	Limits     rate.Limits         // with the queue of an override, or else of this instance
	Configured rate.Limits         // the limits unless they are overridden
	Override   Override
	Due        time.Time // when to load the definition again
	ends       time.Time // when the override ends, by the clock of this process
	terms      terms
}

// A Keeper keeps what is in force of the definition of one limiter, and what this instance wants to come into force.
//
// Two paths lead to the store. A load is shared by all callers who need one: it adopts a newer definition, sets the limits
// that are pending, and puts back what the store has lost. A change (Reconfigure, Override, EndOverride) is its caller's own,
// and one follows the other. A load never waits for a change, which those of other instances can overtake again and again. If
// both define at once, the store lets one of them do so, and the other tries again.
type Keeper struct {
	host    Host
	made    rate.Schedule // the constructor's limits
	inForce atomic.Pointer[InForce]
	turn    chan struct{}          // full while a change is made; not a mutex, for which time stands still in testing/synctest
	current atomic.Pointer[change] // the one that is made; nil: none
	watch   watch

	mu        sync.Mutex
	wanted    rate.Limits // of the constructor, or of the last Reconfigure in this process
	pending   *change     // sets the wanted limits; nil: the store has been told
	overruled string      // what Overruled was last called with
	timer     *time.Timer // wakes for the end of an override, and for what is pending; nil: there was none yet
	seen      int64       // the largest version that a key's state had
	most      int64       // the largest version that a definition can have had at the last load
	load      *load       // under way; nil: none
	loaded    time.Time   // when the last one has ended
}

// New returns a Keeper for a limiter that was made now, with these limits.
func New(limits rate.Limits, host Host) *Keeper {
	k := &Keeper{host: host, made: limits.Schedule(unit), turn: make(chan struct{}, 1), wanted: limits}
	k.pending = &change{why: firstUse, limits: limits, at: time.Now()}
	k.inForce.Store(&InForce{Limits: limits})
	k.watch.init()
	return k
}

// Kind returns the kind of the limits with which the limiter was made.
func (k *Keeper) Kind() rate.Kind { return k.made.Kind }

// InForce returns what is in force, as far as this instance knows.
func (k *Keeper) InForce() *InForce { return k.inForce.Load() }

// OnOverride makes the Keeper call f with what is in force when an override has begun, and again with why it has ended. If f is
// nil, it calls none.
func (k *Keeper) OnOverride(f func(in *InForce, ended string)) {
	if f == nil {
		k.watch.f.Store(nil)
	} else {
		k.watch.f.Store(&f)
	}
}

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
func (k *Keeper) adopt(d *backend.Definition, ch *change, now int64) {
	k.mu.Lock()
	if ch.why == set && (k.pending == nil || !k.pending.at.After(ch.at)) { // else ReconfigureLater was called meanwhile
		k.wanted, k.pending = ch.limits, nil
	}
	if k.pending == ch {
		k.pending = nil
	}
	in := *k.inForce.Load()
	if in.Definition == nil || in.Definition.Version <= d.Version {
		in.Definition, in.Due, in.terms = d, k.nextRefresh(), termsOf(d)
		if o := &in.terms.Override; !o.None() {
			left := time.Duration(o.Until-now) * time.Microsecond // Until is at most 100 years away
			in.ends = time.Now().Add(left)
			k.wakeAfter(min(left, overrideCheck))
		}
	}
	old := k.put(&in)
	var by string
	if c := k.current.Load(); c != nil {
		by = c.by
	}
	k.watch.changed(old, &in, now, by) // with the lock, so that the last call is about what is in force last
	k.mu.Unlock()
	k.announce(old, &in)
}

// put puts in into force, with the queue that is wanted, and returns what it replaces. k.mu is locked.
func (k *Keeper) put(in *InForce) (old *InForce) {
	in.Configured = k.wanted
	if in.Definition != nil {
		in.Configured = in.terms.Configured.Limits(unit)
		in.Configured.QueueLimit, in.Configured.QueueOrder = k.wanted.QueueLimit, k.wanted.QueueOrder
	}
	in.Limits, in.Override = in.Configured, in.terms.Override
	if !in.Override.None() {
		in.Limits = in.Override.Limits
	}
	return k.inForce.Swap(in)
}

// announce calls Changed if in is another definition than old, or has another queue.
func (k *Keeper) announce(old, in *InForce) {
	again := old.Definition != nil && old.Definition.Version != in.Definition.Version
	if again || old.Limits != in.Limits || old.Definition == nil && in.Definition != nil {
		k.host.Changed(again)
	}
}

func (k *Keeper) nextRefresh() time.Time {
	return time.Now().Add(time.Duration(float64(k.host.RefreshInterval) * (0.8 + 0.2*rand.Float64())))
}
