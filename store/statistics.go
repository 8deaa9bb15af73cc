package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/heavyhitters"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// leaseCounts are the figures of this instance.
type leaseCounts struct {
	granted, failed atomic.Int64 // leases
	rejections      heavyhitters.Counter[string]
	freePlus1       atomic.Int64                       // of leases, not partitioned: 1 + the last answer to Statistics; 0: none yet
	final           atomic.Pointer[limiter.Statistics] // once closed
}

func (c *core) statistics(ctx context.Context, key string) limiter.Statistics {
	if final := c.count.final.Load(); final != nil {
		return *final
	}
	st := c.available(ctx, key)
	st.SuccessfulLeases, st.FailedLeases = c.count.granted.Load(), c.count.failed.Load()
	if ks := c.keys.lock(key, false); ks != nil {
		st.QueuedPermits = ks.queue.Permits()
		ks.mu.Unlock()
	}
	st.AvailablePermits += c.borrowed(key)
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
		if free, q, err := c.askFree(ctx, key); err == nil {
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

// askFree asks the store how many permits are available, and also returns the call.
func (c *core) askFree(ctx context.Context, key string) (int64, *calls.Call, error) {
	if c.leased {
		q, err := c.askForLease(ctx, key, 0, false)
		if err != nil {
			return 0, nil, err
		}
		return q.Reply.Definition.Permits - q.Reply.InUse, q, nil
	}
	q, err := c.ask(ctx, key, backend.Request{})
	if err != nil {
		return 0, nil, err
	}
	return q.Definition.Free(&q.State), q, nil
}
