package store

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// maxForecastWaiters is how many waiters a forecast computes one by one.
const maxForecastWaiters = 64

// waitBehind returns how long a newcomer waits for n permits if this instance's queue is served first and no other
// instance asks; 0 if not known. The keyState is locked.
func (ks *keyState) waitBehind(n int) time.Duration {
	k := &ks.lastAnswer
	if k.def == nil || k.def.Kind == backend.KindConcurrency {
		return 0
	}
	order := ks.c.queueing.Load().order
	overtakes := n == 0 || order == limiter.NewestFirst
	s, at, seen := k.state, k.now, 0
	left := ks.queue.permits
	for w := range ks.queue.all(order) {
		if w.n == 0 {
			continue // takes nothing
		}
		need := min(int64(w.n), k.def.Permits)
		wait := k.def.Wait(s, at, need)
		if mine := k.def.Wait(s, at, weight(n)); overtakes && mine < wait {
			at = saturate.Add(at, mine)
			return ks.sinceAnswer(at)
		}
		if seen++; seen > maxForecastWaiters {
			// Each waiter waits no longer than it takes to fill up once.
			full := backend.State{Schedule: s.Schedule, Tick: s.Tick, Missing: k.def.Permits, Taken: []backend.Segment{{Tick: s.Tick, Permits: k.def.Permits}}}
			at = saturate.Add(at, saturate.Mul(left+1, k.def.FullAt(full)-k.def.TickTime(s.Tick)))
			return ks.sinceAnswer(at)
		}
		at = saturate.Add(at, wait)
		s = k.def.Decide(s, at, []backend.Request{{Op: backend.OpCharge, Max: need}}, make([]int64, 1))
		left -= need
	}
	return ks.sinceAnswer(saturate.Add(at, k.def.Wait(s, at, weight(n))))
}

// sinceAnswer returns the time from now to a moment of the store's clock, at least 1 ns.
func (ks *keyState) sinceAnswer(at int64) time.Duration {
	return max(duration(at-ks.lastAnswer.now)-time.Since(ks.lastAnswer.got), 1)
}
