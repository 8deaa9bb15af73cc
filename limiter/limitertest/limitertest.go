// Package limitertest is a conformance suite for limiters: this module's, one whose state is on another machine, or a
// custom one.
//
// The author of a limiter says what kind it is and how to make one with given limits, and runs the suite from a test:
//
//	func TestConformance(t *testing.T) {
//		limitertest.Run(t, limitertest.Subject{
//			Kind: limitertest.TokenBucket,
//			New: func(t testing.TB, l limitertest.Limits) limiter.Limiter {
//				return NewBucket(l.Permits, l.TokensPerPeriod, l.Period)
//			},
//			Lacks: limitertest.Queue | limitertest.Idle,
//		})
//	}
//
// The other fields of [Subject] have defaults. With them, the limiter must have every [Feature] and be exact to the
// nanosecond. Lacks names the features that the limiter does not have, and the cases about them are not run.
//
// # Time
//
// Cases run inside [testing/synctest], where time is fake and stands still while a goroutine can run. That needs a
// limiter that reads no clock but package time's. One whose state is on a server can be tested, too, because time also stands still
// while a goroutine waits for a connection: New connects, and each request tells the server the time.
//
// # What is expected
//
// Every failure names the rule that it is about by section and number of docs/semantics.md in this module's repository:
// "Common 3" is rule 3 of the section Common.
package limitertest

import (
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
)

// A Kind says how a limiter's permits come back. The zero value is no kind: a Subject must name one.
type Kind uint8

// The kinds of limiter.
const (
	// Concurrency: permits come back on Release.
	Concurrency Kind = iota + 1
	// FixedWindow: all permits come back on each grid line.
	FixedWindow
	// SlidingWindow: permits that were taken in a segment come back when the segment leaves the window.
	SlidingWindow
	// TokenBucket: some permits come back on each grid line.
	TokenBucket
	// Unlimited: everything is granted, and the limits are ignored.
	Unlimited
	// Calendar: all permits come back at midnight, UTC. The Unit is a day.
	Calendar
)

var kindNames = [...]string{"no kind", "Concurrency", "FixedWindow", "SlidingWindow", "TokenBucket", "Unlimited", "Calendar"}

// String returns the name of the constant.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown kind"
}

// timedKinds are the kinds whose permits come back by themselves as time passes.
var timedKinds = []Kind{FixedWindow, SlidingWindow, TokenBucket, Calendar}

// A Feature is something that a limiter can lack. Features are combined with |.
type Feature uint32

// The features that the suite has cases about.
const (
	// Queue: Acquire waits, for up to Limits.QueueLimit permits. If it is lacking, Acquire answers at once.
	Queue Feature = 1 << iota
	// NewestFirst: the queue also has that order.
	NewestFirst
	// ZeroPermits: a request for 0 permits asks whether one is free.
	ZeroPermits
	// RetryAfter: rejections say when to retry: exactly. It is ignored for Concurrency.
	RetryAfter
	// Statistics: the limiter is a [limiter.StatisticsProvider].
	Statistics
	// Idle: the limiter is a [custom.Idler].
	Idle
	// Close: the limiter is an [io.Closer].
	Close
	// Refund: [limiter.Lease.Refund], which a chain calls if a later limiter rejects, gives the permits back. It is
	// ignored for Concurrency, whose permits also come back on Release.
	Refund
	// Anchored: the grid of periods begins when the limiter is made. If it is lacking, the suite finds a grid line by
	// taking all permits and waiting for RetryAfter, so RetryAfter must not be lacking too.
	Anchored
	// Peek: the limiter is a [limiter.Peeker].
	Peek
	// Charge: the limiter is a [limiter.Charger]. It is ignored for Concurrency, whose permits are only lent.
	Charge

	// reconfigurable: there is a Subject.Reconfigure.
	reconfigurable
)

// Limits are what a limiter is to be made with. Unlike the options of this module's limiters they are the same for all
// kinds; ignore the fields that the kind does not have.
type Limits struct {
	Permits         int                // the most permits that can be free at once: PermitLimit or TokenLimit
	Period          time.Duration      // the whole window, or the time between two refills of a bucket
	TokensPerPeriod int                // TokenBucket: permits that come in each period
	Segments        int                // SlidingWindow: steps per window; Period is divisible by it
	QueueLimit      int                // permits that can be waited for; 0: there is no queue
	Order           limiter.QueueOrder // which waiter is served first
}

