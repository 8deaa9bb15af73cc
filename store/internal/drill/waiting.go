package drill

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/stopwatch"
	"github.com/weir-go/weir/tools/testserver"
)

// Waiting runs the drills of callers that wait. behindProxy returns a place, and the same place through a network.
func Waiting(t *testing.T, s Subject, behindProxy func(testing.TB) (direct, through string, network *testserver.Proxy)) {
	Apart(t, func() {
		t.Run("listening", func(t *testing.T) { ReleaseWakes(t, s, true) })
		t.Run("polling", func(t *testing.T) { ReleaseWakes(t, s, false) })
		t.Run("listening is cut", func(t *testing.T) {
			direct, through, network := behindProxy(t)
			pollsWithoutListening(t, s, direct, through, network)
		})
		t.Run("far away", func(t *testing.T) {
			_, through, network := behindProxy(t)
			farInstances(t, s, through, network)
		})
		t.Run("many waiters", func(t *testing.T) { callsOfManyWaiters(t, s) })
		t.Run("many holders", func(t *testing.T) { callsOfManyHolders(t, s) })
	})
}

func awaitListening(t testing.TB, s *store.Store) {
	t.Helper()
	eventually(t, "the store listens", func() bool { return s.Health().Listening })
}

// handOver moves the only permit back and forth between two stores, and returns the shortest time from a release to the
// next grant.
func handOver(t testing.TB, both [2]testLimiter, times int) time.Duration {
	t.Helper()
	var took []time.Duration
	lease := acquire(t, both[0])
	for i := range times {
		next := acquireLater(t, both[(i+1)%2])
		// Within this time, the earlier requests are answered, and the store learns that a caller waits.
		time.Sleep(20 * time.Millisecond)
		released := time.Now()
		lease.Release()
		lease = <-next
		took = append(took, time.Since(released))
	}
	lease.Release()
	return slices.Min(took)
}

// acquireLater calls Acquire of l, which has no permits, and returns as soon as the call waits in the queue. The lease
// arrives on the channel.
func acquireLater(t testing.TB, l testLimiter) <-chan limiter.Lease {
	t.Helper()
	next := make(chan limiter.Lease)
	go func() { next <- acquire(t, l) }()
	eventually(t, "a caller waits", func() bool { return l.Statistics().QueuedPermits == 1 })
	return next
}

// twoStores returns the same limiter in two stores, which listen unless o says otherwise.
func (s Subject) twoStores(t testing.TB, k limitertest.Kind, l limitertest.Limits, o store.Options) (stores [2]*store.Store, both [2]testLimiter) {
	t.Helper()
	place, name := s.Place(t), uniqueName("both")
	for i := range both {
		stores[i] = s.store(t, place, o)
		both[i] = must(build(stores[i], name, k, l, nil))(t)
		both[i].Statistics() // the first use makes the store listen
		if !o.NoListen {
			awaitListening(t, stores[i])
		}
	}
	return stores, both
}

// ReleaseWakes tests that a waiting caller gets what another instance has released, whether the stores listen or poll.
func ReleaseWakes(t *testing.T, s Subject, listens bool) {
	_, both := s.twoStores(t, limitertest.Concurrency, onePermit, store.Options{NoListen: !listens})
	wakesInTime(t, both, short(20, 10))
}

// fallbackPoll is how long a store that listens waits at least before it asks although no notice has come; a store that polls asks
// ten times as often. On a busy machine, a notice takes a part of it.
const fallbackPoll = 500 * time.Millisecond

// wakesInTime hands a permit over, and expects that not all callers get it by a fallback poll: each such poll is about a whole
// fallbackPoll after the release.
func wakesInTime(t *testing.T, both [2]testLimiter, times int) {
	t.Helper()
	took := handOver(t, both, times)
	if t.Logf("%v from a release to the next holder", took); took > fallbackPoll-50*time.Millisecond {
		t.Errorf("%v from a release to the next holder, as by fallback polls", took)
	}
}

// ListenUnsupported tests that a store behind something that does not pass on notices reports that, once.
func ListenUnsupported(t *testing.T, s Subject) {
	var reported events
	st := s.store(t, s.Place(t), store.Options{OnEvent: reported.add})
	must(build(st, uniqueName("unsupported"), limitertest.Concurrency, onePermit, nil))(t).Statistics()
	eventually(t, "it is reported", func() bool { return len(reported.of(store.EventListenFailed)) > 0 })
	if failed := reported.of(store.EventListenFailed); len(failed) != 1 || !errors.Is(failed[0].Err, errors.ErrUnsupported) || st.Health().Listening {
		t.Errorf("reported: %+v", failed)
	}
}

// A splitListener listens by another connection.
type splitListener struct {
	backend.Backend
	by backend.Backend
}

func (l splitListener) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
	return l.by.Listen(ctx, ready, notice)
}

