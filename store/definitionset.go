package store

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// A defineReason is why limits are to come into force.
type defineReason uint8

const (
	forFirstUse         defineReason = iota // set by the constructor; see firstUseRefusal
	forRestore                              // they were in force, and the store may have lost them
	forReconfigure                          // set by Reconfigure
	forReconfigureLater                     // set by ReconfigureLater, unless others were set since the call
	forOverride                             // in force for a while, see override
	forOverrideEnd                          // the override is over, and those configured come back
)

// A definitionChange is what is to come into force.
type definitionChange struct {
	limits   rate.Schedule // the wanted limits; ignored by forRestore, forOverride and forOverrideEnd, which keep them
	why      defineReason
	by       stamp     // when the limiter was made or reconfigured; ignored by the same reasons
	override *override // forOverride: the override
	ended    string    // why an override ends that will not be there any more
}

// restoring is the change that restores the definition in force here.
func (c *core) restoring() definitionChange {
	return definitionChange{limits: c.limits(), why: forRestore}
}

// keepsLimits reports whether the configured limits stay as they are.
func (ch *definitionChange) keepsLimits() bool {
	return ch.why == forRestore || ch.why == forOverride || ch.why == forOverrideEnd
}

// define makes sure that the store has what ch wants, or adopts the limits that overrule it. The caller holds
// lockDefinition; other instances can define at the same time. It takes defineTimeouts at most.
func (c *core) define(ch definitionChange) error {
	tries := calls.Attempts{Since: time.Now()}
	for {
		found, now, err := c.s.calls.Load(c.name)
		if err != nil {
			return err
		}
		if err := c.checkOverrideChange(found, &ch, now); err != nil {
			return err
		}
		next := c.nextDefinition(found, &ch, now)
		ended := cmp.Or(ch.ended, endedElsewhere)
		if next == found {
			if c.mismatches(found) {
				return c.kindMismatch(found)
			}
			c.adopt(found, now, ended)
			if base := configured(found); !ch.keepsLimits() {
				if reason := c.refusal(base, ch.limits, ch.why, ch.by, now); reason != nil {
					c.reportOverruled(fmt.Errorf("limits of %+v are in force, not %+v: %w", base.Limits(), ch.limits, reason))
				}
			}
			return nil
		}
		version := int64(0)
		if found != nil {
			version = found.Version
		}
		defined, err := c.s.calls.Define(version, next)
		if err != nil {
			return err
		}
		if defined {
			c.adopt(next, now, ended)
			return nil
		}
		pause, ok := tries.Next(2 * c.s.o.CallTimeout)
		if !ok || pause > 0 && !c.s.calls.Sleep(pause) {
			return calls.Unavailable(calls.ErrReconfiguring)
		}
	}
}

// lockAndDefine is define for a caller that does not hold lockDefinition.
func (c *core) lockAndDefine(ch definitionChange) error {
	defer c.lockDefinition()()
	return c.define(ch)
}

// nextDefinition returns the definition to write, or found if nothing changes. It is newer than every version seen, even
// if the store's clock has stepped back. found can be older than the definition in force here, which the store may have
// lost.
//
// The rules about limits apply to the configured ones. If the limits are overridden, only those in force stay as they are.
func (c *core) nextDefinition(found *backend.Definition, ch *definitionChange, now int64) *backend.Definition {
	known, seen := found, c.newest.Load()
	switch in := c.inForce.Load(); {
	case in == nil: // this instance has not used the limiter yet
	case found == nil || found.Version < in.Version: // the store has lost the definition in force
		known = in.Definition
	case ch.why == forRestore && !follows(configured(found), configured(in.Definition)):
		// The store had lost the definition in force, and an older program has set its limits.
		return restored(in.Definition, found, seen, now)
	}
	if known == nil {
		known = backend.NewDefinition(c.name, ch.limits, now)
		known.Origin = c.origin(nil, ch.limits, ch.why, ch.by, now)
		known.Version = max(known.Version, seen+1)
		return known
	}
	base := configured(known)
	wanted, origin := ch.limits, base.Origin
	if ch.keepsLimits() || c.refusal(base, wanted, ch.why, ch.by, now) != nil {
		wanted = base.Limits()
	} else if base.Limits() != wanted || c.renews(base, ch.why, ch.by, now) {
		origin = c.origin(base, wanted, ch.why, ch.by, now)
	}
	over := overrideIn(known)
	switch ch.why {
	case forOverride:
		over = ch.override
	case forOverrideEnd:
		over = nil
	}
	return successor(known, wanted, origin, over, seen, now)
}

// refusal returns why the limits of d must stay, or nil.
func (c *core) refusal(d *backend.Definition, wanted rate.Schedule, why defineReason, by stamp, now int64) error {
	switch {
	case d.Limits() == wanted:
		return nil
	case why == forFirstUse:
		return c.firstUseRefusal(d, wanted, now)
	case why == forReconfigureLater && !by.after(d, now+c.s.o.CallTimeout.Microseconds()): // now was read that long ago at most
		return errors.New("newer limits were set after ReconfigureLater was called")
	}
	return nil
}

// renews reports whether setting the limits that are already in force renews their origin.
func (c *core) renews(d *backend.Definition, why defineReason, by stamp, now int64) bool {
	if why == forFirstUse {
		return c.o.Generation > d.Generation
	}
	return d.By != by.String() && (why == forReconfigure && !d.Explicit || by.after(d, now))
}

// reportOverruled reports that limits are not in force, once for each reason.
func (c *core) reportOverruled(err error) {
	if was := c.overruledBy.Swap(&err); was == nil || (*was).Error() != err.Error() {
		c.s.report(Event{Kind: EventOverruled, Limiter: c.name, Err: err})
	}
}

// mismatches reports whether d is of a concurrency limiter and c is not, or the other way round.
func (c *core) mismatches(d *backend.Definition) bool {
	return c.leased != (d.Kind == rate.Concurrency)
}

// kindMismatch returns the error of a limiter that mismatches d, and reports it. Until the kind of one of the two is
// changed, the limiter answers as if the store were away.
func (c *core) kindMismatch(d *backend.Definition) error {
	err := fmt.Errorf("limiter %q is a %v here and a %v in the store: one of the two needs another name", c.name, c.limits().Kind, d.Kind)
	c.reportOverruled(err)
	return calls.Unavailable(err)
}