// Concurrency returns the limits as options.
func (l Limits) Concurrency() limiter.ConcurrencyOptions {
	return limiter.ConcurrencyOptions{PermitLimit: l.Permits, QueueLimit: l.QueueLimit, QueueOrder: l.Order}
}

// FixedWindow returns the limits as options.
func (l Limits) FixedWindow() limiter.FixedWindowOptions {
	return limiter.FixedWindowOptions{
		PermitLimit: l.Permits, Window: l.Period,
		QueueLimit: l.QueueLimit, QueueOrder: l.Order,
	}
}

// SlidingWindow returns the limits as options.
func (l Limits) SlidingWindow() limiter.SlidingWindowOptions {
	return limiter.SlidingWindowOptions{
		PermitLimit: l.Permits, Window: l.Period, SegmentsPerWindow: l.Segments,
		QueueLimit: l.QueueLimit, QueueOrder: l.Order,
	}
}

// TokenBucket returns the limits as options.
func (l Limits) TokenBucket() limiter.TokenBucketOptions {
	return limiter.TokenBucketOptions{
		TokenLimit: l.Permits, TokensPerPeriod: l.TokensPerPeriod, ReplenishmentPeriod: l.Period,
		QueueLimit: l.QueueLimit, QueueOrder: l.Order,
	}
}

// Calendar returns the limits as options.
func (l Limits) Calendar() limiter.CalendarOptions {
	return limiter.CalendarOptions{PermitLimit: l.Permits, Every: rate.Day, QueueLimit: l.QueueLimit, QueueOrder: l.Order}
}

// Of returns the limits as options of a limiter of that kind.
func (l Limits) Of(k Kind) limiter.Options {
	switch k {
	case Concurrency:
		return l.Concurrency()
	case FixedWindow:
		return l.FixedWindow()
	case SlidingWindow:
		return l.SlidingWindow()
	case Calendar:
		return l.Calendar()
	default:
		return l.TokenBucket()
	}
}

const day = 24 * time.Hour

// Step returns the time between two grid lines of a limiter of that kind with these limits, or 0 if the kind has none.
func (l Limits) Step(k Kind) time.Duration {
	switch k {
	case FixedWindow, TokenBucket:
		return l.Period
	case SlidingWindow:
		return l.Period / time.Duration(max(l.Segments, 1))
	case Calendar:
		return day
	}
	return 0
}

// A Subject is a limiter as the suite sees it. Kind and New are required.
type Subject struct {
	// Kind is the kind of the limiter.
	Kind Kind

	// New returns a new limiter with these limits: for a store, one under a key of its own. It is called at least once
	// per case, inside the synctest bubble where time is fake. Functions that it registers with t.Cleanup run at the
	// end of the case, and the suite closes a limiter that is an io.Closer. New can fail with t.Fatal.
	New func(t testing.TB, l Limits) limiter.Limiter

	// Reconfigure gives new limits to a limiter that New made. If nil, the limits cannot be changed, and the cases
	// about that are not run.
	Reconfigure func(l limiter.Limiter, to Limits) error

	// Lacks are the features that this limiter does not have. If 0, it has all of them.
	Lacks Feature

	// Resolution is the smallest step of time that the limiter knows. Answers about time can be wrong by that step. The
	// default is 0: it is exact.
	Resolution time.Duration

	// Unit is the period of the limits that the suite asks for. It must be divisible by 20. If 0, it is 100 ms. Of a
	// Calendar it is a day.
	Unit time.Duration
}

// withDefaults returns s with defaults for the times that are not set, and with the internal features in Lacks.
func (s Subject) withDefaults() Subject {
	if s.Reconfigure == nil {
		s.Lacks |= reconfigurable
	}
	if s.Kind == Calendar {
		s.Unit = day
	}
	if s.Unit <= 0 {
		s.Unit = 100 * time.Millisecond
	}
	return s
}
