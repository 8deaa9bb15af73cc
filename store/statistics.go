package store

import (
	"context"
	"time"

	"github.com/weir-go/weir/limiter"
)

func (c *core) statistics(ctx context.Context, key string) limiter.Statistics {
	if final := c.count.final.Load(); final != nil {
		return *final
	}
	st := c.available(ctx, key)
	st.SuccessfulLeases, st.FailedLeases = c.count.granted.Load(), c.count.failed.Load()
	if ks := c.keys.lock(key, false); ks != nil {
		st.QueuedPermits = ks.queue.Permits()
		st.AvailablePermits += ks.borrowed(time.Now())
		ks.mu.Unlock()
	}
	return st
}

// finalStatistics returns the statistics of a limiter that is being closed. A limiter that was never used does not call the store,
// which would define the limiter there.
func (c *core) finalStatistics() limiter.Statistics {
	ctx, cancel := context.WithCancel(c.s.background.Context())
	defer cancel()
	if c.partitioned || c.keeper.InForce().Definition == nil {
		cancel()
	}
	st := c.statistics(ctx, "")
	st.QueuedPermits = 0
	return st
}

// available asks the store how many permits are available. If it does not answer, they are computed from its last answer.
func (c *core) available(ctx context.Context, key string) limiter.Statistics {
	if ctx.Err() == nil {
		if free, q, err := c.remote.askFree(ctx, key); err == nil {
			if !c.partitioned {
				c.count.freePlus1.Store(max(free, 0) + 1)
			}
			if ks := c.keys.lock(key, false); ks != nil {
				if !c.leased {
					ks.learn(q)
				}
				ks.mu.Unlock()
			}
			return limiter.Statistics{AvailablePermits: max(free, 0)}
		}
	}
	last := limiter.Statistics{AvailablePermits: int64(c.limits().Permits), LastKnown: true}
	if free := c.count.freePlus1.Load(); free > 0 {
		last.AvailablePermits = min(last.AvailablePermits, free-1)
	}
	if ks := c.keys.lock(key, false); ks != nil {
		if a := &ks.lastAnswer; a.def != nil {
			s := a.def.Advanced(a.state, a.now+time.Since(a.sent).Microseconds())
			last.AvailablePermits = max(a.def.Free(&s), 0)
		}
		ks.mu.Unlock()
	}
	return last
}
