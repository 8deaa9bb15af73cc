package limitertest

import (
	"fmt"

	"github.com/weir-go/weir/limiter"
)

// statistics returns the limiter's statistics since the start.
func (p *probe) statistics() limiter.Statistics {
	s := optional[limiter.StatisticsProvider](p, "Statistics").Statistics()
	s.SuccessfulLeases -= p.before.SuccessfulLeases
	s.FailedLeases -= p.before.FailedLeases
	return s
}

// hasStatistics expects exactly these statistics, unless the limiter has none.
func (p *probe) hasStatistics(available, queued, successes, failures int64, why string) {
	if p.s.Lacks&Statistics != 0 {
		return
	}
	want := limiter.Statistics{
		AvailablePermits: available, QueuedPermits: queued,
		SuccessfulLeases: successes, FailedLeases: failures,
	}
	if got := p.statistics(); got != want {
		p.fail(fmt.Sprintf("the statistics are %+v: %s", want, why), fmt.Sprintf("%+v", got))
	}
}

var statisticsCases = []testCase{
	{name: "the statistics of a new limiter are its limit and zeros",
		rule: "Common 8", needs: Statistics, run: func(p *probe) {
			p.hasStatistics(4, 0, 0, 0, "it is unused")
		}},
	{name: "successes and failures are counted, errors are not",
		rule: "Common 8", needs: Statistics, limits: withQueue(0), run: func(p *probe) {
			p.granted(3, "it is new")
			p.served(p.acquire(1), "1 is left")
			p.hasStatistics(0, 0, 2, 0, "2 were granted")
			p.rejected(2, "nothing is left")
			p.rejectedWith(p.acquire(1), limiter.ReasonNoPermit, "nothing is left, and there is no queue")
			p.hasStatistics(0, 0, 2, 2, "2 were granted and 2 rejected")
			p.bothFail(-1, limiter.ErrPermitCount, "it is negative")
			_, _ = p.l.Acquire(endedContext(), 1)
			_, _ = p.l.TryAcquire(endedContext(), 1)
			p.hasStatistics(0, 0, 2, 2, "errors are neither successes nor failures")
		}},
	{name: "zeros are counted",
		rule: "Common 8", needs: Statistics | ZeroPermits, run: func(p *probe) {
			p.granted(0, "it is new")
			p.served(p.acquire(0), "it is new")
			p.granted(4, "zeros take nothing")
			p.rejected(0, "nothing is left")
			p.hasStatistics(0, 0, 3, 1, "3 were granted, of which 2 zeros, and a zero rejected")
		}},
	{name: "waiters are counted by their permits, and as successes when they are served",
		rule: "Common 8", needs: Statistics | Queue, run: func(p *probe) {
			w := p.fillQueue(0, 2, 3)
			p.hasStatistics(0, 5, 1, 0, "2 and 3 wait")
			p.refill()
			p.served(w[0], "permits came back")
			p.hasStatistics(2, 3, 2, 0, "3 wait")
			p.refill()
			p.served(w[1], "permits came back")
			p.hasStatistics(1, 0, 3, 0, "all were served")
		}},
	{name: "a cancelled wait is neither success nor failure",
		rule: "Common 8", needs: Statistics | Queue, run: func(p *probe) {
			w := p.fillQueue(0, 2, 3)
			p.cancels(w[0])
			p.hasStatistics(0, 3, 1, 0, "the first was cancelled")
			p.cancels(w[1])
			p.hasStatistics(0, 0, 1, 0, "both were cancelled")
		}},
	{name: "a waiter that is pushed out is a failure",
		rule: "Common 8", needs: Statistics | Queue | NewestFirst, limits: newestFirst(3), run: func(p *probe) {
			p.fillQueue(0, 1, 1)
			p.acquire(3)
			p.hasStatistics(0, 3, 1, 2, "two were pushed out")
		}},
	{name: "permits that came back are in the statistics without another call",
		rule: "Time", needs: Statistics, run: func(p *probe) {
			p.granted(3, "it is new")
			p.refill()
			p.hasStatistics(4, 0, 1, 0, "all came back")
		}},
}
