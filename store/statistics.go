package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/heavyhitters"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// leaseCounts are the figures of this instance.
type leaseCounts struct {
	granted, failed atomic.Int64 // leases
	rejections      heavyhitters.Counter[string]
	freePlus1       atomic.Int64                       // not partitioned: 1 + the last answer of the store to Statistics; 0: none yet
	final           atomic.Pointer[limiter.Statistics] // once closed
}

func (c *core) statistics(ctx context.Context, key string) limiter.Statistics {
	if final := c.count.final.Load(); final != nil {
		return *final
	}
	return c.localStatistics(key, c.available(ctx, key))
}

// localStatistics adds the figures of this instance to what available has returned.
func (c *core) localStatistics(key string, st limiter.Statistics) limiter.Statistics {
	st.SuccessfulLeases, st.FailedLeases = c.count.granted.Load(), c.count.failed.Load()
	if ks := c.keys.lock(key, false); ks != nil {
		st.QueuedPermits = ks.queue.Permits()
		st.AvailablePermits += ks.dropUsedBlocks(time.Now())
		ks.mu.Unlock()
	}
	return st
}

// computeFinalStatistics returns the statistics of a limiter that is being closed. If the limiter was never used, it
// does not call the store, which would define the limiter there.
func (c *core) computeFinalStatistics() limiter.Statistics {
	available := limiter.Statistics{AvailablePermits: int64(c.limits().Permits)}
	if !c.partitioned && c.keeper.InForce().Definition != nil {
		available = c.available(c.s.calls.Context(), "")
	}
	st := c.localStatistics("", available)
	st.QueuedPermits = 0
	return st
}

// available asks the store how many permits are available, and falls back to its last answer.
func (c *core) available(ctx context.Context, key string) limiter.Statistics {
	if ctx.Err() != nil {
		return limiter.Statistics{AvailablePermits: c.lastAvailable(key), LastKnown: true}
	}
	free, err := c.askAvailable(ctx, key)
	if err != nil {
		return limiter.Statistics{AvailablePermits: c.lastAvailable(key), LastKnown: true}
	}
	if !c.partitioned {
		c.count.freePlus1.Store(max(free, 0) + 1)
	}
	return limiter.Statistics{AvailablePermits: max(free, 0)}
}

func (c *core) askAvailable(ctx context.Context, key string) (int64, error) {
	if c.leased {
		q, err := c.askForLease(ctx, key, 0, false)
		if err != nil {
			return 0, err
		}
		return q.Reply.Definition.Permits - q.Reply.InUse, nil
	}
	q, err := c.ask(ctx, key, backend.Request{})
	if err != nil {
		return 0, err
	}
	return q.Definition.Free(&q.State), nil
}

// lastAvailable computes the available permits from the store's last answer, if there is one.
func (c *core) lastAvailable(key string) int64 {
	last := int64(c.limits().Permits)
	if free := c.count.freePlus1.Load(); free > 0 {
		last = min(last, free-1)
	}
	ks := c.keys.lock(key, false)
	if ks == nil {
		return last
	}
	defer ks.mu.Unlock()
	a := &ks.lastAnswer
	if a.def == nil {
		return last
	}
	s := a.def.Advanced(a.state, a.now+time.Since(a.sent).Microseconds())
	return max(a.def.Free(&s), 0)
}
