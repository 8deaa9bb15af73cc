package limitertest

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/weir-go/weir/limiter"
)

// peek calls Peek, which must give a decision. The lease is released and refunded, which must do nothing.
func (p *probe) peek(n int) limiter.Lease {
	lease, err := optional[limiter.Peeker](p, "Peek").Peek(p.ctx, n)
	if err != nil {
		p.fail(fmt.Sprintf("Peek(%d) gives a decision", n), describe(lease, err))
	}
	if lease.Acquired() && lease.Permits() != n {
		p.fail(fmt.Sprintf("a lease of Peek(%d) has so many permits", n), describe(lease, nil))
	}
	lease.Release()
	lease.Refund()
	p.settle()
	return lease
}

// foresees expects that Peek of n says what TryAcquire of n then does.
func (p *probe) foresees(n int, why string) {
	peeked := p.peek(n)
	lease, ok := p.grants(n)
	if peeked.Acquired() != ok || peeked.Reason() != lease.Reason() {
		p.fail(fmt.Sprintf("Peek(%d) says what TryAcquire does, %s: %s", n, describe(lease, nil), why), describe(peeked, nil))
	}
	if want, known := lease.RetryAfter(); known {
		p.retriesAfter(peeked, want, "Peek says what TryAcquire does: "+why)
	} else if !noRetryAfter(peeked) {
		p.fail("Peek says no RetryAfter where TryAcquire says none: "+why, describe(peeked, nil))
	}
}

// peekFails expects the same error of Peek as of TryAcquire.
func (p *probe) peekFails(ctx context.Context, n int, why string, targets ...error) {
	lease, err := optional[limiter.Peeker](p, "Peek").Peek(ctx, n)
	p.isError(lease, err, "Peek: "+why, targets...)
	p.tryAcquireFails(ctx, n, why, targets...)
}

var peekCases = []testCase{
	{name: "Peek says what TryAcquire does, and takes nothing",
		rule: "Common 14", needs: Peek, run: func(p *probe) {
			for range 3 {
				for n := 1; n <= 4; n++ {
					if lease := p.peek(n); !lease.Acquired() {
						p.fail(fmt.Sprintf("Peek(%d) is granted: nothing was taken", n), describe(lease, nil))
					}
				}
			}
			p.foresees(3, "it is new")
			p.foresees(2, "1 is left")
			p.foresees(1, "1 is left")
			p.rejected(1, "all were taken, and a lease of Peek gives nothing back")
			p.foresees(1, "all were taken")
			p.untilJustBefore(p.s.Unit)
			p.foresees(1, "nothing has come back")
			p.refill()
			p.foresees(4, "all came back")
		}},
	{name: "Peek of zero permits says whether one is there",
		rule: "Common 14", needs: Peek | ZeroPermits, run: func(p *probe) {
			p.foresees(0, "it is new")
			p.granted(4, "it is new")
			p.foresees(0, "all were taken")
		}},
	{name: "Peek counts nothing",
		rule: "Common 14", needs: Peek | Statistics, run: func(p *probe) {
			p.peek(1)
			p.granted(3, "it is new")
			p.peek(1)
			p.peek(2)
			_, _ = optional[limiter.Peeker](p, "Peek").Peek(p.ctx, 5)
			p.hasStatistics(1, 0, 1, 0, "3 were taken, and Peek is neither a success nor a failure")
		}},
	{name: "Peek does not end idleness",
		rule: "Common 14", needs: Peek | Idle, run: func(p *probe) {
			p.peek(1)
			p.until(p.s.Unit * 23 / 10)
			p.peek(4)
			p.idleSince(0, "it is unused")
		}},
	{name: "Peek sees the queue, and leaves it as it is",
		rule: "Common 14", needs: Peek | Queue, run: func(p *probe) {
			p.granted(3, "it is new")
			a, b := p.acquire(2), p.acquire(1)
			if lease := p.peek(1); lease.Acquired() {
				p.fail("Peek(1) is rejected: 1 is left, but waiters are before it", describe(lease, nil))
			}
			p.foresees(1, "1 is left, but waiters are before it")
			p.foresees(3, "waiters are before it")
			p.waits(a, "1 is left")
			p.waits(b, "it is behind the other")
			p.refill()
			p.served(a, "permits came back")
			p.served(b, "permits came back")
			p.foresees(1, "1 is left")
		}},
	{name: "newest first: Peek sees that a newcomer passes the queue",
		rule: "Common 14", needs: Peek | Queue | NewestFirst, limits: newestFirst(8), run: func(p *probe) {
			p.granted(3, "it is new")
			w := p.acquire(2)
			p.foresees(2, "1 is left")
			p.foresees(1, "1 is left")
			p.waits(w, "nothing is left")
		}},
	{name: "Peek has the errors of TryAcquire",
		rule: "Common 14", needs: Peek, kinds: []Kind{Concurrency, FixedWindow, SlidingWindow, TokenBucket, Calendar}, run: func(p *probe) {
			p.peekFails(p.ctx, -1, "it is negative", limiter.ErrPermitCount)
			p.peekFails(p.ctx, 5, "it is more than the limiter could ever grant", limiter.ErrPermitCount)
			p.peekFails(p.ctx, math.MaxInt, "it is more than the limiter could ever grant", limiter.ErrPermitCount)
			p.peekFails(endedContext(), 1, "the context is done", context.Canceled)
			p.peekFails(endedContext(), 5, "the range comes before the context", limiter.ErrPermitCount)
		}},
	{name: "Peek of a closed limiter is ErrClosed",
		rule: "Common 14", needs: Peek | Close, run: func(p *probe) {
			if err := p.l.(io.Closer).Close(); err != nil {
				p.fail("Close succeeds", err)
			}
			p.peekFails(p.ctx, 1, "it is closed", limiter.ErrClosed)
		}},
	{name: "Peek of an unlimited limiter is granted, and counts nothing",
		rule: "Common 14", kinds: []Kind{Unlimited}, needs: Peek, run: func(p *probe) {
			for _, n := range []int{0, 1, math.MaxInt} {
				p.foresees(n, "everything is granted")
			}
			p.peekFails(p.ctx, -1, "it is negative", limiter.ErrPermitCount)
			p.hasStatistics(math.MaxInt64, 0, 3, 0, "3 were granted")
		}},
	{name: "a limiter can be peeked at while others take (ConcurrentSafe)",
		rule: "Common 14", needs: Peek, run: func(p *probe) {
			peeker := optional[limiter.Peeker](p, "Peek")
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 100 {
					_, _ = peeker.Peek(p.ctx, 1)
				}
			}()
			for range 4 {
				p.granted(1, "4 were free, and Peek takes none")
			}
			<-done
			p.rejected(1, "4 were taken")
		}},
}
