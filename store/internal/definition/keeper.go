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

	"github.com/weir-go/weir/internal/eventqueue"
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
	// Go runs a function in the background. Sleep returns false if the limiter was closed meanwhile.
	Go    func(func())
	Sleep func(time.Duration) bool

	// Changed is called when other limits or another queue are in force here. again is false the first time, and if only the
	// queue has changed.
	Changed func(again bool)
	// Settled is called after limits were set in the background.
	Settled func()
	// Overruled is called when limits that this instance wants are not in force, once for each reason.
	Overruled func(error)
}

// InForce is what is in force here. It is never changed.
type InForce struct {
	Definition *backend.Definition // nil until the store has answered
	Limits     rate.Limits         // with the queue of an override, or else of this instance
	Override   *Override           // nil: there is none
	Due        time.Time           // when to load the definition again
	ends       time.Time           // when the override ends, by the clock of this process
}

// A Keeper keeps what is in force of the definition of one limiter, and what this instance wants to come into force.
//
// Two paths lead to the store. A [Load] is shared by all callers who need one: it adopts a newer definition, sets the limits
// that are pending, and puts back what the store has lost. A change (Reconfigure, Override, EndOverride) is its caller's own,
// and one follows the other. A Load never waits for a change, which those of other instances can overtake again and again. If
// both define at once, the store lets one of them do so, and the other tries again.
type Keeper struct {
	host    Host
	made    rate.Schedule // the constructor's limits
	inForce atomic.Pointer[InForce]
	turn    chan struct{} // full while a change is made; not a mutex, for which time stands still in testing/synctest

	onOverride atomic.Pointer[func(Override)]
	overrides  *eventqueue.Queue[Override]

	mu        sync.Mutex
	wanted    rate.Limits // of the constructor, or of the last Reconfigure in this process
	pending   *change     // sets the wanted limits; nil: the store has been told
	ending    string      // why this instance ends an override; empty: it does not
	overruled string      // what Overruled was last called with
	timer     *time.Timer // ends the override in force; nil: there is none
	seen      int64       // the largest version that a key's state had
	broken    brokenVersion
	load      *Load     // under way; nil: none
	loaded    time.Time // when the last one has ended
}

// New returns a Keeper for a limiter that was made now, with these limits.
func New(limits rate.Limits, host Host) *Keeper {
	k := &Keeper{
		host: host, made: limits.Schedule(time.Microsecond), turn: make(chan struct{}, 1), wanted: limits,
		pending: &change{why: firstUse, limits: limits, stamp: newStamp()},
	}
	k.inForce.Store(&InForce{Limits: limits})
	k.overrides = eventqueue.New("store: OnOverride", func(o Override) {
		if f := k.onOverride.Load(); f != nil {
			(*f)(o)
		}
	})
	return k
}

// Kind returns the kind of the limits with which the limiter was made.
func (k *Keeper) Kind() rate.Kind { return k.made.Kind }

// InForce returns what is in force, as far as this instance knows.
func (k *Keeper) InForce() *InForce { return k.inForce.Load() }

// OnOverride makes the Keeper call f when an override has begun or ended; nil ends that.
func (k *Keeper) OnOverride(f func(Override)) {
	if f == nil {
		k.onOverride.Store(nil)
	} else {
		k.onOverride.Store(&f)
	}
}

// WithoutStore returns the limits by which this instance decides without the store. An override that is over by then is not in
// force, although the store does not know it yet.
func (k *Keeper) WithoutStore() rate.Limits {
	in := k.inForce.Load()
	if in.Override != nil && !time.Now().Before(in.ends) {
		return in.Override.Configured
	}
	return in.Limits
}

// overrideCheck is the longest time between two looks at the store's clock, which can step.
const overrideCheck = time.Minute

// adopt puts d in force here, unless a newer definition is known. ch was settled with it, at the store's time now.
func (k *Keeper) adopt(d *backend.Definition, ch *change, now int64) {
	k.mu.Lock()
	if ch.why == set {
		k.wanted, k.pending = ch.limits, nil
	}
	if k.pending == ch {
		k.pending = nil
	}
	in := *k.inForce.Load()
	if in.Definition == nil || in.Definition.Version <= d.Version {
		in.Definition, in.Override, in.Due = d, overrideIn(d), k.nextRefresh()
		if k.timer != nil {
			k.timer.Stop()
		}
		if in.Override != nil {
			left := time.Duration(in.Override.Until-now) * time.Microsecond // Until is at most 100 years away
			in.ends = time.Now().Add(left)
			k.timer = time.AfterFunc(min(left, overrideCheck), func() { k.host.Go(k.insist) })
		}
	}
	old, ending := k.put(&in), k.ending
	k.mu.Unlock()
	k.announce(old, &in)
	for _, o := range old.Override.ends(in.Override, now, ending) {
		if k.onOverride.Load() != nil {
			k.overrides.Add(o)
		}
	}
}

// put puts in into force, with the queue that is wanted, and returns what it replaces. k.mu is locked.
func (k *Keeper) put(in *InForce) (old *InForce) {
	withQueue := func(l rate.Limits) rate.Limits {
		l.QueueLimit, l.QueueOrder = k.wanted.QueueLimit, k.wanted.QueueOrder
		return l
	}
	switch {
	case in.Definition == nil:
		in.Limits = k.wanted
	case in.Override != nil:
		o := *in.Override
		o.Configured = withQueue(o.Configured)
		in.Limits, in.Override = o.Limits, &o
	default:
		in.Limits = withQueue(in.Definition.Schedule.Limits(time.Microsecond))
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
