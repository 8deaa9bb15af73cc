package store

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// A lane carries what is asked of the store, one flight at a time: whatever comes while a
// flight is under way shares the next. So calls that come together cost one round trip,
// and a call that comes alone waits for nobody.
type lane[T passenger] struct {
	timeout time.Duration      // a flight that takes longer is given up
	fly     func(*flight, []T) // one round trip, that calls flight.lands when it is over
	lost    func(*flight, []T) // what becomes of those on a flight that was given up
	rests   func()             // called when nothing is left
	mu      sync.Mutex
	pending [whats][]T // by what they are about; each flight is about one thing
	flying  bool
}

// A passenger says what it is about: releases go before renewals, and those before what is to
// be had, so that who asks after a release finds what came back.
//
// left reports whether the caller has left, so that nothing is to be asked any more; then it
// has been answered.
type passenger interface {
	about() what
	left() bool
}

// A flight is one round trip. It lands once, or is given up once.
type flight struct {
	state atomic.Int32
	at    atomic.Int64 // the moment at which it began
}

func (f *flight) begins(m moment) { f.at.Store(int64(m)) }

func (f *flight) begun() moment { return moment(f.at.Load()) }

const (
	landed  = 1
	givenUp = 2
)

// lands returns false if the flight was given up, and counted as failed, before.
func (f *flight) lands() bool { return f.state.CompareAndSwap(0, landed) }

func (f *flight) giveUp() bool { return f.state.CompareAndSwap(0, givenUp) }

// most bounds a flight: one statement or pipeline of that size takes about a
// millisecond.
const most = 256

// add hands x over. It does not wait.
func (l *lane[T]) add(x T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := x.about()
	l.pending[w] = append(l.pending[w], x)
	if !l.flying {
		l.flying = true
		go l.run()
	}
}

// run carries until nothing is left, or until its flight was given up: then another
// goroutine carries on.
func (l *lane[T]) run() {
	for {
		batch := l.next()
		if len(batch) == 0 {
			l.rests()
			return
		}
		if !fly(l.timeout, batch, l.fly, func(f *flight, all []T) {
			go l.run()
			l.lost(f, all)
		}) {
			return
		}
	}
}

// fly carries a batch. It returns false if the flight was given up, which calls lost: also if the
// backend has panicked, or has ended the goroutine.
func fly[T any](timeout time.Duration, batch []T, carry, lost func(*flight, []T)) (ok bool) {
	f, returned := &flight{}, false
	watch := time.AfterFunc(timeout, func() {
		if f.giveUp() {
			lost(f, batch)
		}
	})
	defer func() {
		watch.Stop()
		if !returned {
			if p := recover(); p != nil {
				recovered.Report("store: Backend", p, debug.Stack())
			}
			if f.giveUp() {
				lost(f, batch)
			}
		}
		ok = f.state.Load() == landed
	}()
	carry(f, batch)
	returned = true
	return true
}

func (l *lane[T]) next() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.pending {
		all := l.pending[w]
		if len(all) == 0 {
			continue
		}
		batch, n := all[:0:len(all)], 0 // in place: nothing else has this slice
		for ; n < len(all) && len(batch) < most; n++ {
			if !all[n].left() {
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
	l.flying = false
	return nil
}

func (l *lane[T]) quiet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.flying
}
