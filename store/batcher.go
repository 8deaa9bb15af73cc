package store

import (
	"hash/maphash"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/fixedhash"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// A batcher sends items to the store in round trips. The rule: an item is sent at once, unless the latest round trip has
// begun less than a pause ago and is under way; then it waits for the end of either, and goes together with the items that
// came meanwhile. The pause is longer than a round trip to a near store, and a fraction of one to a far store. So a near
// store gets few round trips with many items, and an item for a far store takes one round trip and a pause, not two round
// trips. A round trip that hangs delays nothing but its own items, as long as fewer than most hang.
type batcher[T batchItem] struct {
	timeout  time.Duration         // a round trip that takes longer is abandoned
	run      func(*roundTrip, []T) // makes one round trip and calls finish when it has returned
	timedOut func(*roundTrip, []T) // answers the items of an abandoned round trip
	onIdle   func()                // called when no items are left
	most     int                   // how many round trips can be under way at once
	// repeats is true in a simulation: the items that arrive at one instant go together, in an order that is always the
	// same, because goroutines add them in any.
	repeats bool

	mu       sync.Mutex
	pending  []T
	loops    int        // how many goroutines are in loop
	starting bool       // one of them was started for the pending items
	young    *roundTrip // the latest round trip, if it is under way and began less than a pause ago
	underWay []*roundTrip
	begun    int64         // how many round trips have begun
	latest   int64         // of the round trips that have ended, the one that began last
	took     time.Duration // how long the latest took
}

func (b *batcher[T]) init(s *Store, most int, run, timedOut func(*roundTrip, []T)) {
	b.timeout, b.onIdle, b.most, b.run, b.timedOut = s.o.CallTimeout, s.idleChanged, most, run, timedOut
	b.repeats = s.random != nil
}

type batchItem interface {
	// abandoned reports whether the item is not sent: its caller has left, and it has been answered.
	abandoned() bool
	// order is what sorts the items of one instant in a simulation.
	order() string
}

// A roundTrip is either finished or abandoned, once.
type roundTrip struct {
	state      atomic.Int32
	startEpoch atomic.Int64 // the failureEpoch in which it started
	number     int64        // of the batcher's round trips; 0 without a batcher
	begun      time.Time
	watch      *time.Timer   // ends the pause, and then the round trip
	rest       time.Duration // the time from the end of the pause to the timeout; 0 after the pause
}

func (trip *roundTrip) start(e failureEpoch) { trip.startEpoch.Store(int64(e)) }

func (trip *roundTrip) epoch() failureEpoch { return failureEpoch(trip.startEpoch.Load()) }

const (
	tripFinished  = 1
	tripAbandoned = 2
)

// finish reports whether the round trip was not abandoned before. An abandoned round trip was counted as failed already.
func (trip *roundTrip) finish() bool { return trip.state.CompareAndSwap(0, tripFinished) }

func (trip *roundTrip) abandon() bool { return trip.state.CompareAndSwap(0, tripAbandoned) }

// maxBatch bounds a round trip: one statement or pipeline of that size takes about a millisecond.
const maxBatch = 256

// minPause is more than a near store takes for a round trip.
const minPause = time.Millisecond

// pause returns how long after a round trip the next one begins beside it: with round trips of 8 ms and 5 at once, 1.6 ms.
func (b *batcher[T]) pause() time.Duration {
	if b.most == 1 {
		return b.timeout
	}
	return min(max(b.took/time.Duration(b.most), minPause), b.timeout)
}

// add queues x and does not wait.
func (b *batcher[T]) add(x T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(b.pending, x)
	full := len(b.pending)%maxBatch == 0
	if (full || b.young == nil && !b.starting) && b.loops < b.most {
		b.loops++
		b.starting = true
		go b.loop(nil)
	}
}

// loop sends until no items must be sent now, or a round trip is abandoned. In the second case another goroutine
// continues. last is the round trip that this goroutine or the one before has made.
func (b *batcher[T]) loop(last *roundTrip) {
	for {
		if b.repeats {
			time.Sleep(time.Nanosecond) // until everything that happens at this instant has happened
		}
		trip, batch := b.next(last)
		if trip == nil {
			b.onIdle()
			return
		}
		if !runRoundTrip(trip, batch, b.run, b.lost) {
			return
		}
		last = trip
	}
}

// lost continues after an abandoned round trip.
func (b *batcher[T]) lost(trip *roundTrip, batch []T) {
	go b.loop(trip)
	b.timedOut(trip, batch)
}

// runRoundTrip calls send with the batch and reports whether the round trip was finished. If it was abandoned meanwhile,
// or if send panics or ends the goroutine, lost is called, once.
func runRoundTrip[T any](trip *roundTrip, batch []T, send, lost func(*roundTrip, []T)) (ok bool) {
	returned := false
	defer func() {
		trip.watch.Stop()
		if !returned {
			if p := recover(); p != nil {
				recovered.Report("store: Backend", p, debug.Stack())
			}
			if trip.abandon() {
				lost(trip, batch)
			}
		}
		ok = trip.state.Load() == tripFinished
	}()
	send(trip, batch)
	returned = true
	return true // replaced by the deferred function: the round trip may have been abandoned meanwhile
}

// next ends the last round trip of a loop, and begins another one with the items returned. If no items must be sent now,
// it returns nil, and the loop has ended.
func (b *batcher[T]) next(last *roundTrip) (*roundTrip, []T) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if last == nil {
		b.starting = false
	}
	b.end(last, now)
	var batch []T
	if b.young == nil && !b.starting || len(b.pending) >= maxBatch {
		batch = b.takeBatch()
	}
	if len(batch) == 0 {
		b.loops--
		return nil, nil
	}
	b.begun++
	trip := &roundTrip{number: b.begun, begun: now}
	b.underWay = append(b.underWay, trip)
	b.young = trip
	pause := b.pause()
	trip.rest = b.timeout - pause
	trip.watch = time.AfterFunc(pause, func() { b.watch(trip, batch) })
	return trip, batch
}

