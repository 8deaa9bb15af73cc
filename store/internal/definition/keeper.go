// Package definition keeps the limits of one shared limiter in agreement with the store.
//
// keeper.go has what is in force here, the loads that callers share, and what an instance changes for all. rules.go says which
// limits may come into force, as pure functions.
package definition

import (
	"errors"
	"fmt"
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
	turn    chan struct{}                             // full while a change is made; not a mutex, for which time stands still in testing/synctest
	current atomic.Pointer[change]                    // the one that is made; nil: none
	watch   atomic.Pointer[eventqueue.Queue[watched]] // of OnOverride; nil: none

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
	k.reportOverride(old, &in, now) // with the lock, so that the last call is about what is in force last
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

// A watched is what has happened to an override: with what is in force with it, and with why it has ended if that is not empty.
type watched struct {
	in    *InForce
	ended string
}

// OnOverride makes the Keeper call f with what is in force when an override has begun, and again with why it has ended. If f is
// nil, it calls none.
func (k *Keeper) OnOverride(f func(in *InForce, ended string)) {
	var events *eventqueue.Queue[watched]
	if f != nil {
		events = eventqueue.New("store: OnOverride", func(e watched) {
			if k.watch.Load() == events { // else OnOverride was called again
				f(e.in, e.ended)
			}
		})
	}
	k.watch.Store(events)
}

// reportOverride reports the end of the override that was in force and the beginning of the one that is, unless they are the same.
func (k *Keeper) reportOverride(was, is *InForce, now int64) {
	events := k.watch.Load()
	if was.Override == is.Override || events == nil {
		return
	}
	ended := "ended at another instance"
	switch ch := k.current.Load(); {
	case was.Override.over(now):
		ended = "its time is over"
	case !is.Override.None():
		ended = "replaced by " + is.Override.By
	case ch != nil && ch.by != "":
		ended = "ended by " + ch.by
	}
	if !was.Override.None() {
		events.Add(watched{was, ended})
	}
	if !is.Override.None() {
		events.Add(watched{in: is})
	}
}

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

// RefreshIfDue loads the definition in the background if none is known, or if that is due. The channel is closed at the end.
func (k *Keeper) RefreshIfDue(now time.Time) <-chan struct{} {
	in := k.inForce.Load()
	if in.Definition != nil && !now.After(in.Due) || k.host.Away() != nil {
		return closed
	}
	then := *in
	if then.Due = k.nextRefresh(); k.inForce.CompareAndSwap(in, &then) || in.Definition == nil {
		return k.join(false).done
	}
	return closed
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

// checkInterval is the least time between a load and another one that checks for a broken state.
const checkInterval = time.Second

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

// see makes the next definition newer than a version, unless no definition can have had it, as was checked a moment ago.
// Versions are times of the store's clock, or follow the version before. If a version in the far future were accepted, the
// next definition would have a later version still, and all keys would be converted as if that much time had passed.
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

// Reconfigure sets the limits for all instances, and the queue for this one. Only errors that wrap weir.ErrInvalidOptions or
// [ErrNotOverridden] are the caller's; any other one means that the store could not be told. After an error nothing has
// changed. The same holds for Override and EndOverride.
func (k *Keeper) Reconfigure(l rate.Limits) error { return k.change(change{why: set, limits: l}) }

// Override puts o in force for all instances.
func (k *Keeper) Override(o Override) error { return k.change(change{why: overrideOn, override: o}) }

// EndOverride ends the override in force; by says who does so.
func (k *Keeper) EndOverride(by string) error { return k.change(change{why: overrideEnds, by: by}) }

// turnTimeouts times CallTimeout is the longest that settle takes: no attempt starts after twice CallTimeout, and an attempt
// is two calls. A change waits for so long for the one before.
const turnTimeouts = 4

var errTooOften = errors.New("the limiter is reconfigured too often")

func (k *Keeper) change(ch change) error {
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
	ch.at = time.Now()
	k.current.Store(&ch)
	defer k.current.Store(nil)
	if ch.why != set {
		// The limits of this program come first: what it overrides are the limits that it has set, or that have overruled it.
		if err := k.Await(0); err != nil {
			return err
		}
	}
	return k.settle(&ch)
}

// ReconfigureLater is Reconfigure in the background. Limits that others set meanwhile stay in force.
func (k *Keeper) ReconfigureLater(l rate.Limits) {
	k.mu.Lock()
	k.wanted, k.pending = l, &change{why: setLater, limits: l, at: time.Now()}
	in := *k.inForce.Load()
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

// settle makes the store and this instance agree on what ch wants, or on what stands against it. Other instances, and another
// goroutine of this one, can define at the same time.
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
		f.seen, k.most = k.seen, max(k.most, found, f.now+versionSlack)
		k.mu.Unlock()
		next, refused, err := f.next(ch)
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
		k.adopt(next, ch, f.now)
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
