// Package drill tests stores on real servers: limiters that several processes share, instances that are killed or
// stopped, servers that go away and come back, and networks with faults. The tests of each store bring a [Subject] and
// run the drills.
//
// Drills do not run inside testing/synctest, because servers and other processes have their own time. They wait for
// conditions, with a deadline.
package drill

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// An Opener connects to a place. A place is a text that says where the server is and which part of it to use, such as a
// URL and a prefix. An Opener is called in this process and in the instances that the drills start, so the text must be
// all that it needs.
type Opener func(place string) (b backend.Backend, disconnect func(), err error)

// A Subject is the store that is tested. Open and Place must be set.
type Subject struct {
	Open Opener
	// Place returns an unused place on the server that all tests share.
	Place func(t testing.TB) string
	// NoLeaks records which goroutines exist, and registers a function with t.Cleanup that fails the test if there are
	// others. The drills with faults need it.
	NoLeaks func(t testing.TB)
	// Calls returns how many calls of limiters the server itself has counted at a place. If nil, it is not checked.
	Calls func(t testing.TB, place string) int64
}

// patience is how long something that must happen can take. A machine that is busy with other tests is slow.
const patience = 30 * time.Second

// backend connects to a place until the end of the test.
func (s Subject) backend(t testing.TB, place string) backend.Backend {
	t.Helper()
	b, disconnect, err := s.Open(place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(disconnect)
	return b
}

// store opens a store until the end of the test. See storeOn.
func (s Subject) store(t testing.TB, place string, o store.Options) *store.Store {
	t.Helper()
	return storeOn(t, s.backend(t, place), o)
}

// storeOn opens a store on b until the end of the test. On a machine that is busy with other tests an answer can take
// long; therefore the default CallTimeout is patience.
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

// serverTime returns the time of the server, in µs since 1970.
func serverTime(t testing.TB, b backend.Backend) int64 {
	t.Helper()
	_, now, err := b.Load(context.Background(), "clock")
	if err != nil {
		t.Fatal(err)
	}
	return now
}

var nameSerial atomic.Int64

// uniqueName returns a name that no other limiter of this test process has.
func uniqueName(what string) string { return fmt.Sprintf("%s-%d", what, nameSerial.Add(1)) }

// events are the events of a Store.
type events struct {
	mu  sync.Mutex
	all []store.Event
}

func (e *events) add(event store.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// of returns the events of these kinds, the oldest first.
func (e *events) of(kinds ...store.EventKind) []store.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.all), func(event store.Event) bool { return !slices.Contains(kinds, event.Kind) })
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// decided returns an error if the lease was decided without the store.
func decided(lease limiter.Lease, err error) (limiter.Lease, error) {
	if reason, without := store.OutageKey.From(lease); without {
		return lease, fmt.Errorf("the store was not asked: %w", reason)
	}
	return lease, err
}

// tryAcquire expects that the store decides.
func tryAcquire(t testing.TB, l limiter.Limiter, n int) limiter.Lease {
	t.Helper()
	return must(decided(l.TryAcquire(context.Background(), n)))(t)
}

// acquire expects a permit. It can be called from any goroutine.
func acquire(t testing.TB, l limiter.Limiter) limiter.Lease {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lease, err := decided(l.Acquire(ctx, 1))
	if err != nil || !lease.Acquired() {
		t.Errorf("no permit: %v, %q", err, lease.Reason())
	}
	return lease
}

// eventually polls until ok, because what it waits for happens elsewhere.
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

// short returns a smaller number with -short.
func short(usual, less int) int {
	if testing.Short() {
		return less
	}
	return usual
}
