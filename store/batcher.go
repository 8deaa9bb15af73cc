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

// A batcher sends items to the store in round trips. The rule: an item is sent at once if no round trip is under way.
// Otherwise it waits until none is or, if round trips take long, for a pause that is a fraction of one, and goes together
// with the items that came meanwhile. So a near store gets few round trips with many items, and an item for a far store
// takes one round trip and a pause, not two round trips.
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
	pending  [leaseOps][]T // by priority; all items of a round trip have the same priority
	since    time.Time     // when the oldest pending item began to wait
	loops    int           // how many goroutines are in loop
	underWay []*roundTrip
	begun    int64         // how many round trips have begun
	latest   int64         // of the round trips that have ended, the one that began last
	took     time.Duration // how long the latest took
	timer    *time.Timer   // starts another loop after the pause; nil before it is first used
	waiting  bool          // the timer is running
}

func (b *batcher[T]) init(s *Store, most int, run, timedOut func(*roundTrip, []T)) {
	b.timeout, b.onIdle, b.most, b.run, b.timedOut = s.o.CallTimeout, s.idleChanged, most, run, timedOut
	b.repeats = s.random != nil
}

type batchItem interface {
	// priority orders the items: those with the smallest number are sent first.
	priority() int
	// abandoned reports whether the caller has left. If so, the item has been answered and is not sent.
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

// overlaps reports whether a pause is worth its timer: the latest round trip took so long that another one goes beside the
// next. Nothing is known before the first has ended.
func (b *batcher[T]) overlaps() bool { return b.most > 1 && (b.took == 0 || b.took >= minPause) }

// pause returns how long items wait at most while fewer than most round trips are under way: with round trips of 8 ms
// and 5 at once, 1.6 ms.
func (b *batcher[T]) pause() time.Duration { return max(b.took/time.Duration(b.most), minPause) }

// add queues x and does not wait.
func (b *batcher[T]) add(x T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := x.priority()
	b.pending[p] = append(b.pending[p], x)
	switch full := len(b.pending[p])%maxBatch == 0; {
	case b.loops == 0, full && b.loops < b.most:
		b.loops++
		go b.loop(nil)
	case b.since.IsZero() && b.overlaps():
		b.since = time.Now()
		b.wait(b.pause())
	}
}

// wait starts the timer. The batcher is locked.
func (b *batcher[T]) wait(d time.Duration) {
	if b.timer == nil {
		b.timer = time.AfterFunc(d, b.endWait)
	} else {
		b.timer.Reset(d)
	}
	b.waiting = true
}

// endWait is called by the timer. If too many round trips are under way, the first of them that ends sends the items.
func (b *batcher[T]) endWait() {
	b.mu.Lock()
	start := b.waiting && b.loops < b.most
	b.waiting = false
	if start {
		b.loops++
	}
	b.mu.Unlock()
	if start {
		b.loop(nil)
	}
}

// loop sends until there are no items that must be sent now, or a round trip is abandoned. In the second case another
// goroutine continues. last is the round trip that this goroutine or the one before has made.
func (b *batcher[T]) loop(last *roundTrip) {
	for {
		if b.repeats {
			b.mu.Lock()
			b.end(last, time.Now())
			b.mu.Unlock()
			time.Sleep(time.Nanosecond) // until everything that happens at this instant has happened
		}
		trip, batch := b.next(last)
		if trip == nil {
			b.onIdle()
			return
		}
		if !runRoundTrip(trip, b.timeout, batch, b.run, func(trip *roundTrip, all []T) {
			go b.loop(trip)
			b.timedOut(trip, all)
		}) {
			return
		}
		last = trip
	}
}

// runRoundTrip calls send with the batch and reports whether the round trip was finished. If send takes longer than
// timeout, panics or ends the goroutine, the round trip is abandoned, and lost is called.
func runRoundTrip[T any](trip *roundTrip, timeout time.Duration, batch []T, send, lost func(*roundTrip, []T)) (ok bool) {
	returned := false
	watch := time.AfterFunc(timeout, func() {
		if trip.abandon() {
			lost(trip, batch)
		}
	})
	defer func() {
		watch.Stop()
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

// next ends the last round trip of a loop, and begins another one with the items returned. If there are no items that
// must be sent now, it returns nil, and the loop has ended.
func (b *batcher[T]) next(last *roundTrip) (*roundTrip, []T) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(last, now)
	if b.waiting {
		b.timer.Stop()
		b.waiting = false
	}
	var batch []T
	left := b.since.Add(b.pause()).Sub(now)
	switch {
	case len(b.underWay) == 0 || b.full() || b.overlaps() && left <= 0:
		batch = b.takeBatch(now)
	case b.overlaps():
		b.wait(left)
	}
	if len(batch) == 0 {
		b.loops--
		return nil, nil
	}
	b.begun++
	trip := &roundTrip{number: b.begun, begun: now}
	b.underWay = append(b.underWay, trip)
	return trip, batch
}

// end is called at the end of a round trip, and possibly again. The batcher is locked.
func (b *batcher[T]) end(last *roundTrip, now time.Time) {
	i := slices.Index(b.underWay, last)
	if i < 0 {
		return
	}
	b.underWay = slices.Delete(b.underWay, i, i+1)
	if last.number > b.latest {
		b.latest, b.took = last.number, now.Sub(last.begun)
	}
}

// oldest returns when the oldest round trip under way has begun, except trip; zero if there is none.
func (b *batcher[T]) oldest(trip *roundTrip) (begun time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, other := range b.underWay {
		if other != trip && (begun.IsZero() || other.begun.Before(begun)) {
			begun = other.begun
		}
	}
	return begun
}

// full reports whether the pending items fill a round trip. The batcher is locked.
func (b *batcher[T]) full() bool {
	for p := range b.pending {
		if len(b.pending[p]) >= maxBatch {
			return true
		}
	}
	return false
}

// takeBatch takes the items of a round trip; none if no items are left. The batcher is locked.
func (b *batcher[T]) takeBatch(now time.Time) (batch []T) {
	b.since = time.Time{}
	for p := range b.pending {
		all := b.pending[p]
		switch {
		case len(all) == 0:
			continue
		case len(batch) > 0:
			b.since = now
			continue
		case b.repeats:
			slices.SortStableFunc(all, func(x, y T) int { return strings.Compare(x.order(), y.order()) })
		}
		n := 0
		batch = all[:0:len(all)] // in place: nothing else uses this slice
		for ; n < len(all) && len(batch) < maxBatch; n++ {
			if !all[n].abandoned() {
				batch = append(batch, all[n])
			}
		}
		batch = slices.Clip(batch)
		if b.pending[p] = all[n:]; n == len(all) {
			b.pending[p] = nil
		} else {
			b.since = now
		}
	}
	if !b.since.IsZero() && b.overlaps() {
		b.wait(b.pause())
	}
	return batch
}

func (b *batcher[T]) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loops == 0
}

const (
	// batchersPerShard is how many batchers of one kind a shard has. All calls about one key use the same one.
	batchersPerShard = 4
	// maxRoundTrips is how many round trips of a batcher can be under way at once, unless the backend has too few
	// connections.
	maxRoundTrips = 8
)

// roundTripsOf returns how many round trips of a batcher can be under way at once. Another one would wait for a
// connection, while its items could have shared a round trip with later ones.
func roundTripsOf(b backend.Backend) int {
	if p, ok := b.(backend.Pooled); ok {
		return min(max(p.Connections()/batchersPerShard, 1), maxRoundTrips)
	}
	return maxRoundTrips
}

// batcherOf returns which batcher of its shard a key uses.
func batcherOf(c *core, key string) int {
	if c.s.random != nil { // in a simulation, which must not depend on the seed
		return int(fixedhash.String(c.name+key) % batchersPerShard)
	}
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(c.name)
	h.WriteString(key)
	return int(h.Sum64() % batchersPerShard)
}
