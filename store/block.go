package store

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/internal/answerby"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
	"github.com/weir-go/weir/store/internal/lending"
)

// keyBlocks are the permits of a key that this instance has borrowed to grant by itself. The lock of the keyState guards them.
type keyBlocks struct {
	lending.Blocks
	fetching *blockFetch // the fetch that is under way, or nil
	timer    *time.Timer // returns what is not used within lending.Lifetime; nil if nothing is borrowed
}

// errBlockGone is why a refund of borrowed permits is lost. A line has passed since, or the block was returned.
var errBlockGone = errors.New("what was borrowed is used up or was returned")

// A blockFetch borrows a block for all callers that need more than the blocks have. The other fields are valid once done
// is closed.
type blockFetch struct {
	done     chan struct{}
	err      error // why the store could not be asked
	late     bool  // lines have restored the whole block before it came
	rejected bool  // too few are available
	least    int64 // what the first caller needs; if rejected, so are all callers that need as much or more
	wait     time.Duration
}

// takeFromBlock takes n permits from the blocks. If they have too few, it borrows another block or, if that is not worth it, takes
// only the n permits from the store.
func (c *core) takeFromBlock(ctx context.Context, key string, n int) (limiter.Lease, error) {
	until := c.s.calls.Limit(ctx)
	for {
		ks := c.keys.lock(key, true)
		if ks == nil {
			return c.remote.take(ctx, key, n, 0)
		}
		lease, ok := ks.answerLocally(n, false)
		var fetch *blockFetch
		if !ok && n > 0 {
			fetch = ks.fetchBlock(n)
		}
		ks.mu.Unlock()
		switch {
		case ok:
			return lease, nil
		case fetch == nil:
			return c.remote.take(ctx, key, n, 0)
		}
		err := calls.Wait(ctx, until, fetch.done)
		if err == nil {
			err = fetch.err
		}
		if c.o.Outage == FailOpen && errors.Is(err, ErrUnavailable) { // what it admits counts if the store answers late
			c.s.background.Go(func() { _, _ = c.remote.take(c.s.background.Context(), key, n, 0) })
		}
		ctx = answerby.With(ctx, until) // a second question has no more time
		switch {
		case err != nil:
			return limiter.Lease{}, err
		case fetch.late:
			return c.remote.take(ctx, key, n, 0)
		case fetch.rejected && int64(n) >= fetch.least:
			c.s.count.decisions.Add(1)
			return custom.Rejected(fetch.wait, ""), nil
		}
	}
}

// fetchBlock returns the fetch that is under way. If there is none, it borrows a block in the background, so that the other callers
// get it if the first one leaves; nil if that is not worth it for n permits. The keyState is locked.
func (ks *keyState) fetchBlock(n int) *blockFetch {
	if ks.blocks == nil {
		ks.blocks = &keyBlocks{}
	}
	c, l, now := ks.c, ks.blocks, time.Now()
	if l.fetching != nil {
		return l.fetching
	}
	most := min(int64(c.o.Block), int64(c.limits().Permits)/4)
	if a := &ks.lastAnswer; ks.turns != nil && a.def != nil {
		most = min(most, ks.turns.AtMost(&a.def.Schedule, a.took(), now))
	}
	size, have := l.NextSize(most, now), l.Left(now)
	if size <= int64(n)-have {
		return nil
	}
	ks.giveBackUnused(l.Trim(now))
	ask := backend.Request{Min: int64(n) - have, Max: size, Block: true}
	b := &blockFetch{done: make(chan struct{}), least: int64(n)}
	l.fetching = b
	go func() {
		q, err := c.remote.ask(c.s.background.Context(), ks.key, ask)
		if err == nil {
			c.keys.learn(q)
		}
		ks.mu.Lock()
		defer ks.mu.Unlock()
		l.fetching = nil
		switch {
		case err == nil:
			ks.blockFetched(b, q)
		case c.s.background.Err() != nil: // the Store was closed; err would say that a caller's context has ended
			b.err = calls.Unavailable(limiter.ErrClosed)
		default:
			b.err = err
		}
		close(b.done)
	}()
	return b
}

