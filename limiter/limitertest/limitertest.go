// Package limitertest is a conformance suite for limiters: this module's own,
// one whose state is on another machine, and one that somebody else wrote.
//
// Whoever wrote a limiter says what kind it is and how to make one with given
// limits, and runs the suite from a test:
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
// The zero value of every field of [Subject] but Kind and New is the strictest
// one: everything is expected, and time is exact to the nanosecond. What a
// limiter does not do is named in Lacks, and the cases about it are not run.
//
// # Time
//
// Cases run inside [testing/synctest], where time is fake and stands still while
// anybody has work to do. That needs a limiter that lives in this process and
// reads no clock but package time's. A limiter whose state is elsewhere sets
// RealTime, and a Tolerance; then the cases sleep in earnest.
//
// # What is expected
//
// Every failure names the rule that it is about by section and number of docs/semantics.md in
// this module's repository: "Common 3" is rule 3 of the section Common.
package limitertest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/limiter"
)

// A Kind says how a limiter's permits come back. There is no zero Kind: a
// Subject must name one.
type Kind uint8

// The kinds of limiter.
const (
	// Concurrency: permits come back on Release.
	Concurrency Kind = iota + 1
	// FixedWindow: at each grid line all permits are there again.
	FixedWindow
	// SlidingWindow: what was taken in a segment comes back when the segment
	// leaves the window.
	SlidingWindow
	// TokenBucket: at each grid line some are added.
	TokenBucket
	// Unlimited: everything is granted. Limits are of no account.
	Unlimited
)

var kindNames = [...]string{"no kind", "Concurrency", "FixedWindow", "SlidingWindow", "TokenBucket", "Unlimited"}

// String returns the name of the constant.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown kind"
}

// timed tells whether permits come back by themselves as time passes.
func (k Kind) timed() bool { return k == FixedWindow || k == SlidingWindow || k == TokenBucket }

// A Feature is something that a limiter may lack; features are combined with |.
type Feature uint32

// The features that the suite has cases about.
const (
	// Queue: Acquire waits, up to Limits.QueueLimit permits. A limiter that
	// lacks it answers Acquire at once.
	Queue Feature = 1 << iota
	// NewestFirst: the queue has that order too.
	NewestFirst
	// ZeroPermits: n == 0 asks whether anything is left.
	ZeroPermits
	// RetryAfter: rejections say when it is worth coming back, exactly (within
	// the Tolerance). Of no account for Concurrency.
	RetryAfter
	// Statistics: the limiter is a [limiter.StatisticsProvider].
	Statistics
	// Idle: the limiter is a [limiter.Idler].
	Idle
	// Close: the limiter is an [io.Closer].
	Close
	// Refund: a chain that came to nothing gives the permits back. Of no account
	// for Concurrency, which takes them back on Release.
	Refund
	// Manual: the limiter is a [limiter.Replenisher] and can be told not to
	// replenish by itself.
	Manual
	// Anchored: the grid of periods starts when the limiter is made. Without it
	// the suite finds a grid line by using up what there is and waiting for what
	// RetryAfter says, so one of the two must be there; cases about Manual are
	// left out.
	Anchored
)

// Limits are what the suite asks a limiter to be made with. Unlike the options
// of this module's limiters they are the same for all kinds; fields that a kind
// has no use for are to be ignored.
type Limits struct {
	Permits         int                // the most that can be there at once: PermitLimit or TokenLimit
	Period          time.Duration      // the whole window, or the time between two refills of a bucket
	TokensPerPeriod int                // TokenBucket: what comes in each period
	Segments        int                // SlidingWindow: steps per window; Period is divisible by it
	QueueLimit      int                // permits that may be waited for; 0: nobody waits
	Order           limiter.QueueOrder // who is served first
	Manual          bool               // only TryReplenish moves time on; asked for only with the feature Manual
}

// Concurrency returns the limits as options.
func (l Limits) Concurrency() limiter.ConcurrencyOptions {
	return limiter.ConcurrencyOptions{PermitLimit: l.Permits, QueueLimit: l.QueueLimit, QueueOrder: l.Order}
}

// FixedWindow returns the limits as options.
func (l Limits) FixedWindow() limiter.FixedWindowOptions {
	return limiter.FixedWindowOptions{
		PermitLimit: l.Permits, Window: l.Period,
		QueueLimit: l.QueueLimit, QueueOrder: l.Order, ManualReplenishment: l.Manual,
	}
}

// SlidingWindow returns the limits as options.
func (l Limits) SlidingWindow() limiter.SlidingWindowOptions {
	return limiter.SlidingWindowOptions{
		PermitLimit: l.Permits, Window: l.Period, SegmentsPerWindow: l.Segments,
		QueueLimit: l.QueueLimit, QueueOrder: l.Order, ManualReplenishment: l.Manual,
	}
}

// TokenBucket returns the limits as options.
func (l Limits) TokenBucket() limiter.TokenBucketOptions {
	return limiter.TokenBucketOptions{
		TokenLimit: l.Permits, TokensPerPeriod: l.TokensPerPeriod, ReplenishmentPeriod: l.Period,
		QueueLimit: l.QueueLimit, QueueOrder: l.Order, ManualReplenishment: l.Manual,
	}
}

