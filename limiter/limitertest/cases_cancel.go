package limitertest

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/limiter"
)

// cancels ends the context of w, and expects that w leaves at once, with the cause.
func (p *probe) cancels(w *waiter) {
	w.cancel(errCause)
	p.settle()
	p.returns(w, "its context ended")
	p.isError(w.lease, w.err, "its context ended", context.Canceled, errCause)
}

var cancelCases = []testCase{
	{name: "a waiter whose context ends leaves at once with the context's error and cause",
		rule: "Common 5", needs: Queue, run: func(p *probe) {
			w := p.fillQueue(0, 1, 2, 1)
			p.cancels(w[1])
			p.waits(w[0], "it was not cancelled")
			p.waits(w[2], "it was not cancelled")
		}},
	{name: "a waiter whose deadline passes leaves then",
		rule: "Common 5", needs: Queue, run: func(p *probe) {
			p.granted(4, "it is new")
			deadline := p.start.Add(p.s.Unit / 2)
			ctx, cancel := context.WithDeadlineCause(p.ctx, deadline, errCause)
			defer cancel()
			w := p.acquireWith(ctx, 1)
			p.untilJustBefore(p.s.Unit / 2)
			p.waits(w, "the deadline is yet to come")
			p.until(p.s.Unit / 2)
			p.returns(w, "the deadline is past")
			p.isError(w.lease, w.err, "the deadline is past", context.DeadlineExceeded, errCause)
			if late := w.ended.Sub(deadline); late > p.s.Tolerance {
				p.note("it leaves at its deadline", late.String()+" late")
			}
		}},
	{name: "the queue room of a cancelled waiter is free at once",
		rule: "Common 5", needs: Queue, limits: withQueue(3), run: func(p *probe) {
			w := p.fillQueue(0, 1, 2)
			p.rejectedWith(p.acquire(1), limiter.ReasonQueueLimit, "3 of 3 wait")
			p.cancels(w[1])
			p.waits(p.acquire(2), "the room of the cancelled one is free")
			p.cancels(w[0])
			p.waits(p.acquire(1), "the room of the cancelled one is free")
		}},
	{name: "when the head leaves, waiters that can be served are served at once",
		rule: "Common 5", needs: Queue, run: func(p *probe) {
			w := p.fillQueue(2, 3, 1, 1, 1)
			p.cancels(w[0])
			p.served(w[1], "2 are left, and the waiter that held it up has left")
			p.served(w[2], "1 is left")
			p.waits(w[3], "nothing is left")
		}},
	{name: "newest first: when the head leaves, waiters that can be served are served at once",
		rule: "Common 5", needs: Queue | NewestFirst, limits: newestFirst(8), run: func(p *probe) {
			w := p.fillQueue(1, 2, 3)
			p.cancels(w[1])
			p.waits(w[0], "it needs 2, and 1 is left")
			p.refill()
			p.served(w[0], "permits came back")
		}},
	{name: "a cancelled waiter takes nothing with it",
		rule: "Common 5", needs: Queue, run: func(p *probe) {
			for _, w := range p.fillQueue(1, 2, 3, 3) {
				p.cancels(w)
			}
			p.granted(1, "no other caller took any")
			p.rejected(1, "3 were taken before")
			p.refill()
			p.granted(4, "no other caller took any")
		}},
	{name: "a cancel and a grant at the same time are counted by the outcome",
		rule: "Common 8", needs: Queue | Statistics | fakeTime, run: func(p *probe) {
			successes := int64(0)
			for range 50 {
				p.granted(4, "all came back")
				successes++
				w := p.acquire(3)
				units := time.Since(p.start)/p.s.Unit + 1
				meet := p.start.Add(units * p.s.Unit)
				stop := time.AfterFunc(time.Until(meet), func() { w.cancel(errCause) })
				p.refillAt(units)
				stop.Stop()
				p.returns(w, "it was served, or cancelled")
				available := int64(4)
				if w.err == nil {
					p.served(w, "there was no error")
					successes++
					available = 1
				} else if !errors.Is(w.err, errCause) || w.lease.Acquired() {
					p.fail("it is served, or has the context's error", describe(w.lease, w.err))
				}
				p.hasStatistics(available, 0, successes, 0, "an error is no success, and takes nothing")
				p.refill()
			}
		}},
}

// refillAt lets permits come back at that many Units after the start.
func (p *probe) refillAt(units time.Duration) {
	if p.s.Kind != Concurrency {
		p.until(units * p.s.Unit)
		return
	}
	time.Sleep(time.Until(p.start.Add(units * p.s.Unit)))
	p.refill()
}
