package store

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/limiter"
)

const (
	// mostJitter is how much later than it could a waiter asks again that has lost to
	// another instance before.
	mostJitter = 50 * time.Millisecond
	// pollOften and pollRarely are how often a concurrency limiter is asked that is waited
	// for: where nobody tells of releases, and where somebody does but may fail to.
	pollOften  = 50 * time.Millisecond
	pollRarely = time.Second
)

// rest waits for that long, or until there is a reason to ask earlier. Instances that wait
// for the same permits are told to come at the same time, and only one gets them: who has
// lost several times in a row comes a little later each time, so that there is no storm.
func (ce *cell) rest(wait time.Duration, lost int) (full bool) {
	if lost > 1 && !ce.c.lends { // who polls does so at random times
		most := min(min(wait, mostJitter)*time.Duration(min(lost, 8)), mostJitter)
		wait = saturated(wait, time.Duration(rand.Int64N(int64(most)+1)))
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ce.wakeup:
		return false
	}
}

func saturated(a, b time.Duration) time.Duration { return time.Duration(addUp(int64(a), int64(b))) }

// serve asks for those who wait, in their order; zeros says that somebody among them waits
// for none. It returns how long it takes until it is worth asking again, and whether
// anybody was served.
func (ce *cell) serve(ws []*waiter, zeros bool) (wait time.Duration, served bool) {
	c := ce.c
	if c.lends || c.o.Block > 1 || c.s.partOf(c.name, ce.key).guard.err() != nil {
		return ce.serveOneByOne(ws, zeros)
	}
	asks := make([]Ask, 0, len(ws)+1)
	if zeros {
		asks = append(asks, Ask{})
	}
	first := len(asks)
	for i, w := range ws {
		asks = append(asks, Ask{Min: int64(w.n), Max: int64(w.n), IfPrevious: i > 0})
	}
	q, err := c.ask(c.s.ctx, ce.key, asks...)
	if err != nil {
		return ce.serveOneByOne(ws, zeros)
	}
	ce.mu.Lock()
	ce.learn(q)
	ce.mu.Unlock()
	if zeros && q.granted[0] != Rejected {
		ce.serveZeros(limiter.Granted(0, nil))
		zeros, served = false, true
	}
	for i, w := range ws {
		if q.granted[first+i] == Rejected {
			return ce.until(w.n, zeros), served
		}
		if !ce.deliver(w, q.lease(first+i)) {
			q.undo(first + i)
		}
		served = true
	}
	if !served {
		return ce.until(0, true), false
	}
	return 0, true
}

// until is how long n permits take to come back, or the first, if somebody waits for none.
func (ce *cell) until(n int, zeros bool) time.Duration {
	if zeros {
		n = 0
	}
	return ce.waitFor(n)
}

// serveOneByOne is serve where one call cannot ask for several in order.
func (ce *cell) serveOneByOne(ws []*waiter, zeros bool) (wait time.Duration, served bool) {
	wait = math.MaxInt64
	if zeros {
		lease, err := ce.askFor(0)
		if err == nil && answers(lease) {
			ce.serveZeros(lease)
			wait, served = 0, true
		} else {
			wait = ce.pause(lease)
		}
	}
	for _, w := range ws {
		lease, err := ce.askFor(w.n)
		switch {
		case errors.Is(err, limiter.ErrPermitCount):
			lease = limiter.Rejected(0, limiter.ReasonLimitLowered)
		case err != nil:
			return pollOften, served // closed, and whoever closes it sends everybody away
		case !answers(lease):
			if pause := ce.pause(lease); served && wait == 0 || pause < wait {
				wait = pause
			}
			return wait, served
		}
		if !ce.deliver(w, lease) {
			drop(lease)
		}
		wait, served = 0, true
	}
	return wait, served
}

// answers tells whether whoever would wait is to have the lease: one that was merely rejected
// waits, or goes on waiting.
func answers(lease limiter.Lease) bool {
	return lease.Acquired() || lease.Reason() == limiter.ReasonUnavailable
}

// drop gives back what nobody was there to have.
func drop(lease limiter.Lease) {
	if lease, ok := lease.Adjust(0); !ok {
		lease.Release()
	}
}

func (ce *cell) askFor(n int) (limiter.Lease, error) {
	return ce.c.take(ce.c.s.ctx, ce.key, n, true)
}

// pause is how long to wait after a rejection.
func (ce *cell) pause(rejected limiter.Lease) time.Duration {
	poll := pollOften
	if ce.c.s.heard.Load() {
		poll = pollRarely
	}
	if d, ok := rejected.RetryAfter(); ok && (d < poll || !ce.c.lends) {
		return d
	}
	return poll/2 + time.Duration(rand.Int64N(int64(poll)))
}

// deliver hands a lease to a waiter. It returns false if that has left.
func (ce *cell) deliver(w *waiter, lease limiter.Lease) bool {
	ce.mu.Lock()
	defer ce.mu.Unlock()
	return ce.queue.answer(w, lease)
}

func (ce *cell) serveZeros(lease limiter.Lease) {
	ce.mu.Lock()
	defer ce.mu.Unlock()
	for w := range ce.queue.all(limiter.OldestFirst) {
		if w.n == 0 {
			ce.queue.answer(w, lease)
		}
	}
}
