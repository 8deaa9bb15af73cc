package limitertest

import (
	"fmt"
	"math"

	"github.com/weir-go/weir/limiter"
)

var rangeCases = []testCase{
	{name: "a negative number of permits is an error, and takes nothing",
		rule: "Common 1", run: func(p *probe) {
			p.bothFail(-1, limiter.ErrPermitCount, "there is no such number of permits")
			p.granted(4, "a request out of range takes nothing")
		}},
	{name: "more permits than the limiter could ever grant are an error, not a rejection",
		rule: "Common 1", run: func(p *probe) {
			p.bothFail(5, limiter.ErrPermitCount, "the limit is 4")
			p.bothFail(math.MaxInt/2+1, limiter.ErrPermitCount, "the limit is 4")
			p.granted(4, "a request out of range takes nothing")
			p.bothFail(5, limiter.ErrPermitCount, "it stays an error when nothing is left")
		}},
	{name: "the whole limit in one piece is in range",
		rule: "Common 1", run: func(p *probe) {
			p.granted(4, "all are there")
			p.rejected(1, "all were taken")
			p.refill()
			p.served(p.acquire(4), "all came back")
		}},
	{name: "a long queue does not widen the range",
		rule: "Common 1", needs: Queue, limits: withQueue(math.MaxInt/8 + 1), run: func(p *probe) {
			p.bothFail(5, limiter.ErrPermitCount, "more than the limit can never be granted, however long it waits")
		}},
}

// bothFail expects that TryAcquire and Acquire return an error that matches target.
func (p *probe) bothFail(n int, target error, why string) {
	why = fmt.Sprintf("n is %d, and %s", n, why)
	p.tryAcquireFails(p.ctx, n, why, target)
	w := p.acquire(n)
	p.returns(w, why)
	p.isError(w.lease, w.err, why, target)
}
