package limitertest

import (
	"io"

	"github.com/weir-go/weir/limiter"
)

// close closes the limiter.
func (p *probe) close() {
	if err := optional[io.Closer](p, "Close").Close(); err != nil {
		p.fail("Close succeeds", err)
	}
	p.settle()
}

var closeCases = []testCase{
	{name: "Close can be called again",
		rule: "Common 6", needs: Close, run: func(p *probe) {
			p.close()
			p.close()
		}},
	{name: "a closed limiter answers ErrClosed",
		rule: "Common 6", needs: Close, run: func(p *probe) {
			p.close()
			for _, n := range []int{0, 1, 4} {
				if n == 0 && p.s.Lacks&ZeroPermits != 0 {
					continue
				}
				p.bothFail(n, limiter.ErrClosed, "it is closed")
			}
		}},
	{name: "Close rejects the waiters",
		rule: "Common 6", needs: Close | Queue, run: func(p *probe) {
			w := p.fillQueue(1, 2, 1, 3)
			p.close()
			for _, w := range w {
				p.rejectedWith(w, limiter.ReasonClosed, "the limiter was closed")
				if d, ok := w.lease.RetryAfter(); ok {
					p.fail("a closed limiter gives no RetryAfter: time does not help", d)
				}
			}
		}},
	{name: "Release after Close does nothing",
		rule: "Common 6", needs: Close | Statistics, run: func(p *probe) {
			lease := p.granted(3, "it is new")
			p.close()
			p.release(lease)
			p.hasStatistics(1, 0, 1, 0, "these were the last figures")
		}},
	{name: "after Close the last figures stay, with an empty queue",
		rule: "Common 6, 8", needs: Close | Queue | Statistics, run: func(p *probe) {
			p.fillQueue(1, 2, 3)
			p.rejected(4, "one is left")
			p.close()
			p.hasStatistics(1, 0, 1, 1, "the waiters are neither successes nor failures, and none is left")
			p.until(3 * p.s.Unit)
			p.hasStatistics(1, 0, 1, 1, "these were the last figures")
		}},
	{name: "a closed limiter cannot be reconfigured",
		rule: "Common 6", needs: reconfigurable | Close, run: func(p *probe) {
			p.close()
			p.isError(limiter.Lease{}, p.s.Reconfigure(p.l, p.limits), "it is closed", limiter.ErrClosed)
		}},
}
