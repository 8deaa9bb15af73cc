package definition

import (
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/eventqueue"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

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

// Overrides reports what becomes of the overrides of a limiter.
type Overrides struct {
	events atomic.Pointer[eventqueue.Queue[overridden]] // nil: none are reported
}

// An overridden is what has happened to an override: with what is in force with it, and with why it has ended if that is not empty.
type overridden struct {
	in    *InForce
	ended string
}

// Watch makes the Keeper call f with what is in force when an override has begun, and again with why it has ended. If f is
// nil, it calls none.
func (o *Overrides) Watch(f func(in *InForce, ended string)) {
	var events *eventqueue.Queue[overridden]
	if f != nil {
		events = eventqueue.New("store: OnOverride", func(e overridden) {
			if o.events.Load() == events { // else Watch was called again
				f(e.in, e.ended)
			}
		})
	}
	o.events.Store(events)
}

// report reports the end of the override that was in force and the beginning of the one that is, unless they are the same. ch is the
// change that this instance makes now, or nil.
func (o *Overrides) report(was, is *InForce, now int64, ch *change) {
	events := o.events.Load()
	if was.Override == is.Override || events == nil {
		return
	}
	ended := "ended at another instance"
	switch {
	case was.Override.over(now):
		ended = "its time is over"
	case !is.Override.None():
		ended = "replaced by " + is.Override.By
	case ch != nil && ch.by != "":
		ended = "ended by " + ch.by
	}
	if !was.Override.None() {
		events.Add(overridden{was, ended})
	}
	if !is.Override.None() {
		events.Add(overridden{in: is})
	}
}
