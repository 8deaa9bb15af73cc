package weirrls

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-go/weir/internal/answerby"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/store"
)

// reasonTooMany is the reason of the rejection of hits that are more than the limiter can ever grant.
const reasonTooMany = "more hits than the limit"

// acquire asks the limiter of an exact limit. ctx bounds how long it waits for the grant.
func (d *decision) acquire(ctx context.Context, c *check) error {
	if c.hits > math.MaxInt {
		c.lease = custom.Rejected(0, reasonTooMany)
	} else if err := d.tryAcquire(ctx, c); err != nil {
		return err
	}
	if c.lease.Acquired() || undecided(c.lease) {
		return nil
	}
	c.refused = true
	if c.hits == 0 {
		return nil
	}
	switch c.limit.OnOverrun {
	case OverrunDebt:
		if c.hits > maxHits && c.lease.Reason() == reasonTooMany {
			return nil // a mistake, such as a negative number without its sign: the debt would last for years
		}
		return d.charge(c, clampInt(c.hits))
	case OverrunRest:
		return d.takeRest(c)
	default:
		return nil
	}
}

// wouldGrant finds out whether the limiter would grant the hits, and takes none. It is for a request that is rejected already:
// what was taken could not always be given back to a store, and would take another round trip.
func (d *decision) wouldGrant(c *check) error {
	level, err := c.limit.charge(d.asking, c.key, 0)
	if err != nil {
		ctx, cancel := d.secondTry()
		defer cancel()
		return d.acquire(ctx, c) // the outage policy decides
	}
	c.level, c.leveled = level, true
	c.refused = level.Remaining < 1 || c.hits > uint64(level.Remaining)
	if !c.refused {
		c.lease = custom.Granted(0, nil)
	}
	return nil
}

// secondWait is how long a store that has just not answered is waited for when it is asked again.
const secondWait = time.Millisecond

// secondTry returns the context for asking a store again that has just not answered. Once the store counts as away, its
// limiters answer at once. Before that, another wait as long as the first one would take longer than Envoy waits. If the
// request has a deadline, beforeDeadline leaves no time for a second wait.
func (d *decision) secondTry() (context.Context, context.CancelFunc) {
	if _, ok := answerby.Of(d.asking); ok {
		return d.asking, func() {}
	}
	return context.WithTimeout(d.ctx, secondWait)
}

// tryAcquire asks the limiter for the hits.
func (d *decision) tryAcquire(ctx context.Context, c *check) error {
	lease, err := c.limit.tryAcquire(ctx, c.key, int(c.hits)) //nolint:gosec // at most MaxInt
	if err != nil {
		lease.Release() // a limiter of the program can grant permits and return an error
		if !errors.Is(err, limiter.ErrPermitCount) {
			return err
		}
		lease = custom.Rejected(0, reasonTooMany)
	}
	c.lease = lease
	return nil
}

// restAttempts is how often takeRest asks: between its question and its attempt, other requests can take permits.
const restAttempts = 3

// takeRest takes what is left.
func (d *decision) takeRest(c *check) error {
	for range restAttempts {
		level, err := c.limit.charge(d.asking, c.key, 0)
		if err != nil {
			return err
		}
		c.level, c.leveled = level, true
		if level.Remaining <= 0 {
			return nil
		}
		n := min(clampInt(c.hits), clampInt(uint64(level.Remaining)))
		lease, err := c.limit.tryAcquire(d.asking, c.key, n)
		if err != nil {
			lease.Release()
			return err
		}
		if lease.Acquired() {
			c.rest = lease
			return nil
		}
	}
	return nil
}

// giveBack gives the hits back to the limiter of an exact limit.
func (d *decision) giveBack(c *check) error {
	if !c.limit.charges() {
		return fmt.Errorf("weirrls: the limiter is not a limiter.Charger, so hits cannot be given back: %w", errors.ErrUnsupported)
	}
	return d.charge(c, -clampInt(c.hits))
}

// charge tells the limiter of an exact limit what was used or is given back. The hits are a fact, so they are sent to a
// store also if the caller has gone. The level is known if the store answers in time.
func (d *decision) charge(c *check, n int) error {
	ctx, limit, key := context.WithoutCancel(d.ctx), c.limit, c.key
	charge := func() (limiter.Level, error) { return limit.charge(ctx, key, n) }
	var err error
	if limit.remote {
		c.level, c.leveled, err = inTime(d.asking, charge)
		return err
	}
	c.level, err = charge()
	c.leveled = err == nil
	return err
}

// findLevel sets the level of an exact limit that was asked, for the answer. A limiter in this process is asked again, now
// that a rejected request has given back what it took; a round trip to a store is saved if its answer had the level.
func (d *decision) findLevel(c *check) {
	if c.err != nil || c.answer == failed || c.answer == failedOpen {
		return
	}
	var ignored error
	defer rescue(&ignored)
	if !c.limit.remote && c.limit.charges() {
		if level, err := c.limit.charge(d.ctx, c.key, 0); err == nil {
			c.level, c.leveled = level, true
			return
		}
	}
	if c.leveled {
		return
	}
	if c.level, c.leveled = c.lease.Level(); c.leveled {
		if c.refunded {
			c.level.Remaining += int64(c.lease.Permits())
		}
		return
	}
	left, known := c.lease.Remaining()
	switch {
	case known && c.refunded:
		left += int64(c.lease.Permits())
	case !known && c.limit.charges():
		ctx, cancel := d.asking, func() {}
		if _, away := store.OutageKey.From(c.lease); away {
			ctx, cancel = d.secondTry()
		}
		defer cancel()
		level, err := c.limit.charge(ctx, c.key, 0)
		c.level, c.leveled = level, err == nil
		return
	case !known:
		left, known = c.limit.available(c.key)
	}
	if known {
		c.level, c.leveled = limiter.Level{Remaining: left}, true
		if limits, ok := c.limit.limits(c.key); ok {
			c.level.Full = limits.TimeToRestore(int64(limits.Permits) - max(left, 0))
		}
	}
}

// settle gives back what a rejected request has taken.
func (d *decision) settle() {
	if !d.over {
		return
	}
	slow := 0
	for i := range d.checks {
		if c := &d.checks[i]; d.mustRefund(c) && d.takesTime(c) {
			slow++
		}
	}
	if slow > 1 {
		d.concurrently(func(c *check) bool { return d.mustRefund(c) && d.takesTime(c) }, d.refund)
	}
	for i := range d.checks {
		if c := &d.checks[i]; d.mustRefund(c) {
			d.refund(c)
		}
	}
}

// mustRefund reports whether a rejected request gives back what c has taken. What was given back stays given back, what
// a Window counts stays counted, and hits that can be a report count whatever the answer.
func (d *decision) mustRefund(c *check) bool {
	switch {
	case c.refunded, c.negative:
		return false
	case c.kind == exact:
		return c.lease.Permits() > 0 && c.limit.OnOverrun != OverrunDebt
	default:
		return c.kind == override && c.counted && !d.service.options.OverridesCountRejected
	}
}

// refund gives back what c has taken.
func (d *decision) refund(c *check) {
	var err error
	defer rescue(&err)
	c.refunded = true
	if c.kind == exact {
		c.lease.Refund()
		return
	}
	d.uncount(c)
}

// release ends the leases of c. It does nothing for windows and buckets, whose permits are spent.
func (c *check) release() {
	var err error
	defer rescue(&err)
	defer c.rest.Release()
	c.lease.Release()
}
