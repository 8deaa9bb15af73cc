package limitertest

import (
	"slices"
	"testing"
	"testing/synctest"
)

// Run runs every case about the kind and the features of s, each in a subtest whose name says what is expected.
func Run(t *testing.T, s Subject) {
	t.Helper()
	if s.New == nil || s.Kind == 0 {
		t.Fatal("limitertest: Subject.Kind and Subject.New must be set")
	}
	s = s.withDefaults()
	for _, c := range s.cases() {
		t.Run(c.name, func(t *testing.T) {
			for _, failure := range c.check(t, s) {
				t.Error(failure)
			}
		})
	}
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