// watch is called at the end of the pause of a round trip, and at its timeout. At the end of the pause, the next round
// trip can begin. If too many are under way, the first of them that ends is followed by it.
func (b *batcher[T]) watch(trip *roundTrip, batch []T) {
	b.mu.Lock()
	if trip.rest == 0 {
		b.mu.Unlock()
		if trip.abandon() {
			b.lost(trip, batch)
		}
		return
	}
	trip.watch.Reset(trip.rest)
	trip.rest = 0
	if b.young == trip {
		b.young = nil
	}
	start := len(b.pending) > 0 && b.young == nil && !b.starting && b.loops < b.most
	if start {
		b.loops++
		b.starting = true
	}
	b.mu.Unlock()
	if start {
		b.loop(nil)
	}
}

// end is called at the end of a round trip. The batcher is locked.
func (b *batcher[T]) end(last *roundTrip, now time.Time) {
	i := slices.Index(b.underWay, last)
	if i < 0 {
		return
	}
	b.underWay = slices.Delete(b.underWay, i, i+1)
	if b.young == last {
		b.young = nil
	}
	if last.number > b.latest {
		b.latest, b.took = last.number, now.Sub(last.begun)
	}
}

// takeBatch takes the items of a round trip; none if no items are left. The batcher is locked.
func (b *batcher[T]) takeBatch() (batch []T) {
	all := b.pending
	if b.repeats {
		slices.SortStableFunc(all, func(x, y T) int { return strings.Compare(x.order(), y.order()) })
	}
	n := 0
	batch = all[:0:len(all)] // in place: nothing else uses this slice
	for ; n < len(all) && len(batch) < maxBatch; n++ {
		if !all[n].abandoned() {
			batch = append(batch, all[n])
		}
	}
	if b.pending = all[n:]; n == len(all) {
		b.pending = nil
	}
	return slices.Clip(batch)
}

func (b *batcher[T]) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loops == 0
}

const (
	// maxBatchers is how many batchers of one kind a shard has at most. All calls about one key use the same one.
	maxBatchers = 4
	// maxRoundTrips is how many round trips of a batcher can be under way at once, if there are enough connections.
	maxRoundTrips = 8
)

// batching returns how many batchers of one kind a shard has, and how many round trips of each can be under way at once.
// Together that is half of the backend's connections at most. A batcher has two round trips, rather than a shard twice as
// many batchers: with one, an item waits for the round trip under way and then for its own.
func batching(b backend.Backend) (batchers, roundTrips int) {
	half := maxBatchers * maxRoundTrips
	if p, ok := b.(backend.Pooled); ok {
		half = max(p.Connections()/2, 1)
	}
	batchers = min(max(half/2, 1), maxBatchers)
	return batchers, min(half/batchers, maxRoundTrips)
}

// batcherOf returns which batcher of its shard a key uses.
func batcherOf(c *core, key string) int {
	if c.s.random != nil { // in a simulation, which must not depend on the seed
		return int(fixedhash.String(c.name+key) % uint64(c.s.batchers))
	}
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(c.name)
	h.WriteString(key)
	return int(h.Sum64() % uint64(c.s.batchers))
}
