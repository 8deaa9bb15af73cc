package store

import (
	"time"

	"github.com/weir-go/weir/internal/eventqueue"
	"github.com/weir-go/weir/limiter"
)

// An Override replaces the limits of a limiter for all instances until a moment. It is kept in the store, so it ends in
// time even if the instance that has made it does not run any more. See [Limiter.Override].
type Override struct {
	// Options are the limits, such as a [limiter.TokenBucketOptions]: of the kind of the limiter. All fields count, for all instances: with a QueueLimit of 0 there is no queue until the end.
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
func (l *Limiter) Override(o Override) error {
	return l.c.overrideLimits(o)
}

// EndOverride ends the override of the limiter before its time. by is who ends it, and must be set. If the limiter is not
// overridden, the error is [ErrNotOverridden]. The other errors are those of [Limiter.Reconfigure].
func (l *Limiter) EndOverride(by string) error { return l.c.endOverride(by) }

// Overridden returns the override in force, as far as this instance knows. ok is false if there is none.
func (l *Limiter) Overridden() (o Override, ok bool) { return overridden(l.c) }

// OnOverride makes the limiter call f when this instance learns that an override has begun, and when it learns that it
// has ended; then Ended says why. f is called on its own goroutine, one call after the other. A limiter calls the function
// of the last OnOverride; if f is nil, it calls none. A call that has begun before goes on. Overrides of which the
// instance has learned before are not reported.
func (l *Limiter) OnOverride(f func(o Override)) { onOverride(l.c, f) }

// Override is [Limiter.Override] for all keys.
func (p *Partitioned) Override(o Override) error {
	return p.c.overrideLimits(o)
}

// EndOverride is [Limiter.EndOverride].
func (p *Partitioned) EndOverride(by string) error { return p.c.endOverride(by) }

// Overridden is [Limiter.Overridden].
func (p *Partitioned) Overridden() (o Override, ok bool) { return overridden(p.c) }

// OnOverride is [Limiter.OnOverride].
func (p *Partitioned) OnOverride(f func(o Override)) { onOverride(p.c, f) }

func overridden(c *core) (o Override, ok bool) {
	if in := c.inForce.Load(); in != nil && in.override != nil {
		return exportOverride(in.override), true
	}
	return o, false
}

func onOverride(c *core, f func(o Override)) {
	if f == nil {
		c.overrideEvents.Store(nil)
		return
	}
	var events *eventqueue.Queue[overrideEvent]
	events = eventqueue.New("store: OnOverride", func(e overrideEvent) {
		if c.overrideEvents.Load() != events {
			return // the event has waited for f, and meanwhile OnOverride was called again
		}
		o := exportOverride(e.override)
		o.Ended = e.ended
		f(o)
	})
	c.overrideEvents.Store(events)
}

func exportOverride(o *override) Override {
	to := Override{Until: time.UnixMicro(o.Until), By: o.By, Reason: o.Reason, Since: time.UnixMicro(o.Since)}
	to.Options = limiter.OptionsOf(limitsFrom(o.limits, o.queueing))
	to.Configured = limiter.OptionsOf(limitsFrom(o.Configured, o.queueing))
	return to
}
