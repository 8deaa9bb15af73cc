package limitertest

import (
	"context"
	"math"

	"github.com/weir-go/weir/limiter"
)

var unlimitedCases = []testCase{
	{name: "everything is granted",
		rule: "Unlimited", kinds: []Kind{Unlimited}, run: func(p *probe) {
			for _, n := range []int{0, 1, 1 << 30, math.MaxInt/2 + 2} {
				p.granted(n, "there is no limit").Release()
				p.served(p.acquire(n), "there is no limit")
			}
			p.bothFail(-1, limiter.ErrPermitCount, "there is no such number of permits")
			p.acquireFails(endedContext(), 1, "the context was done before", context.Canceled)
		}},
	{name: "an unlimited limiter is idle since its last use",
		rule: "Common 9", kinds: []Kind{Unlimited}, needs: Idle, run: func(p *probe) {
			p.until(p.s.Unit)
			p.idleSince(0, "it is unused")
			used := p.s.Unit + p.s.Tolerance
			p.granted(1, "there is no limit")
			p.until(3 * p.s.Unit)
			p.idleSince(used, "it was used then")
		}},
	{name: "a closed unlimited limiter answers ErrClosed",
		rule: "Common 6", kinds: []Kind{Unlimited}, needs: Close, run: func(p *probe) {
			p.close()
			p.close()
			p.bothFail(1, limiter.ErrClosed, "it is closed")
		}},
}
