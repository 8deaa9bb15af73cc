package limitertest

import (
	"slices"
	"testing"
	"testing/synctest"

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

// check runs the case in a bubble and returns what was wrong. It reports nothing to t itself unless the limiter left a goroutine
// behind.
func (c testCase) check(t *testing.T, s Subject) (failures []string) {
	synctest.Test(t, func(t *testing.T) { failures = c.inBubble(t, s) })
	return failures
}

func (c testCase) inBubble(t testing.TB, s Subject) []string {
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
	return p.failures
}
