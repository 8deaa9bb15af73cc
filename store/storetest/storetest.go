package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// A Subject is the Backend that is tested. New is required.
type Subject struct {
	// New returns a Backend. All Backends that New returns are instances of one service, on the same server. New must be
	// safe for use by parallel cases, which use different names. At the end of a case, the suite closes the Backends of
	// the case. After that, the functions run that New has registered with t.Cleanup.
	New func(t testing.TB) backend.Backend

	// SetTime sets the time by which b decides about buckets and windows, in µs since 1970. From then on, that time can
	// stand still or advance. All times are at least some weeks in the future; a call can set an earlier time than the
	// call before.
	//
	// If nil, only as much time passes as the cases take.
	SetTime func(t testing.TB, b backend.Backend, micros int64)

	// Keys returns how many keys of a bucket or window are stored. If nil, the suite does not check that full keys are
	// forgotten.
	Keys func(t testing.TB, b backend.Backend, name string) int

	// NoListen, if true, means that the Backend sends no notices. The suite then checks that Listen returns
	// [errors.ErrUnsupported].
	NoListen bool

	patience time.Duration // how long a case waits for something that must happen; 0: usualPatience
}

// Run runs every case that applies to s, each in its own subtest. With -short, some try fewer keys and random scripts.
func Run(t *testing.T, s Subject) {
	t.Helper()
	if s.New == nil {
		t.Fatal("storetest: Subject.New must be set")
	}
	for _, c := range cases() {
		if !c.appliesTo(s) {
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

func (s Subject) listens() bool  { return !s.NoListen }
func (s Subject) setsTime() bool { return s.SetTime != nil }
func (s Subject) hasKeys() bool  { return s.Keys != nil }

func cases() []testCase {
	return slices.Concat(
		decideCases, scriptCases, timeCases, rangeCases, keyCases, replaceCases, defineCases,
		acquireCases, leaseCases, listenCases, contextCases, concurrentCases,
	)
}
