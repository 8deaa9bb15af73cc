package limiter

import (
	"sync"
	"sync/atomic"
	"time"
)

// A janitor calls work at the moment that was asked for, one call at a time. It has a timer only while a call is due.
//
// A limiter can be used in a testing/synctest bubble and outside of it. A bubble's timer never fires once the bubble
// has ended, and stopping it from outside ends the process. So a timer that was set in a bubble is never touched again;
// when it fires, it finds that it is an old one. In a bubble each request sets a timer, because the timer that is set
// can be of another bubble.
type janitor struct {
	work func(now int64) (next int64) // returns when it has to be called next, or never

	mu      sync.Mutex
	timer   *time.Timer
	turn    int   // the number of calls begun, by which a timer knows that it is an old one
	due     int64 // the earliest moment asked for: the one that timer is set for or, while work runs, one for afterwards
	running bool
	stopped bool
	err     error // the first error of closing a partition that was forgotten

	bubble atomic.Bool // the last timer was set in a bubble; written with mu held
}

// schedule asks for a call at that moment or before.
func (k *janitor) schedule(at int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(at)
}

// set is schedule for a janitor that is locked.
func (k *janitor) set(at int64) {
	if k.stopped || at == never {
		return
	}
	if k.running {
		k.due = min(k.due, at)
		return
	}
	now := moment()
	bubble := inBubble(now)
	switch {
	case k.timer == nil || bubble || k.bubble.Load():
		k.drop()
		turn := k.turn
		k.due = at
		k.bubble.Store(bubble)
		k.timer = time.AfterFunc(until(at, now), func() { k.run(turn) })
	case at < k.due:
		k.due = at
		k.timer.Reset(until(at, now))
	}
}

// drop stops the timer, unless it is a bubble's, and forgets it.
func (k *janitor) drop() {
	if k.timer != nil && !k.bubble.Load() {
		k.timer.Stop()
	}
	k.timer = nil
}

// run is the function of the timer. turn says which timer it is.
func (k *janitor) run(turn int) {
	k.mu.Lock()
	if k.stopped || k.running || turn != k.turn {
		k.mu.Unlock()
		return
	}
	k.turn++
	k.running, k.timer, k.due = true, nil, never
	k.mu.Unlock()

	next := moment() + replenishEvery // if work panics
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.running = false
		k.set(min(next, k.due))
	}()
	next = k.work(moment())
}

// failed keeps the first error of a limiter's Close.
func (k *janitor) failed(err error) {
	if err == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.err = err
	}
}

// stop ends the calls and returns the first error. A running call goes on to its end.
func (k *janitor) stop() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	k.drop()
	return k.err
}
