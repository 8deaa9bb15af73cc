package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A defineReason is why limits are to be those in force.
type defineReason uint8

const (
	forFirstUse         defineReason = iota // the constructor's are, where no newer ones are in force: see maySet
	forRestore                              // they were in force, and the store may have forgotten them
	forReconfigure                          // Reconfigure has said so
	forReconfigureLater                     // ReconfigureLater has said so, unless others were set since it was called
)

// define makes sure that the store has these limits for the name, or adopts those that overrule them. Other instances
// may do that at the same time with others. Here only one goroutine is at it: see alone. It takes longestDefine at the
// most. by is when the limiter was made or the call of Reconfigure or ReconfigureLater came; it is ignored for again.
func (c *core) define(wanted backend.Limits, why defineReason, by stamp) error {
	tries := attempts{since: time.Now()}
	for {
		found, now, err := c.loadDefinition()
		if err != nil {
			return err
		}
		next := c.nextDefinition(found, wanted, why, by, now)
		if next == found {
			if c.leased != (found.Kind == backend.KindConcurrency) {
				return c.kindMismatch(found)
			}
			c.adopt(found)
			if reason := c.refusal(found, wanted, why, by, now); reason != nil {
				c.reportOverruled(fmt.Errorf("limits of %+v are in force, not %+v: %w", found.Limits, wanted, reason))
			}
			return nil
		}
		old := int64(0)
		if found != nil {
			old = found.Version
		}
		p := c.s.shardOf(c.name, "")
		begun := p.breaker.current()
		did, err := callWithTimeout(c.s, func(ctx context.Context) (bool, error) { return c.s.backend.Define(ctx, old, next) })
		if p.breaker.record(begun, err); err != nil {
			return unavailable(err)
		}
		if did {
			c.adopt(next)
			return nil
		}
		pause, ok := tries.next(2 * c.s.o.CallTimeout)
		if !ok || pause > 0 && !c.s.sleep(pause) {
			return unavailable(errReconfiguring)
		}
	}
}

// nextDefinition is what follows the definition that was found in the store, if there is one, and the
// one in force here, which the store may have lost. It is newer than all that was seen: the
// store's clock may have stepped back.
func (c *core) nextDefinition(found *backend.Definition, wanted backend.Limits, why defineReason, by stamp, now int64) *backend.Definition {
	known, seen := found, c.newest.Load()
	switch in := c.inForce.Load(); {
	case in == nil:
	case found == nil || found.Version < in.Version:
		known = in.Definition
	case why == forRestore && follows(found, in.Definition):
		wanted = found.Limits
	case why == forRestore:
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
	case known.Origin != origin: // the limits stay as they are, and with them the version
		renewed := *known
		renewed.Origin, known = origin, &renewed
	}
	return known // if it is found: as it is
}

// refusal returns why other limits than those of d may not be set, or nil.
func (c *core) refusal(d *backend.Definition, wanted backend.Limits, why defineReason, by stamp, now int64) error {
	switch {
	case d.Limits == wanted:
		return nil
	case why == forFirstUse:
		return c.firstUseRefusal(d, wanted, now)
	case why == forReconfigureLater && !by.after(d, now+c.s.o.CallTimeout.Microseconds()): // the answer with now was on its way for so long
		return errors.New("they were set after ReconfigureLater was called")
	}
	return nil
}

// renews reports whether limits that are in force are set once more, which counts from now on.
func (c *core) renews(d *backend.Definition, why defineReason, by stamp, now int64) bool {
	if why == forFirstUse {
		return c.o.Generation > d.Generation
	}
	return d.By != by.String() && (why == forReconfigure && !d.Explicit || by.after(d, now))
}

// reportOverruled tells that limits are not in force, once for each reason.
func (c *core) reportOverruled(err error) {
	if was := c.overruledBy.Swap(&err); was == nil || (*was).Error() != err.Error() {
		c.s.report(Event{Kind: EventOverruled, Limiter: c.name, Err: err})
	}
}

// kindMismatch is the error of a limiter whose permits are lent, if those of the one in the store by that name are
// spent, or the other way round. The limiter cannot be asked, as if the store were away.
func (c *core) kindMismatch(d *backend.Definition) error {
	err := fmt.Errorf("limiter %q is a %v here and a %v in the store: one of the two needs another name", c.name, c.limits().Kind, d.Kind)
	c.reportOverruled(err)
	return unavailable(err)
}
