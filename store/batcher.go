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
)

// A batcher sends items to the store, one round trip at a time: the items that arrive during a round trip share the
// next one. So items that arrive together cost one round trip, and an item that arrives alone is sent at once.
type batcher[T batchItem] struct {
	timeout  time.Duration         // a round trip that takes longer is abandoned
	run      func(*roundTrip, []T) // makes one round trip and calls finish when it has returned
	timedOut func(*roundTrip, []T) // answers the items of an abandoned round trip
	onIdle   func()                // called when no items are left
	// repeats is true in a simulation: the items that arrive at one instant go together, in an order that is always the
	// same, because goroutines add them in any.
	repeats bool

	mu      sync.Mutex
	pending [leaseOps][]T // by priority; all items of a round trip have the same priority
	running bool
}

func (b *batcher[T]) init(s *Store, run, timedOut func(*roundTrip, []T)) {
	b.timeout, b.onIdle, b.run, b.timedOut = s.o.CallTimeout, s.idleChanged, run, timedOut
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

// add queues x and does not wait.
func (b *batcher[T]) add(x T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := x.priority()
	b.pending[p] = append(b.pending[p], x)
	if !b.running {
		b.running = true
		go b.loop()
	}
}

// loop sends until no items are left or a round trip is abandoned. In the second case another goroutine continues.
func (b *batcher[T]) loop() {
	for {
		if b.repeats {
			time.Sleep(time.Nanosecond) // until everything that happens at this instant has happened
		}
		batch := b.next()
		if len(batch) == 0 {
			b.onIdle()
			return
		}
		if !runRoundTrip(b.timeout, batch, b.run, func(trip *roundTrip, all []T) {
			go b.loop()
			b.timedOut(trip, all)
		}) {
			return
		}
	}
}

// runRoundTrip calls send with the batch and reports whether the round trip was finished. If send takes longer than
// timeout, panics or ends the goroutine, the round trip is abandoned, and lost is called.
func runRoundTrip[T any](timeout time.Duration, batch []T, send, lost func(*roundTrip, []T)) (ok bool) {
	trip, returned := &roundTrip{}, false
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

// next returns the items of the next round trip; none if no items are left.
func (b *batcher[T]) next() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range b.pending {
		all := b.pending[p]
		if len(all) == 0 {
			continue
		}
		if b.repeats {
			slices.SortStableFunc(all, func(x, y T) int { return strings.Compare(x.order(), y.order()) })
		}
		batch, n := all[:0:len(all)], 0 // in place: nothing else uses this slice
		for ; n < len(all) && len(batch) < maxBatch; n++ {
			if !all[n].abandoned() {
				batch = append(batch, all[n])
			}
		}
		batch = slices.Clip(batch)
		if b.pending[p] = all[n:]; n == len(all) {
			b.pending[p] = nil
		}
		if len(batch) > 0 {
			return batch
		}
	}
	b.running = false
	return nil
}

func (b *batcher[T]) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.running
}

// batchersPerShard is how many round trips of one kind can be under way at once for each shard. All calls about one key
// use the same batcher.
const batchersPerShard = 4

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
