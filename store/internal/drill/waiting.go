package drill

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// A Network is a testserver.Proxy.
type Network interface {
	Delay(time.Duration)
	Cut()
	Refuse(bool)
	Blackhole(bool)
}

// awaitListening waits until a store listens. If not ok, it is not meant to.
func awaitListening(t testing.TB, s *store.Store, ok bool) {
	t.Helper()
	if ok {
		eventually(t, "the store listens", func() bool { return s.Health().Listening })
	}
}

// handOver has the only permit go back and forth between two stores, and returns how long the waiter waited after
// each release.
func handOver(t testing.TB, seats [2]made, times int) (took []time.Duration) {
	t.Helper()
	lease := acquire(t, seats[0])
	for i := range times {
		next := make(chan limiter.Lease)
		go func() { next <- acquire(t, seats[(i+1)%2]) }()
		eventually(t, "the other one waits", func() bool { return seats[(i+1)%2].Statistics().QueuedPermits == 1 })
		// By then, the earlier requests are answered, and the store knows that a caller waits.
		time.Sleep(20 * time.Millisecond)
		released := time.Now()
		lease.Release()
		lease = <-next
		took = append(took, time.Since(released))
	}
	lease.Release()
	return took
}

// acquire can be called from any goroutine.
func acquire(t testing.TB, l limiter.Limiter) limiter.Lease {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lease, err := answered(l.Acquire(ctx, 1))
	if err != nil || !lease.Acquired() {
		t.Errorf("no permit: %v, %q", err, lease.Reason())
	}
	return lease
}

func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// twoStores returns the same limiter in two stores.
func (s Subject) twoStores(t testing.TB, k limitertest.Kind, l limitertest.Limits, o store.Options) (stores [2]*store.Store, both [2]made) {
	place, name := s.Place(t), name("both")
	for i := range both {
		stores[i] = s.store(t, place, o)
		both[i] = must(build(stores[i], name, k, l, nil))(t)
		both[i].Statistics() // from now on it can listen
	}
	return stores, both
}

// ReleaseWakes is the drill: at once where the stores listen, else when they poll.
func ReleaseWakes(t *testing.T, s Subject, listens bool) {
	stores, seats := s.twoStores(t, limitertest.Concurrency, oneSeat, store.Options{NoListen: !listens})
	for _, st := range stores {
		awaitListening(t, st, listens)
	}
	took := median(handOver(t, seats, short(20, 10)))
	t.Logf("listening %v: a release was heard of after %v", listens, took)
	// With notices, it polls after half a second at the earliest.
	if most := 250 * time.Millisecond; took > most {
		t.Errorf("%v from a release to the next holder, at most %v is right", took, most)
	}
}

// ListenUnsupported behind what does not pass notices on, and is told once.
func ListenUnsupported(t *testing.T, s Subject) {
	var told events
	st := s.store(t, s.Place(t), store.Options{OnEvent: told.tell})
	must(build(st, name("deaf"), limitertest.Concurrency, oneSeat, nil))(t).Statistics()
	eventually(t, "it is told", func() bool { return len(told.of(store.EventListenFailed)) > 0 })
	if failed := told.of(store.EventListenFailed); len(failed) != 1 || !errors.Is(failed[0].Err, errors.ErrUnsupported) || st.Health().Listening {
		t.Errorf("told: %+v", failed)
	}
}

// splitListener are a backend that listens by another connection than it asks by.
type splitListener struct {
	backend.Backend
	by backend.Backend
}

func (e splitListener) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
	return e.by.Listen(ctx, ready, notice)
}