// pollsWithoutListening cuts the connection by which a store with a waiting caller listens, and lets no new one be made
// for a while. through is the same place as direct, reached by the network.
func pollsWithoutListening(t *testing.T, s Subject, direct, through string, network *testserver.Proxy) {
	name := uniqueName("polls")
	cut := storeOn(t, splitListener{s.backend(t, direct), s.backend(t, through)}, store.Options{})
	var both [2]testLimiter
	for i, st := range []*store.Store{s.store(t, direct, store.Options{}), cut} {
		both[i] = must(build(st, name, limitertest.Concurrency, onePermit, nil))(t)
		both[i].Statistics()
		awaitListening(t, st)
	}
	lease := acquire(t, both[0])
	next := acquireLater(t, both[1])
	network.Refuse(true)
	network.Cut()
	eventually(t, "it notices that it does not listen any more", func() bool { return !cut.Health().Listening })
	const polls = 10
	begun, calls := time.Now(), cut.Counters().Calls
	eventually(t, "it polls", func() bool { return cut.Counters().Calls >= calls+polls })
	if took := time.Since(begun); took > polls*fallbackPoll {
		t.Errorf("%d polls took %v", polls, took)
	}
	lease.Release()
	lease = <-next
	lease.Release()
	network.Refuse(false)
	awaitListening(t, cut)
	wakesInTime(t, both, 10)
}

// callsOfManyWaiters tests that all callers that wait for a bucket in two instances are served, and that one call asks
// for all callers of an instance.
func callsOfManyWaiters(t *testing.T, s Subject) {
	const waiters, refill, period = 100, 20, 100 * time.Millisecond
	limits := limitertest.Limits{Permits: refill, Period: period, TokensPerPeriod: refill, QueueLimit: waiters}
	stores, buckets := s.twoStores(t, limitertest.TokenBucket, limits, store.Options{})
	place := s.Place(t)
	if s.Calls == nil {
		s.Calls = func(testing.TB, string) int64 { return 0 }
	}
	counted := s.Calls(t, place)
	got, took := callsDuring(stores, 2*waiters, func(i int) { acquire(t, buckets[i%2]) })
	// A caller that comes asks once, or is asked for with others. From then on, an instance makes one call for its share
	// and two for what is left on each tick, where a call for each waiting caller would make five hundred in all.
	if most := 2*waiters + 3*2*(took.Milliseconds()/period.Milliseconds()+2); got > most {
		t.Errorf("%d calls in %v, at most %d are right", got, took, most)
	}
	if counted = s.Calls(t, place) - counted; counted > got+2 {
		t.Errorf("the server has counted %d calls, the stores %d", counted, got)
	}
	t.Logf("%d waiters served in %v by %d calls", 2*waiters, took, got)
}

// farInstances tests that two instances 60 ms away from the store, whose callers wait all the time, use up a limit whose
// permits come back one by one, and that each gets a share. Without the rules of fairness for far stores, they use a third.
func farInstances(t *testing.T, s Subject, through string, network *testserver.Proxy) {
	stopwatch.Only(t)
	const long, callers = 4 * time.Second, 16
	limits := limitertest.Limits{Permits: 20, Period: 10 * time.Millisecond, TokensPerPeriod: 1, QueueLimit: 100}
	name := uniqueName("far")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var granted [2]atomic.Int64
	var all sync.WaitGroup
	for i := range granted {
		l := must(build(s.store(t, through, store.Options{}), name, limitertest.TokenBucket, limits, nil))(t)
		tryAcquire(t, l, 1)
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					if lease, err := l.Acquire(ctx, 1); err == nil && lease.Acquired() {
						granted[i].Add(1)
					}
				}
			})
		}
	}
	network.Delay(30 * time.Millisecond)
	time.Sleep(time.Second)
	from := [2]int64{granted[0].Load(), granted[1].Load()}
	begun := time.Now()
	time.Sleep(long)
	got := [2]int64{granted[0].Load() - from[0], granted[1].Load() - from[1]}
	due := int64(time.Since(begun) / limits.Period)
	network.Delay(0)
	stop()
	all.Wait()
	sum := got[0] + got[1]
	if sum > due+int64(limits.Permits) || sum < due/2 || min(got[0], got[1]) < sum/8 {
		t.Errorf("granted %v of %d", got, due)
	}
	t.Logf("granted %v of %d", got, due)
}

// callsDuring returns how many calls the stores make while so many goroutines run f, and how long that takes.
func callsDuring(stores [2]*store.Store, goroutines int, f func(i int)) (int64, time.Duration) {
	calls := func() int64 { return stores[0].Counters().Calls + stores[1].Counters().Calls }
	before, begun := calls(), time.Now()
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() { f(i) })
	}
	all.Wait()
	return calls() - before, time.Since(begun)
}

// callsOfManyHolders is callsOfManyWaiters for leases.
func callsOfManyHolders(t *testing.T, s Subject) {
	const waiters = 50
	stores, both := s.twoStores(t, limitertest.Concurrency, limitertest.Limits{Permits: 2, QueueLimit: waiters}, store.Options{})
	got, took := callsDuring(stores, 2*waiters, func(i int) {
		lease := acquire(t, both[i%2])
		time.Sleep(5 * time.Millisecond) // the work that needs the lease
		lease.Release()
	})
	// Each lease takes a call when it is the turn of the queue's head, and one to release it. Each release wakes both
	// instances, and the first calls of all can take any number of round trips.
	if most := int64(2*waiters*8) + 2*took.Milliseconds()/25; got > most {
		t.Errorf("%d calls for %d leases in %v, at most %d are right", got, 2*waiters, took, most)
	}
	t.Logf("%d leases in %v by %d calls", 2*waiters, took, got)
}
