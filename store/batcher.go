package store

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// A batcher sends items to the store, one round trip at a time: the items that arrive during a round trip share the
// next one. So items that arrive together cost one round trip, and an item that arrives alone is sent at once.
type batcher[T batchItem] struct {
	timeout  time.Duration         // a round trip that takes longer is abandoned
	run      func(*roundTrip, []T) // makes one round trip and calls finish when it has returned
	timedOut func(*roundTrip, []T) // answers the items of an abandoned round trip
	onIdle   func()                // called when no items are left
	mu       sync.Mutex
	pending  [leaseOps][]T // by op; the items of a round trip have the same op
	running  bool
}

// A batchItem has an op: releases are sent before renewals, and both before acquisitions, so that a caller that asks after
// a release finds what came back.
//
// abandoned reports whether the caller has left; then it has been answered, and the item is not sent.
type batchItem interface {
	op() leaseOp
	abandoned() bool
}

// A roundTrip is finished once or abandoned once.
type roundTrip struct {
	state     atomic.Int32
	startedAt atomic.Int64 // the failureEpoch in which it started
}

func (trip *roundTrip) start(m failureEpoch) { trip.startedAt.Store(int64(m)) }

func (trip *roundTrip) started() failureEpoch { return failureEpoch(trip.startedAt.Load()) }

const (
	finished  = 1
	abandoned = 2
)

// finish reports whether the round trip was not abandoned, and counted as failed, before.
func (trip *roundTrip) finish() bool { return trip.state.CompareAndSwap(0, finished) }

func (trip *roundTrip) abandon() bool { return trip.state.CompareAndSwap(0, abandoned) }

// maxBatch bounds a round trip: one statement or pipeline of that size takes about a millisecond.
const maxBatch = 256

// add does not wait.
func (l *batcher[T]) add(x T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := x.op()
	l.pending[w] = append(l.pending[w], x)
	if !l.running {
		l.running = true
		go l.loop()
	}
}

// loop sends until no items are left or a round trip is abandoned. In the second case another goroutine continues.
func (l *batcher[T]) loop() {
	for {
		batch := l.next()
		if len(batch) == 0 {
			l.onIdle()
			return
		}
		if !runRoundTrip(l.timeout, batch, l.run, func(trip *roundTrip, all []T) {
			go l.loop()
			l.timedOut(trip, all)
		}) {
			return
		}
	}
}

// runRoundTrip calls send with the batch. If that takes longer than timeout, panics or ends the goroutine, it calls
// lost and returns false.
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
		ok = trip.state.Load() == finished
	}()
	send(trip, batch)
	returned = true
	return true
}

func (l *batcher[T]) next() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.pending {
		all := l.pending[w]
		if len(all) == 0 {
			continue
		}
		batch, n := all[:0:len(all)], 0 // in place: nothing else uses this slice
		for ; n < len(all) && len(batch) < maxBatch; n++ {
			if !all[n].abandoned() {
				batch = append(batch, all[n])
			}
		}
		batch = slices.Clip(batch)
		if l.pending[w] = all[n:]; n == len(all) {
			l.pending[w] = nil
		}
		if len(batch) > 0 {
			return batch
		}
	}
	l.running = false
	return nil
}

func (l *batcher[T]) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.running
}