// PollsWithoutListening is the drill: the connection by which a waiter listens is cut, and cannot be made again for a while. through is
// the same place as direct, by the network.
func PollsWithoutListening(t *testing.T, s Subject, direct, through string, network Network) {
	name := name("deaf")
	deaf := storeOn(t, splitListener{s.backend(t, direct), s.backend(t, through)}, store.Options{})
	well := s.store(t, direct, store.Options{})
	var seats [2]made
	for i, st := range []*store.Store{well, deaf} {
		seats[i] = must(build(st, name, limitertest.Concurrency, oneSeat, nil))(t)
		seats[i].Statistics()
		awaitListening(t, st, true)
	}
	lease := acquire(t, seats[0])
	next := make(chan limiter.Lease)
	go func() { next <- acquire(t, seats[1]) }()
	eventually(t, "the other one waits", func() bool { return seats[1].Statistics().QueuedPermits == 1 })
	network.Refuse(true)
	network.Cut()
	eventually(t, "it notices that it hears nothing", func() bool { return !deaf.Health().Listening })
	released := time.Now()
	lease.Release()
	lease = <-next
	if took := time.Since(released); took > time.Second {
		t.Errorf("polling took %v", took)
	}
	lease.Release()
	network.Refuse(false)
	awaitListening(t, deaf, true)
	if took := median(handOver(t, seats, 10)); took > 250*time.Millisecond {
		t.Errorf("%v from a release to the next holder though it listens again", took)
	}
}

// CallsOfManyWaiters is the drill: those who wait for a bucket in two instances are all served, and each instance asks for all of
// its own together.
func CallsOfManyWaiters(t *testing.T, s Subject) {
	const waiters, refill, period = 100, 20, 100 * time.Millisecond
	limits := limitertest.Limits{Permits: refill, Period: period, TokensPerPeriod: refill, QueueLimit: waiters}
	stores, buckets := s.twoStores(t, limitertest.TokenBucket, limits, store.Options{})
	place := s.Place(t)
	before, asked := calls(stores), int64(0)
	if s.Calls != nil {
		asked = s.Calls(t, place)
	}
	begun := time.Now()
	var all sync.WaitGroup
	for i := range 2 * waiters {
		all.Go(func() { acquire(t, buckets[i%2]) })
	}
	all.Wait()
	took := time.Since(begun)
	got := calls(stores) - before
	// A line of the grid is worth one question of each instance for its share, and two for what is left. The first
	// calls are on as many flights as it takes to get them into the queue.
	most := 3*2*(took.Milliseconds()/period.Milliseconds()+2) + 20
	if got > most {
		t.Errorf("%d calls in %v, at most %d are right", got, took, most)
	}
	if s.Calls != nil {
		if asked = s.Calls(t, place) - asked; asked > got+2 {
			t.Errorf("the server has counted %d calls, the stores %d", asked, got)
		}
	}
	t.Logf("%d waiters served in %v by %d calls", 2*waiters, took, got)
}

func calls(stores [2]*store.Store) int64 {
	return stores[0].Counters().Calls + stores[1].Counters().Calls
}

// CallsOfManyHolders is the same for leases that come and go.
func CallsOfManyHolders(t *testing.T, s Subject) {
	const waiters = 50
	stores, seats := s.twoStores(t, limitertest.Concurrency, limitertest.Limits{Permits: 2, QueueLimit: waiters}, store.Options{})
	for _, st := range stores {
		awaitListening(t, st, true)
	}
	before, begun := calls(stores), time.Now()
	var all sync.WaitGroup
	for i := range 2 * waiters {
		all.Go(func() {
			lease := acquire(t, seats[i%2])
			time.Sleep(5 * time.Millisecond) // the work that needs the lease
			lease.Release()
		})
	}
	all.Wait()
	got, took := calls(stores)-before, time.Since(begun)
	// Each lease is asked for when the queue's head may have it, and released; each release wakes both instances, and
	// the first questions of all may come in any number of flights.
	if most := int64(2*waiters*8) + 2*took.Milliseconds()/25; got > most {
		t.Errorf("%d calls for %d leases in %v, at most %d are right", got, 2*waiters, took, most)
	}
	t.Logf("%d leases in %v by %d calls", 2*waiters, took, got)
}
