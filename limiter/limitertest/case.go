package limitertest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/limiter"
)

// A testCase is one expectation, with what a limiter must have to be checked for it.
type testCase struct {
	name   string // a sentence
	rule   string // of docs/semantics.md
	kinds  []Kind // none: all but Unlimited
	needs  Feature
	limits func(l *Limits) // changes usualLimits for this case; can be nil
	script string          // see verbs; begins with a new limiter
	run    func(p *probe)  // what a script cannot say; after the script
}

// usualLimits returns the limits that most cases have: 4 permits that are all back after one Unit, for every kind, and
// room for 8 to wait.
func usualLimits(s Subject) Limits {
	return Limits{Permits: 4, Period: s.Unit, TokensPerPeriod: 4, Segments: 4, QueueLimit: 8}
}

func permits(limit, perPeriod int) func(l *Limits) {
	return func(l *Limits) { l.Permits, l.TokensPerPeriod = limit, perPeriod }
}

func withQueue(limit int) func(l *Limits) {
	return func(l *Limits) { l.QueueLimit = limit }
}

func newestFirst(queueLimit int) func(l *Limits) {
	return func(l *Limits) { l.QueueLimit, l.Order = queueLimit, limiter.NewestFirst }
}

// cases returns the cases about limiters such as s, in the order of docs/semantics.md. s has its defaults.
func (s Subject) cases() (applicable []testCase) {
	for _, c := range allCases() {
		if c.appliesTo(s) {
			applicable = append(applicable, c)
		}
	}
	return applicable
}

func allCases() []testCase { return slices.Concat(scripts, programs, concurrentCases) }

// appliesTo reports whether the case is about limiters such as s.
func (c testCase) appliesTo(s Subject) bool {
	if c.needs&s.Lacks != 0 {
		return false
	}
	if len(c.kinds) == 0 {
		return s.Kind != Unlimited
	}
	return slices.Contains(c.kinds, s.Kind)
}

// check runs the case and returns what was wrong. It reports nothing to t itself unless the limiter left a goroutine
// behind.
func (c testCase) check(t *testing.T, s Subject) (failures []string) {
	if !s.RealTime {
		synctest.Test(t, func(t *testing.T) { failures, _ = c.runOnce(t, s) })
		return failures
	}
	slowdown := time.Duration(1)
	for try := 1; ; try++ {
		slower := s
		slower.Tolerance, slower.Unit = slowdown*s.Tolerance, slowdown*s.Unit
		failures, late, timersLate := c.runMeasured(t, slower)
		if len(failures) == 0 || try == maxTries || !late && timersLate <= slower.Tolerance {
			return failures
		}
		// Most delays last a moment, and the next try at the same pace has none. A slower pace can take a minute.
		if try > 1 {
			slowdown = min(max(slowdown, 4*timersLate/s.Tolerance), maxSlowdown)
		}
		t.Logf("again, with a Tolerance of %v: an answer or a wake-up came too late, and a timer of this machine %v too late: %v",
			slowdown*s.Tolerance, timersLate, failures)
	}
}

const (
	maxTries    = 5  // how often a case is run if something came too late
	maxSlowdown = 16 // the largest factor for its Tolerance and Unit
)

// runMeasured is runOnce in real time. timersLate is how late this machine's own timers were meanwhile.
func (c testCase) runMeasured(t *testing.T, s Subject) (failures []string, late bool, timersLate time.Duration) {
	stop := measureLateness(s.Tolerance / 4)
	defer func() { timersLate = stop() }() // deferred, because New may end the test
	failures, late = c.runOnce(t, s)
	return failures, late, 0
}

// measureLateness sleeps for a moment again and again until stop is called, which returns by how much the longest of
// these sleeps was too long. It is a variable for the tests of the suite.
var measureLateness = func(moment time.Duration) (stop func() time.Duration) {
	done, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		timer := time.NewTimer(moment)
		defer timer.Stop()
		var longest time.Duration
		for {
			due := time.Now().Add(moment)
			timer.Reset(moment)
			select {
			case <-timer.C:
				longest = max(longest, time.Since(due))
			case <-done:
				result <- max(longest, time.Since(due))
				return
			}
		}
	}()
	return func() time.Duration {
		close(done)
		return <-result
	}
}

// runOnce runs the case once. late reports whether an answer or a wake-up took longer than the Tolerance in real time,
// which can be the reason for the failures.
func (c testCase) runOnce(t testing.TB, s Subject) (failures []string, late bool) {
	p := newProbe(t, s, c)
	func() {
		defer p.end()
		defer func() {
			if r := recover(); r != nil && r != any(stopCase{}) {
				panic(r)
			}
		}()
		l := usualLimits(s)
		if c.limits != nil {
			c.limits(&l)
		}
		p.makeLimiter(l)
		if p.do(c.script); c.run != nil {
			c.run(p)
		}
	}()
	return p.failures, p.late
}