// blockFetched processes the answer.
func (ks *keyState) blockFetched(b *blockFetch, q *calls.Call) {
	switch granted := q.Granted[0]; {
	case granted == backend.Rejected:
		b.rejected, b.wait = true, q.Wait(q.Requests[0].Min)
	case !ks.c.current(q) || ks.c.closed.Load(): // callers that need permits ask again, by the new limits
		ks.c.remote.undo(q, 0)
	default:
		l, now := ks.blocks, time.Now()
		l.Add(q.Definition, q.After[0].Receipt, granted, q.After[0].Missing, q.Now, q.Sent)
		l.SeeClock(ks.lastAnswer.now, ks.lastAnswer.sent) // of a request that was sent later and answered earlier
		if b.late = l.Left(now) == 0; b.late {
			l.NoneUsable()
		}
		if l.timer == nil {
			l.timer = time.AfterFunc(l.Expires(now), ks.blocksExpired)
		}
	}
}

// blocksExpired returns what is not used, lending.Lifetime after the last fetch.
func (ks *keyState) blocksExpired() {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	switch left := ks.blocks.Expires(time.Now()); {
	case ks.blocks.timer == nil: // returned meanwhile
	case left > 0:
		ks.blocks.timer.Reset(left)
	default: // a waiter may need more than the block had
		ks.returnBlocks()
		ks.freed()
	}
}

// returnBlocks returns all unused permits to the store. The keyState is locked.
func (ks *keyState) returnBlocks() {
	if ks.blocks == nil || ks.blocks.timer == nil {
		return
	}
	ks.blocks.timer.Stop()
	ks.blocks.timer = nil
	ks.giveBackUnused(ks.blocks.Drop(time.Now()))
}

func (ks *keyState) giveBackUnused(all []lending.Unused) {
	for _, u := range all {
		ks.c.remote.giveBack(backend.OpReturnBlock, ks.key, u.Definition, u.Permits, u.Receipt)
	}
}

// borrowed returns how many borrowed permits can be granted. The keyState is locked.
func (ks *keyState) borrowed(now time.Time) int64 {
	if ks.blocks == nil {
		return 0
	}
	return ks.blocks.Left(now)
}

// blockOwner owns the leases of permits granted from blocks.
type blockOwner struct{ ks *keyState }

// Release does nothing: the permits are spent.
func (o blockOwner) Release(int, int64) {}

// Remaining returns what the store had left at its last answer, and what the blocks have left.
func (o blockOwner) Remaining(int, int64) (int64, bool) {
	level, ok := o.Level(0, 0)
	return max(level.Remaining, 0), ok
}

// Level is that of the store at its last answer, with what the blocks have left.
func (o blockOwner) Level(int, int64) (limiter.Level, bool) {
	o.ks.mu.Lock()
	defer o.ks.mu.Unlock()
	if o.ks.lastAnswer.def == nil {
		return limiter.Level{}, false
	}
	now := time.Now()
	return limiter.Level{Remaining: o.ks.lastAnswer.free() + o.ks.borrowed(now), Full: o.ks.lastAnswer.untilFull(now)}, true
}

// Refund puts permits back into their block if that is possible.
func (o blockOwner) Refund(n int, tag int64) {
	o.ks.c.count.granted.Add(-1)
	if back := o.ks.putBack(int64(n), tag); back < int64(n) {
		o.ks.c.s.report(Event{Kind: EventRefundLost, Limiter: o.ks.c.name, Key: o.ks.key, Permits: int64(n) - back, Err: errBlockGone})
	}
}

// Correct is that of a grant.
func (o blockOwner) Correct(t limiter.Tenant, more int64) {
	o.ks.mu.Lock()
	defer o.ks.mu.Unlock()
	o.ks.correct(t, more)
}

// Adjust puts back the permits that cost does not need, and charges in the store what cost needs beyond the grant.
func (o blockOwner) Adjust(n int, tag int64, cost int) (int64, bool) {
	if cost <= n {
		o.ks.putBack(int64(n-cost), tag)
		return tag, true
	}
	o.ks.c.remote.takeMore(o.ks.key, int64(cost-n), func(*calls.Call) {})
	return lending.NoBlock, true // a part of it is not from the block
}

// putBack returns how many permits could be put back, and wakes waiting callers.
func (ks *keyState) putBack(n, tag int64) int64 {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	back := ks.blocks.PutBack(n, tag, time.Now())
	if back > 0 {
		ks.freed()
	}
	return back
}
