package storetest

import (
	"testing"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A Feature is something that a Backend can lack. Features are combined with |.
type Feature uint32

// The features that cases of the suite need.
const (
	// Listen: [backend.Backend.Listen] sends notices. A Backend without it returns [errors.ErrUnsupported], which the
	// suite then checks.
	Listen Feature = 1 << iota
)

// A Subject is the Backend that is tested. New is required.
type Subject struct {
	// New returns a Backend. All that it returns are instances of one service, on the same server. It must be safe for
	// use by parallel cases, which use different names. At the end of a case, the suite closes what New has returned,
	// before the functions run that New has registered with t.Cleanup.
	New func(t testing.TB) backend.Backend

	// SetTime sets the time by which b decides about buckets and windows, in µs since 1970. The time can stand still
	// then or go on. It is called only with times some weeks or more in the future, which can be before the last one.
	//
	// If nil, only as much time passes as the cases take.
	SetTime func(t testing.TB, b backend.Backend, micros int64)

	// Keys returns how many keys of a bucket or window are stored. If nil, the suite does not check that full keys are
	// forgotten.
	Keys func(t testing.TB, b backend.Backend, name string) int

	// Lacks are the features that this Backend does not have.
	Lacks Feature

	patience time.Duration // of each wait; 0: usualPatience
}

// Run runs every case that s has the features for, each in its own subtest.
func Run(t *testing.T, s Subject) {
	t.Helper()
	if s.New == nil {
		t.Fatal("storetest: Subject.New must be set")
	}
	for _, c := range cases() {
		if !c.concerns(s) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // cases mostly wait for the server
			for _, failure := range c.check(t, s) {
				t.Error(failure)
			}
		})
	}
}

// A testCase is one expectation.
type testCase struct {
	name  string // a sentence
	needs Feature
	// only for subjects without it
	lacks Feature
	// only for subjects that have these
	setTime, keys bool
	run           func(p *probe)
}

func (c testCase) concerns(s Subject) bool {
	return c.needs&s.Lacks == 0 && c.lacks&s.Lacks == c.lacks &&
		(!c.setTime || s.SetTime != nil) && (!c.keys || s.Keys != nil)
}

// check runs the case and returns its failures.
func (c testCase) check(t testing.TB, s Subject) (failures []string) {
	p := newProbe(t, s)
	func() {
		defer p.end()
		defer func() {
			if r := recover(); r != nil && r != any(stopCase{}) {
				panic(r)
			}
		}()
		c.run(p)
	}()
	return p.failures
}

func cases() []testCase {
	var all []testCase
	for _, some := range [][]testCase{
		decideCases, scriptCases, timeCases, rangeCases, keyCases, replaceCases, defineCases,
		acquireCases, leaseCases, listenCases, contextCases, concurrentCases,
	} {
		all = append(all, some...)
	}
	return all
}
