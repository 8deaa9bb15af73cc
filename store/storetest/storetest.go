package storetest

import (
	"testing"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A Feature is something that a Backend may lack; features are combined with |.
type Feature uint32

// The features that the suite has cases about.
const (
	// Listen: [backend.Backend.Listen] tells of what happens. A Backend that lacks it
	// returns [errors.ErrUnsupported], which is what is checked then.
	Listen Feature = 1 << iota
)

// A Subject is a Backend as the suite sees it. New must be set.
type Subject struct {
	// New returns a Backend. Those that it returns are as many instances of a service:
	// they share one server. Cases run in parallel, so it must be safe for that; each uses
	// names of its own. The suite closes what New returned at the end of the case, before
	// what New registered with t.Cleanup is run.
	New func(t testing.TB) backend.Backend

	// SetTime makes micros, in µs since 1970, the time by which b decides about buckets
	// and windows from now on. The time may stand still then, or go on from there. It is
	// called only for times some weeks or more in the future, which may be before the one
	// that it was last called with.
	//
	// nil: only as much time goes by as the cases take.
	SetTime func(t testing.TB, b backend.Backend, micros int64)

	// Keys returns how many keys of the bucket or window are stored. nil: that keys are
	// forgotten when they are full is not checked.
	Keys func(t testing.TB, b backend.Backend, name string) int

	// Lacks are the features that this Backend does not have.
	Lacks Feature

	patience time.Duration // how long something that must happen may take; 0: long
}

// Run puts s through every case about its features, each in a subtest of its own whose
// name says what is expected.
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
			t.Parallel() // much of the time is spent waiting for the server
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
	// lacks: only for those that lack it.
	lacks Feature
	// setTime, keys: only with what the Subject may have.
	setTime, keys bool
	run           func(p *probe)
}

func (c testCase) concerns(s Subject) bool {
	return c.needs&s.Lacks == 0 && c.lacks&s.Lacks == c.lacks &&
		(!c.setTime || s.SetTime != nil) && (!c.keys || s.Keys != nil)
}

// check runs the case and returns what was wrong.
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

// cases returns all there are.
func cases() []testCase {
	var all []testCase
	for _, some := range [][]testCase{
		decideCases, scriptCases, timeCases, rangeCases, keyCases, replaceCases, defineCases,
		holdCases, leaseCases, listenCases, contextCases, concurrentCases,
	} {
		all = append(all, some...)
	}
	return all
}
