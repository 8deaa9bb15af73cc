package store

import (
	"errors"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
	"github.com/weir-go/weir/store/internal/definition"
)

// An Override replaces the limits of a limiter for all instances until a moment. It is kept in the store, so it ends in
// time even if the instance that has made it does not run any more. See [Limiter.Override].
type Override struct {
	// Options are the limits, such as a [limiter.TokenBucketOptions]: of the kind of the limiter. All fields count, for all
	// instances: with a QueueLimit of 0 there is no queue until the end.
	Options limiter.Options
	// Until is the end, by the store's clock. It must be in the future, and at most 100 years away.
	Until time.Time
	// By is who overrides the limits, and Reason is why. Both must be set. They have at most 256 and 1024 bytes.
	By, Reason string

	// Since is when the override came into force, by the store's clock. The store sets it.
	Since time.Time
	// Configured are the limits that come into force at the end. The store sets them.
	Configured limiter.Options
	// Ended is why the override has ended, or empty while it is in force. [Limiter.OnOverride] says when it is set.
	Ended string
}

// The bounds of the texts of an Override, in bytes.
const (
	maxOverrideBy     = 256
	maxOverrideReason = 1024
)

// Reconfigure changes the limits for all instances, of a [Partitioned] those of all keys. Permits that were granted stay
// granted. Other instances follow at their next call to the store about the limiter, at the latest after
// Options.RefreshInterval. Without a connection for notices, a Partitioned follows key by key until then. QueueLimit and
// QueueOrder change for this instance only. Reconfigure usually takes two round trips, and at most ten times
// Options.CallTimeout.
//
// The error is a [weir.OptionsError], also if o is of another kind, [limiter.ErrClosed] or [ErrUnavailable]. After an error
// nothing has changed, unless the store has carried out a call whose answer was lost; then the limits are in force at the
// next call to the store.
func (h *handle) Reconfigure(o limiter.Options) error {
	l, err := h.checkNew(new(validate.Problems), o)
	if err != nil {
		return err
	}
	return h.changed(h.c.keeper.Reconfigure(l))
}

// ReconfigureLater is Reconfigure without waiting: the limits are sent to the store in the background, or when the
// store is back. They are dropped if the limiter is closed or reconfigured again before that. Limits that another
// instance has set after the call of ReconfigureLater stay in force, and [EventOverruled] reports it. Until the store
// has the new limits, the old ones stay in force in this instance, too; the queue changes at once.
//
// The error is a [weir.OptionsError] or [limiter.ErrClosed].
func (h *handle) ReconfigureLater(o limiter.Options) error {
	l, err := h.checkNew(new(validate.Problems), o)
	if err == nil {
		h.c.keeper.ReconfigureLater(l)
	}
	return err
}

// Override replaces the limits for all instances until o.Until, in place of an earlier override. As with
// [Limiter.Reconfigure], permits that were granted stay granted, and what was taken stays taken. Override takes at most
// fifteen times Options.CallTimeout, and has the errors of Reconfigure. After an error nothing has changed, unless the
// store has carried out a call whose answer was lost; then [Limiter.Overridden] says so later.
//
// Reconfigure, ReconfigureLater and the first use of the limiter by another program do not end the override: the limits
// that they set come into force at its end. If they change the kind, such as from a token bucket to a window, the
// override ends.
//
// At the end, each instance that knows the limiter sets the configured limits; the first one succeeds. If none runs, the
// next one that uses the limiter does so first.
func (h *handle) Override(o Override) error {
	var p validate.Problems
	p.Text("By", o.By, maxOverrideBy)
	p.Text("Reason", o.Reason, maxOverrideReason)
	switch {
	case o.Until.IsZero():
		p.Add("Until", nil, "must be set")
	case time.Until(o.Until) > time.Duration(backend.MaxPeriod)*time.Microsecond:
		p.Add("Until", o.Until.Format(time.RFC3339Nano), "must be at most 100 years away")
	}
	limits, err := h.checkNew(&p, o.Options)
	if err != nil {
		return err
	}
	return h.changed(h.c.keeper.Override(definition.Override{Limits: limits, Until: o.Until.UnixMicro(), By: o.By, Reason: o.Reason}))
}

// EndOverride ends the override of the limiter before its time. by is who ends it, and must be set. If the limiter is not
// overridden, the error is [ErrNotOverridden]. The other errors are those of [Limiter.Reconfigure].
func (h *handle) EndOverride(by string) error {
	var p validate.Problems
	p.Text("by", by, maxOverrideBy)
	if err := p.Err("store"); err != nil {
		return err
	}
	if h.c.closed.Load() {
		return limiter.ErrClosed
	}
	return h.changed(h.c.keeper.EndOverride(by))
}

// Overridden returns the override in force, as far as this instance knows. ok is false if there is none.
func (h *handle) Overridden() (o Override, ok bool) {
	in := h.c.keeper.InForce()
	if in.Override.None() {
		return o, false
	}
	return overrideOf(in, ""), true
}

// OnOverride makes the limiter call f when this instance learns that an override has begun, and when it learns that it
// has ended; then Ended says why. f is called on its own goroutine, one call after the other. A limiter calls the function
// of the last OnOverride; if f is nil, it calls none. A call that has begun before goes on.
func (h *handle) OnOverride(f func(o Override)) {
	if f == nil {
		h.c.keeper.Overrides.Watch(nil)
		return
	}
	h.c.keeper.Overrides.Watch(func(in *definition.InForce, ended string) { f(overrideOf(in, ended)) })
}

func overrideOf(in *definition.InForce, ended string) Override {
	o := &in.Override
	return Override{
		Options: limiter.OptionsOf(in.Limits), Until: time.UnixMicro(o.Until), By: o.By, Reason: o.Reason,
		Since: time.UnixMicro(o.Since), Configured: limiter.OptionsOf(in.Configured), Ended: ended,
	}
}

// checkNew returns o's limits, which are to come into force, and adds to p what is wrong with them. The error is that of p or
// [limiter.ErrClosed].
func (h *handle) checkNew(p *validate.Problems, o limiter.Options) (rate.Limits, error) {
	c, l := h.c, storable(p, o)
	if is := c.keeper.Kind(); l.Kind != 0 && l.Kind != is {
		p.Add("Kind", l.Kind.String(), "must stay %v on a live limiter", is)
	}
	err := p.Err("store")
	if err == nil && c.closed.Load() {
		err = limiter.ErrClosed
	}
	return l, err
}

// changed returns the error of a call that has changed the definition, unless err is not nil.
func (h *handle) changed(err error) error {
	switch {
	case err == nil:
		h.c.convertNow()
	case !errors.Is(err, weir.ErrInvalidOptions) && !errors.Is(err, ErrNotOverridden):
		err = calls.Unavailable(err)
	}
	return err
}
