package store

import (
	"context"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

func (c *core) statistics(ctx context.Context, key string) limiter.Statistics {
	c.mu.Lock()
	closed, final := c.closed.Load(), c.finalStatistics
	c.mu.Unlock()
	if closed {
		return final
	}
	return c.localStatistics(key, c.available(ctx, key))
}

// localStatistics adds the figures of this instance to what available has returned.
func (c *core) localStatistics(key string, st limiter.Statistics) limiter.Statistics {
	st.SuccessfulLeases, st.FailedLeases = c.granted.Load(), c.failed.Load()
	if ks := c.keys.lock(key, false); ks != nil {
		st.QueuedPermits = ks.queue.permits
		st.AvailablePermits += ks.dropUsedBlocks(time.Now())
		ks.mu.Unlock()
	}
	return st
}

// computeFinalStatistics returns the statistics of a limiter that is being closed. If the limiter was never used, it
// does not call the store, which would define the limiter there.
func (c *core) computeFinalStatistics() limiter.Statistics {
	available := limiter.Statistics{AvailablePermits: c.limits().Permits}
	if !c.partitioned && c.inForce.Load() != nil {
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
		c.freePlus1.Store(max(free, 0) + 1)
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
	last := c.limits().Permits
	if free := c.freePlus1.Load(); free > 0 {
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
