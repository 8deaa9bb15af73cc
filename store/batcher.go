package store

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// A batcher carries what is asked of the store, one flight at a time: whatever comes while a
// flight is under way shares the next. So calls that come together cost one round trip,
// and a call that comes alone waits for nobody.
type batcher[T batchItem] struct {
	timeout  time.Duration         // a flight that takes longer is given up
	run      func(*roundTrip, []T) // one round trip, that calls flight.lands when it is over
	timedOut func(*roundTrip, []T) // what becomes of those on a flight that was given up
	onIdle   func()                // called when nothing is left
	mu       sync.Mutex
	pending  [leaseOps][]T // by what they are about; each flight is about one thing
	running  bool
}

// A batchItem says what it is about: releases go before renewals, and those before what is to
// be had, so that who asks after a release finds what came back.
//
// left reports whether the caller has left, so that nothing is to be asked any more; then it
// has been answered.
type batchItem interface {
	op() leaseOp
	abandoned() bool
}

// A roundTrip is one round trip. It lands once, or is given up once.
type roundTrip struct {
	state     atomic.Int32
	startedAt atomic.Int64 // the moment at which it began
}

func (f *roundTrip) start(m failureEpoch) { f.startedAt.Store(int64(m)) }

func (f *roundTrip) started() failureEpoch { return failureEpoch(f.startedAt.Load()) }

const (
	finished  = 1
	abandoned = 2
)

// finish returns false if the flight was given up, and counted as failed, before.
func (f *roundTrip) finish() bool { return f.state.CompareAndSwap(0, finished) }

func (f *roundTrip) abandon() bool { return f.state.CompareAndSwap(0, abandoned) }

// maxBatch bounds a flight: one statement or pipeline of that size takes about a
// millisecond.
const maxBatch = 256

// add hands x over. It does not wait.
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

// loop carries until nothing is left, or until its flight was given up: then another
// goroutine carries on.
func (l *batcher[T]) loop() {
	for {
		batch := l.next()
		if len(batch) == 0 {
			l.onIdle()
			return
		}
		if !runRoundTrip(l.timeout, batch, l.run, func(f *roundTrip, all []T) {
			go l.loop()
			l.timedOut(f, all)
		}) {
			return
		}
	}
}

// runRoundTrip carries a batch. It returns false if the flight was given up, which calls lost: also if the
// backend has panicked, or has ended the goroutine.
func runRoundTrip[T any](timeout time.Duration, batch []T, carry, lost func(*roundTrip, []T)) (ok bool) {
	f, returned := &roundTrip{}, false
	watch := time.AfterFunc(timeout, func() {
		if f.abandon() {
			lost(f, batch)
		}
	})
	defer func() {
		watch.Stop()
		if !returned {
			if p := recover(); p != nil {
				recovered.Report("store: Backend", p, debug.Stack())
			}
			if f.abandon() {
				lost(f, batch)
			}
		}
		ok = f.state.Load() == finished
	}()
	carry(f, batch)
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
		batch, n := all[:0:len(all)], 0 // in place: nothing else has this slice
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
