package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A defineReason is why limits are to come into force.
type defineReason uint8

const (
	forFirstUse         defineReason = iota // set by the constructor; see firstUseRefusal
	forRestore                              // they were in force, and the store may have lost them
	forReconfigure                          // set by Reconfigure
	forReconfigureLater                     // set by ReconfigureLater, unless others were set since the call
)

// define makes sure that the store has the wanted limits, or adopts the limits that overrule them. The caller holds
// lockDefinition; other instances can define at the same time. It takes defineTimeouts at most. by is when the limiter
// was made or reconfigured, and is ignored for forRestore.
func (c *core) define(wanted backend.Limits, why defineReason, by stamp) error {
	tries := attempts{since: time.Now()}
	for {
		found, now, err := c.loadDefinition()
		if err != nil {
			return err
		}
		next := c.nextDefinition(found, wanted, why, by, now)
		if next == found {
			if c.mismatches(found) {
				return c.kindMismatch(found)
			}
			c.adopt(found)
			if reason := c.refusal(found, wanted, why, by, now); reason != nil {
				c.reportOverruled(fmt.Errorf("limits of %+v are in force, not %+v: %w", found.Limits, wanted, reason))
			}
			return nil
		}
		defined, err := c.writeDefinition(found, next)
		if err != nil {
			return err
		}
		if defined {
			c.adopt(next)
			return nil
		}
		pause, ok := tries.next(2 * c.s.o.CallTimeout)
		if !ok || pause > 0 && !c.s.sleep(pause) {
			return unavailable(errReconfiguring)
		}
	}
}

// writeDefinition puts next in place of old, which is nil if there is none. It reports whether next is stored now. If
// not, another instance was first to replace old.
func (c *core) writeDefinition(old, next *backend.Definition) (bool, error) {
	version := int64(0)
	if old != nil {
		version = old.Version
	}
	sh := c.s.shardOf(c.name, "")
	begun := sh.breaker.current()
	defined, err := callWithTimeout(c.s, func(ctx context.Context) (bool, error) { return c.s.backend.Define(ctx, version, next) })
	if sh.breaker.record(begun, err); err != nil {
		return false, unavailable(err)
	}
	return defined, nil
}

// nextDefinition returns the definition to write, or found if nothing changes. It is newer than every version seen, even
// if the store's clock has stepped back. found can be older than the definition in force here, which the store may have
// lost.
func (c *core) nextDefinition(found *backend.Definition, wanted backend.Limits, why defineReason, by stamp, now int64) *backend.Definition {
	known, seen := found, c.newest.Load()
	switch in := c.inForce.Load(); {
	case in == nil: // this instance has not used the limiter yet
	case found == nil || found.Version < in.Version: // the store has lost the definition in force
		known = in.Definition
	case why == forRestore && follows(found, in.Definition): // another instance has set newer limits
		wanted = found.Limits
	case why == forRestore: // the store had lost the definition in force, and an older program has set its limits
		return restored(in.Definition, found, seen, now)
	}
	if known == nil {
		known = backend.NewDefinition(c.name, wanted, now)
		known.Origin = c.origin(nil, wanted, why, by, now)
		known.Version = max(known.Version, seen+1)
		return known
	}
	origin := known.Origin
	if c.refusal(known, wanted, why, by, now) != nil {
		wanted = known.Limits
	} else if why != forRestore && (known.Limits != wanted || c.renews(known, why, by, now)) {
		origin = c.origin(known, wanted, why, by, now)
	}
	switch {
	case known.Limits != wanted || known.Version < seen:
		known = known.WithLimits(wanted, now)
		known.Origin = origin
		known.Version = max(known.Version, seen+1)
	case known.Origin != origin: // the limits stay, and with them the version
		renewed := *known
		renewed.Origin, known = origin, &renewed
	}
	return known // found itself if nothing changes
}

// refusal returns why the limits of d must stay, or nil.
func (c *core) refusal(d *backend.Definition, wanted backend.Limits, why defineReason, by stamp, now int64) error {
	switch {
	case d.Limits == wanted:
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
	return c.leased != (d.Kind == backend.KindConcurrency)
}

// kindMismatch returns the error of a limiter that mismatches d, and reports it. Until the kind of one of the two is
// changed, the limiter answers as if the store were away.
func (c *core) kindMismatch(d *backend.Definition) error {
	err := fmt.Errorf("limiter %q is a %v here and a %v in the store: one of the two needs another name", c.name, c.limits().Kind, d.Kind)
	c.reportOverruled(err)
	return unavailable(err)
}
