package limiter

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// effectiveNow returns the moment up to which time has passed for this bucket: now or, if it is replenished by hand,
// the moment of the last TryReplenish.
func (b *bucket) effectiveNow(now int64) int64 {
	if b.state().manual {
		return b.state().asOf
	}
	return now
}

// catchUp brings the bucket to the moment now, and serves the queue if permits came back.
func (b *bucket) catchUp(now int64) {
	s := b.state()
	elapsed := b.effectiveNow(now) - b.line
	if b.missing == 0 || elapsed < s.period {
		if otherClock(elapsed) && b.line != notBegun {
			b.line += elapsed
			if !s.shared {
				s.ownSince = unknown
			}
		}
		return
	}
	lines := s.byPeriod.quotient(elapsed)
	if s.queue.empty() {
		b.pass(lines)
		return
	}
	if !s.manual {
		lines = b.serveLines(lines)
	}
	b.pass(lines)
	serve(b, now)
}

// serveLines passes up to that many lines while they bring enough permits for a waiter, and returns how many lines are
// left. It serves the queue on each line that does, so a waiter is granted its permits on the line on which they came
// back.
//
// A timer can be late by many short periods. Without serveLines, a bucket of one token would then grant one waiter each
// time the timer fires, and lose the tokens of the periods in between.
func (b *bucket) serveLines(lines int64) (left int64) {
	s := b.state()
	for !s.queue.empty() {
		f := forecastBucket(b)
		next := max(f.linesUntil(s.queue.needs()), 1)
		if next > lines {
			break
		}
		b.pass(next)
		lines -= next
		serveWaiters(b, b.line)
	}
	return lines
}

// pass lets that many lines pass, and stops at the one that fills the bucket.
func (b *bucket) pass(lines int64) {
	if lines == 0 || b.missing == 0 {
		return
	}
	if enough := linesToCover(b.missing, b.state().refill); lines >= enough {
		b.missing = 0
		b.line += enough * b.state().period
	} else {
		b.missing -= lines * b.state().refill
		b.line += lines * b.state().period
	}
	b.noteLow()
}

// linesToCover returns how many lines bring that many permits; permits is at least 1.
func linesToCover(permits, refill int64) int64 {
	if permits <= refill {
		return 1
	}
	return (permits-1)/refill + 1
}

// grant takes n permits that are free, and counts the lease.
func (b *bucket) grant(now int64, n int) Lease {
	if n > 0 && b.missing == 0 {
		b.endIdleness(b.effectiveNow(now))
	}
	return b.take(b.state(), n)
}

// endIdleness ends the idleness of a full bucket: its line becomes the last one that is not after at.
func (b *bucket) endIdleness(at int64) {
	s := b.state()
	if elapsed := at - b.line; elapsed >= s.period {
		b.line += s.byPeriod.quotient(elapsed) * s.period
	}
	if s.idleAt != 0 {
		s.idleAt = 0
	}
}

func (b *bucket) timerFor(n int) int64 {
	if b.state().manual {
		return never
	}
	f := forecastBucket(b)
	return later(b.line, f.linesUntil(int64(n)), b.state().period)
}

// retryAfter returns how long a caller that was refused n permits should wait.
func (b *bucket) retryAfter(now int64, n int) time.Duration {
	f := forecastBucket(b)
	lines := f.linesUntil(weight(n))
	if !b.state().queue.empty() {
		ahead := f // a copy for the heap, so that the common case allocates nothing
		lines = linesAhead(&ahead, &b.state().queue, n)
	}
	return waitFor(now, b.line, lines, b.state().period)
}

// options returns the options in force.
func (b *bucket) options() TokenBucketOptions {
	b.lock()
	defer b.mu.Unlock()
	return b.state().options()
}

// reconfigure sets new options; permits that are missing stay missing.
func (b *bucket) reconfigure(o TokenBucketOptions) error {
	now := moment()
	b.lock()
	defer b.mu.Unlock()
	if err := b.state().changeable(); err != nil {
		return err
	}
	if o.ManualReplenishment != b.state().manual {
		return manualFixedError(o.ManualReplenishment)
	}
	b.catchUp(now)
	period := int64(o.ReplenishmentPeriod)
	periodChanges := period != b.state().period
	if s := b.state(); s.shared && (b.missing > 0 || !periodChanges) {
		b.current.Store(s.family.state(o))
	} else {
		b.ownState().refill = refillOf(o)
	}
	if periodChanges {
		b.changeGrid(b.effectiveNow(now), period)
	}
	if s := b.state(); s.shared {
		b.current.Store(s.family.state(o)) // a line of the new grid can have filled the bucket, see share
	} else {
		setLimits(b, now, int64(o.TokenLimit), o.QueueLimit, o.QueueOrder)
	}
	return nil
}

// changeGrid begins a grid of another period at the current line. If the next line of the new grid lies in the past,
// the new grid begins now instead, with the permits of one line.
func (b *bucket) changeGrid(at, period int64) {
	s := b.state()
	if b.missing == 0 {
		idleAt := b.line
		if s.idleAt != 0 {
			idleAt = s.idleAt
		}
		b.endIdleness(at)
		s.idleAt = idleAt
	}
	if !s.shared {
		s.period, s.byPeriod = period, newDivisor(period)
	}
	if at-b.line >= period {
		b.line = at
		b.missing -= min(b.missing, s.refill)
		b.noteLow()
	}
}

// bucketForecast is a [forecast] of a bucket.
type bucketForecast struct{ missing, limit, refill int64 }

func forecastBucket(b *bucket) bucketForecast {
	return bucketForecast{missing: b.missing, limit: b.state().limit, refill: b.state().refill}
}

func (f *bucketForecast) linesUntil(n int64) int64 {
	if over := f.missing - (f.limit - n); over > 0 {
		return linesToCover(over, f.refill)
	}
	return 0
}

func (f *bucketForecast) pass(lines int64) {
	if f.missing > 0 && lines >= linesToCover(f.missing, f.refill) {
		f.missing = 0
		return
	}
	f.missing -= lines * f.refill
}

func (f *bucketForecast) take(n int64) { f.missing += n }

// atMost is the lesser of two bounds. A waiter can leave a part of the permits of a line unused, so it needs one line more
// than its permits do. And while there are waiters, less than largest permits are free after each line, so that each line
// adds at least gain.
func (f *bucketForecast) atMost(waiters, permits, largest int64) int64 {
	bound := saturate.Add(permits/f.refill, waiters)
	if gain := min(f.refill, f.limit-largest+1); gain > 0 {
		bound = min(bound, 1+(permits-1)/gain)
	}
	return bound
}
