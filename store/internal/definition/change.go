package definition

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/rate"
)

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
