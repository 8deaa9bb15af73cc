package limiter

import (
	"math"
	"sync"
	"time"

	"github.com/weir-go/weir/rate"
)

// A clocked limiter is an engine whose permits come back as time passes: a bucket or a window. The functions below are
// its methods that need not be fast.
type clocked interface {
	engine
	// advance lets time pass up to a moment, without serving the queue.
	advance(at int64)
	// forecast sets the schedule and the state of f.
	forecast(f *forecast)
	// charge takes n permits, even if fewer are free.
	charge(now, n int64)
	// reprice gives back permits of a grant of n permits, or charges more, so that it has cost that many. It returns the new tag of
	// the lease.
	reprice(now, n, tag, cost int64) (newTag int64)
	// giveBack gives back up to n permits of the grant with that tag.
	giveBack(n, tag int64)
	// giveBackUnleased gives back up to n of the permits that are missing, of no grant in particular.
	giveBackUnleased(n int64)
	// idleSince returns since when no permit is missing. None is.
	idleSince() int64
	// counts returns how many leases were granted and rejected.
	counts() (granted, failed int64)
	// uncount takes a granted lease out of the counts.
	uncount()
	// limits returns the limits in force.
	limits() rate.Limits
	// adopt puts limits in force. c is up to date.
	adopt(now int64, l rate.Limits)
	// close closes the limiter, which is up to date.
	close()
}

// catchUp is the catchUp of c, on which a line can have passed.
func catchUp(c clocked, now int64) {
	if c.view().queue.Empty() {
		c.advance(now)
		return
	}
	serveLines(c, now)
	c.advance(now)
	serve(c, now)
}

// serveLines serves the queue on each line up to now that brings enough permits for a waiter, so a waiter is granted its
// permits on the line on which they came back.
//
// A timer can be late by many short periods. Without serveLines, a bucket of one token would then grant one waiter each
// time the timer fires, and lose the tokens of the periods in between.
func serveLines(c clocked, now int64) {
	for !c.view().queue.Empty() {
		at := c.freeAt(c.view().queue.needs())
		if at > now {
			return
		}
		c.advance(at)
		serveWaiters(c, at)
	}
}

// waitFor returns the time from now to the moment at which permits are free. It is at least a nanosecond, because 0 stands for
// a time that is not known.
func waitFor(at, now int64) time.Duration { return max(until(at, now), 1) }

// freeBehindQueue returns the moment at which a newcomer could take n permits, if the queue is served in its order and the
// newcomer takes what is then left.
func freeBehindQueue(c clocked, n int) int64 {
	q := &c.view().queue
	switch {
	case q.Empty():
		return c.freeAt(weight(n))
	case n > 0 && q.Order() != NewestFirst && q.Permits() <= c.view().limit-int64(n):
		// All can be served when the limiter is full, so no permit is lost before that, and a window brings back what
		// waiters take after all that is taken now.
		return c.freeAt(q.Permits() + int64(n))
	}
	f := forecasts.Get().(*forecast)
	defer forecasts.Put(f)
	c.forecast(f)
	return f.schedule.TimeOf(q.LineBehind(&f.schedule, &f.state, n))
}

// A forecast is a copy of what a limiter has, in which time passes if there are no callers but those in its queue.
type forecast struct {
	schedule rate.Schedule
	state    rate.State
	array    []rate.Segment // for the state's segments
}

// forecasts holds forecasts for reuse: a flood of callers needs one for each rejection by a limiter with a long queue.
var forecasts = sync.Pool{New: func() any { return new(forecast) }}

// refund is the refund of an owner.
func refund(c clocked, n int, tag int64) {
	now := moment()
	c.lock()
	defer c.unlock()
	if c.view().closed {
		return
	}
	c.catchUp(now)
	c.uncount()
	c.giveBack(int64(n), tag)
	serveAny(c, now)
}

// adjust is the adjust of an adjuster. It returns the new tag.
func adjust(c clocked, n int, tag int64, cost int) (newTag int64) {
	now := moment()
	c.lock()
	defer c.unlock()
	if c.view().closed {
		return tag
	}
	c.catchUp(now)
	tag = c.reprice(now, int64(n), tag, int64(cost))
	serveAny(c, now)
	return tag
}

// correct notes that what a waiter of a tenant was served has cost that many permits more.
func correct(c clocked, t Tenant, more int64) {
	now := moment()
	c.lock()
	defer c.unlock()
	c.catchUp(now)
	c.view().queue.Correct(t, more)
	serveAny(c, now)
}

// serveAny serves the waiters, if there are any, after permits were given back or charged.
func serveAny(c clocked, now int64) {
	if !c.view().queue.Empty() {
		serve(c, now)
	}
}

// chargeClocked is Charge. c is locked; chargeClocked unlocks it.
func chargeClocked(c clocked, now int64, n int) (Level, error) {
	defer c.unlock()
	if err := c.view().usable(); err != nil {
		return Level{}, err
	}
	c.catchUp(now)
	switch {
	case n > 0:
		c.charge(now, int64(n))
	case n < 0:
		c.giveBackUnleased(-max(int64(n), -math.MaxInt64))
	}
	serveAny(c, now)
	level := Level{Remaining: c.free()}
	if limit := c.view().limit; level.Remaining < limit {
		level.Full = waitFor(c.freeAt(limit), now)
	}
	return level, nil
}

// reconfigure is Reconfigure of a limiter of that kind.
func reconfigure(c clocked, kind rate.Kind, o Options) error {
	l, err := limitsOf(kind, o)
	if err != nil {
		return err
	}
	now := moment()
	c.lock()
	defer c.unlock()
	if err := c.view().usable(); err != nil {
		return err
	}
	c.catchUp(now)
	c.adopt(now, l)
	return nil
}

// limitsInForce is Limits.
func limitsInForce(c clocked) rate.Limits {
	c.lock()
	defer c.unlock()
	return c.limits()
}

// statisticsOf is Statistics.
func statisticsOf(c clocked) Statistics {
	now := moment()
	c.lock()
	defer c.unlock()
	if !c.view().closed {
		c.catchUp(now)
	}
	granted, failed := c.counts()
	return Statistics{
		AvailablePermits: max(c.free(), 0),
		QueuedPermits:    c.view().queue.Permits(),
		SuccessfulLeases: granted,
		FailedLeases:     failed,
	}
}

// idleAsOf is IdleDuration at the moment now.
func idleAsOf(c clocked, now int64) (idle time.Duration, ok bool) {
	c.lock()
	defer c.unlock()
	if !c.view().closed {
		c.catchUp(now)
	}
	if c.free() < c.view().limit {
		return 0, false
	}
	return time.Duration(max(now-c.idleSince(), 0)), true
}

// closeClocked is Close.
func closeClocked(c clocked) error {
	now := moment()
	c.lock()
	defer c.unlock()
	if !c.view().closed {
		c.catchUp(now)
		c.close()
	}
	return nil
}
