// Package drill is what is tried with every store on a real server: limiters that several processes share, instances
// that are killed or stopped, servers that go away and come back, networks that do harm. Each store's tests bring a
// [Subject] and run the drills.
//
// Nothing of it works inside testing/synctest: servers and processes know another time. Waiting is for a condition,
// with a deadline.
package drill

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// An Opener connects to a place: a text that says where the server is and which part of it to use. It is called in
// this process and in the instances that the drills start, so all it knows is the text.
type Opener func(place string) (b backend.Backend, disconnect func(), err error)

// A Subject is a store as the drills see it. Open and Place must be set.
type Subject struct {
	Open Opener
	// Place returns an unused place on the server that all tests share.
	Place func(t testing.TB) string
	// NoLeaks remembers which goroutines exist, and fails the test if there are others at its end, before the
	// functions run that were registered with t.Cleanup earlier. If nil, leaks are not looked for.
	NoLeaks func(t testing.TB)
	// Calls is how many calls of limiters the server itself has counted at a place. nil: it does not count.
	Calls func(t testing.TB, place string) int64
}

// patience is how long something that must happen may take. A machine that is busy with other tests is slow.
const patience = 30 * time.Second

// backend is closed at the end of the test.
func (s Subject) backend(t testing.TB, place string) backend.Backend {
	t.Helper()
	b, disconnect, err := s.Open(place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(disconnect)
	return b
}

// store opens a store that is closed at the end of the test. A machine that is busy with other tests may take long for
// an answer, so that the CallTimeout is patience unless o says otherwise.
func (s Subject) store(t testing.TB, place string, o store.Options) *store.Store {
	t.Helper()
	return storeOn(t, s.backend(t, place), o)
}

func storeOn(t testing.TB, b backend.Backend, o store.Options) *store.Store {
	t.Helper()
	o.CallTimeout = cmp.Or(o.CallTimeout, patience)
	made := must(store.New(b, &o))(t)
	t.Cleanup(func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})
	return made
}

// clock is the time of the server, in µs since 1970.
func clock(t testing.TB, b backend.Backend) int64 {
	t.Helper()
	_, now, err := b.Load(context.Background(), "clock")
	if err != nil {
		t.Fatal(err)
	}
	return now
}

var serial atomic.Int64

// name is one that no other limiter of this test process has.
func name(what string) string { return fmt.Sprintf("%s-%d", what, serial.Add(1)) }

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually waits until ok, which is asked again and again: what is waited for happens elsewhere.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !inTime(ok) {
		t.Fatalf("not so after %v: %s", patience, what)
	}
}

func inTime(ok func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return ok()
}

// short is less of something where tests are to be quick.
func short(usual, less int) int {
	if testing.Short() {
		return less
	}
	return usual
}
