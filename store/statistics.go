package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// counters are what a Store has done since it was made.
type counters struct {
	calls, failures, decisions, cached, fromBlocks, outages atomic.Int64
}

// Counters are what a [Store] has done since it was made.
type Counters struct {
	Calls      int64 // round trips for decisions, leases and definitions
	Failures   int64 // those of them that failed
	Decisions  int64 // what was asked on them; more than Calls where calls were coalesced
	Cached     int64 // rejections that were answered from what was known
	FromBlocks int64 // grants of what had been borrowed
	Outages    int64 // answers given without the store because it was away
}

// Counters returns a snapshot.
func (s *Store) Counters() Counters {
	return Counters{
		Calls: s.count.calls.Load(), Failures: s.count.failures.Load(), Decisions: s.count.decisions.Load(),
		Cached: s.count.cached.Load(), FromBlocks: s.count.fromBlocks.Load(), Outages: s.count.outages.Load(),
	}
}

// Health says whether the store is there.
type Health struct {
	Err       error     // nil: the store is there; else why it, or the part that is away for the longest time, counts as away
	Since     time.Time // since when it is away
	Listening bool      // the store tells of what happens at other instances
	// Shards are the parts that were asked so far, sorted by name. The name "" stands for keys whose
	// part is not known, and is there only while those are away. Parts is empty for a backend that is
	// one part; see [backend.Sharded].
	Shards []ShardHealth
}

// Health returns at once, from what is known.
func (s *Store) Health() Health {
	h := Health{Listening: s.listening.Load()}
	for p := range s.eachShard {
		if o := p.breaker.away.Load(); o != nil && (h.Err == nil || o.since.Before(h.Since)) {
			h.Err, h.Since = o.err, o.since
		}
	}
	if s.shards.nameOf != nil {
		h.Shards = s.shardHealth()
	}
	return h
}

func (c *core) statistics(ctx context.Context, key string) limiter.Statistics {
	c.mu.Lock()
	closed, last := c.closed.Load(), c.finalStatistics
	c.mu.Unlock()
	if closed {
		return last
	}
	return c.localStatistics(key, c.available(ctx, key))
}

func (c *core) localStatistics(key string, available int64) limiter.Statistics {
	st := limiter.Statistics{AvailablePermits: available, SuccessfulLeases: c.granted.Load(), FailedLeases: c.failed.Load()}
	if ks := c.keys.lock(key, false); ks != nil {
		st.QueuedPermits = ks.queue.permits
		st.AvailablePermits += ks.blockPermits(time.Now())
		ks.mu.Unlock()
	}
	return st
}

// lastStatistics are for a limiter that is being closed. One that the store was never asked
// about is not made known to it now.
func (c *core) lastStatistics() limiter.Statistics {
	available := c.limits().Permits
	if !c.keyed && c.inForce.Load() != nil {
		available = c.available(c.s.ctx, "")
	}
	st := c.localStatistics("", available)
	st.QueuedPermits = 0
	return st
}

// available asks the store what could be taken; without it, what is known stands.
func (c *core) available(ctx context.Context, key string) int64 {
	if ctx.Err() != nil {
		return c.lastAvailable(key)
	}
	free, err := c.askAvailable(ctx, key)
	if err != nil {
		return c.lastAvailable(key)
	}
	if !c.keyed {
		c.lastFree.Store(max(free, 0) + 1)
	}
	return max(free, 0)
}

func (c *core) askAvailable(ctx context.Context, key string) (int64, error) {
	if c.leased {
		lc, err := c.askForLease(ctx, key, 0, false)
		if err != nil {
			return 0, err
		}
		return lc.request.Definition.Permits - lc.request.InUse, nil
	}
	q, err := c.ask(ctx, key, backend.Request{})
	if err != nil {
		return 0, err
	}
	return q.def.Permits - q.state.Missing, nil
}

// lastAvailable is what was available by what the store last said, which may be nothing.
func (c *core) lastAvailable(key string) int64 {
	last := c.limits().Permits
	if free := c.lastFree.Load(); free > 0 {
		last = min(last, free-1)
	}
	ks := c.keys.lock(key, false)
	if ks == nil {
		return last
	}
	defer ks.mu.Unlock()
	k := &ks.lastAnswer
	if k.def == nil {
		return last
	}
	s := k.def.Advance(k.state, k.now+time.Since(k.sent).Microseconds())
	return max(k.def.Permits-s.Missing, 0)
}