// Step is the time between two grid lines of a limiter of that kind with these
// limits; 0 for a kind without.
func (l Limits) Step(k Kind) time.Duration {
	switch k {
	case FixedWindow, TokenBucket:
		return l.Period
	case SlidingWindow:
		return l.Period / time.Duration(max(l.Segments, 1))
	}
	return 0
}

// A Subject is a limiter as the suite sees it. Kind and New must be set.
type Subject struct {
	Kind Kind

	// New returns a limiter with these limits that nobody has used: for a store,
	// one under a key of its own. It is called at least once per case, inside
	// the synctest bubble where time is fake. What it registers with t.Cleanup
	// runs at the end of the case; a limiter that is an io.Closer is closed by
	// the suite. It may fail with t.Fatal.
	New func(t testing.TB, l Limits) limiter.Limiter

	// Reconfigure gives new limits to a limiter that New made. nil: the limits
	// cannot be changed, and the cases about that are not run.
	Reconfigure func(l limiter.Limiter, to Limits) error

	// Lacks are the features that this limiter does not have.
	Lacks Feature

	// RealTime runs the cases outside of synctest, for limiters that talk to
	// another process. They run in parallel, so New must be safe for that, and
	// each limiter that it makes must be independent of the others; a larger
	// -parallel than usual makes them quicker.
	RealTime bool

	// Tolerance is how late an answer or a wake-up may come, in real time: the
	// round trip to a store, and more on a busy machine. A case that fails when
	// something came later than that is run again, five times at most. Without
	// RealTime it is ignored. 0 stands for 10 ms.
	Tolerance time.Duration

	// Resolution is the smallest step of time that the limiter knows of; 0 stands for a
	// nanosecond. Answers about time may be off by as much.
	Resolution time.Duration

	// Unit is the period that the suite asks for. 0 stands for 40 times the
	// Tolerance in real time, else for 100 ms. It is divisible by 20.
	Unit time.Duration
}

// Run puts s through every case about its kind and its features, each in a
// subtest of its own whose name says what is expected.
func Run(t *testing.T, s Subject) {
	t.Helper()
	if s.New == nil || s.Kind == 0 {
		t.Fatal("limitertest: Subject.Kind and Subject.New must be set")
	}
	for _, c := range cases() {
		if !c.concerns(s) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if s.RealTime {
				t.Parallel() // most of the time is spent asleep
			}
			for _, failure := range c.check(t, s) {
				t.Error(failure)
			}
		})
	}
}

// A testCase is one expectation, with what a limiter must have to be held to it.
type testCase struct {
	name  string // a sentence
	rule  string // where it is written
	kinds []Kind // none: all but Unlimited
	needs Feature
	// reconfigures: only with Subject.Reconfigure.
	reconfigures bool
	// exact: only in fake time.
	exact bool
	run   func(p *probe)
}

func (c testCase) concerns(s Subject) bool {
	if c.needs&Manual != 0 && s.Lacks&Anchored != 0 {
		return false // who waits for a grid line finds none where time stands still
	}
	if c.needs&s.Lacks != 0 || c.reconfigures && s.Reconfigure == nil || c.exact && s.RealTime {
		return false
	}
	if len(c.kinds) == 0 {
		return s.Kind != Unlimited
	}
	return slices.Contains(c.kinds, s.Kind)
}

// check runs the case and returns what was wrong. It reports nothing to t itself
// unless the limiter left a goroutine behind.
func (c testCase) check(t *testing.T, s Subject) (failures []string) {
	if s.RealTime {
		late := true
		for tries := 0; tries < mostTries && late; tries++ {
			if tries > 0 {
				t.Logf("again, because an answer or a wake-up came too late: %v", failures)
			}
			failures, late = c.inside(t, s)
			late = late && len(failures) > 0
		}
		return failures
	}
	synctest.Test(t, func(t *testing.T) { failures, _ = c.inside(t, s) })
	return failures
}

// mostTries is how often a case is run on a machine that is too busy to tell.
const mostTries = 5

// inside runs the case once. late reports that in real time something took longer
// than the Tolerance, so that failures may not be the limiter's.
func (c testCase) inside(t testing.TB, s Subject) (failures []string, late bool) {
	p := newProbe(t, s, c.rule)
	func() {
		defer p.end()
		defer func() {
			if r := recover(); r != nil && r != any(stopCase{}) {
				panic(r)
			}
		}()
		c.run(p)
	}()
	return p.failures, p.late
}

// cases returns all cases, in the order of docs/semantics.md.
func cases() []testCase {
	var all []testCase
	for _, some := range [][]testCase{
		rangeCases, contextCases, zeroCases, queueCases, cancelCases, closeCases, retryCases,
		statisticsCases, idleCases, leaseCases, timeCases, manualCases, reconfigureCases,
		refundCases, concurrentCases, unlimitedCases,
	} {
		all = append(all, some...)
	}
	return all
}
