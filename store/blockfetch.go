package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// errBlockGone is why a refund of borrowed permits is lost. A line has passed since, or the block was returned.
var errBlockGone = errors.New("what was borrowed is used up or was returned")

// A blockFetch borrows a block for all callers that need more than the blocks have. The other fields are valid once done
// is closed.
type blockFetch struct {
	done      chan struct{}
	err       error // why the store could not be asked
	least     int64 // what the first caller needs; if rejected, so are all callers that need as much or more
	rejected  bool  // too few are available
	wait      time.Duration
	available bool // with n == 0: a permit is available
}

// takeFromBlock takes n permits from the blocks, and borrows another block if they have too few.
func (c *core) takeFromBlock(ctx context.Context, key string, n int) (limiter.Lease, error) {
	limit := c.s.calls.Limit(ctx)
	for {
		ks := c.keys.lock(key, true)
		if ks == nil {
			return c.takeFromStore(ctx, key, n)
		}
		lease, ok := ks.answerLocally(n)
		if ks.blocks == nil {
			ks.blocks = &blockList{}
		}
		fetch := ks.blocks.fetching
		if !ok && fetch == nil {
			fetch = ks.fetchBlock(n)
		}
		ks.mu.Unlock()
		if ok {
			return lease, nil
		}
		if err := calls.Wait(ctx, limit, fetch.done); err != nil {
			return limiter.Lease{}, err
		}
		switch {
		case fetch.err != nil:
			return limiter.Lease{}, fetch.err
		case fetch.rejected && weight(n) >= fetch.least:
			c.s.count.decisions.Add(1)
			return custom.Rejected(fetch.wait, ""), nil
		case n == 0 && fetch.available:
			c.s.count.decisions.Add(1)
			return custom.Granted(0, nil), nil
		}
	}
}

// fetchBlock borrows a block in the background, so that the other callers get it if the first one leaves. The keyState
// is locked.
func (ks *keyState) fetchBlock(n int) *blockFetch {
	l := ks.blocks
	ask := ks.nextBlockRequest(n)
	b := &blockFetch{done: make(chan struct{}), least: weight(n)}
	l.fetching = b
	go func() {
		q, err := ks.c.ask(ks.c.s.calls.Context(), ks.key, ask)
		ks.mu.Lock()
		defer ks.mu.Unlock()
		l.fetching = nil
		switch {
		case err == nil:
			ks.blockFetched(b, q)
		case ks.c.s.calls.Context().Err() != nil: // the Store was closed; err would say that a caller's context has ended
			b.err = calls.Unavailable(limiter.ErrClosed)
		default:
			b.err = err
		}
		close(b.done)
	}()
	return b
}

// nextBlockRequest returns what to ask for. The size of a block doubles if the last one was used up within a tenth of
// blockLifetime, and is halved if it was not used up.
func (ks *keyState) nextBlockRequest(n int) backend.Request {
	c, l, now := ks.c, ks.blocks, time.Now()
	if n == 0 {
		return backend.Request{}
	}
	switch since := now.Sub(l.fetchedAt); {
	case since > blockLifetime:
		l.nextSize /= 2
	case since < blockLifetime/10:
		l.nextSize *= 2
	}
	l.nextSize = min(l.nextSize, int64(c.o.Block), int64(c.limits().Permits/4))
	if a := &ks.lastAnswer; ks.turns != nil && a.def != nil {
		l.nextSize = min(l.nextSize, ks.turns.AtMost(&a.def.Schedule, a.took(), now))
	}
	l.nextSize = max(l.nextSize, 1)
	l.fetchedAt = now
	least := max(int64(n)-ks.dropUsedBlocks(now), 1)
	return backend.Request{Min: least, Max: max(least, l.nextSize), Block: true}
}

// blockFetched processes the answer.
func (ks *keyState) blockFetched(b *blockFetch, q *calls.Call) {
	c, l := ks.c, ks.blocks
	newest := ks.learn(q)
	current := c.keeper.InForce().Definition == q.Definition && !c.closed.Load()
	switch ask := q.Requests[0]; {
	case q.Granted[0] == backend.Rejected:
		b.rejected, b.wait = true, q.Wait(ask.Min)
		if current && newest {
			ks.rejection = rememberedRejection{least: b.least, until: q.Sent.Add(b.wait)}
		}
	case !ask.Block:
		b.available = true
	case !current: // callers that need permits ask again, by the new limits
		c.undo(q, 0)
	default:
		l.add(ks, q)
		c.s.returner.add(ks)
	}
}

// add makes a block of what was granted.
func (l *blockList) add(ks *keyState, q *calls.Call) {
	l.serial++
	top := q.After[0].Missing
	b := block{serial: l.serial, def: q.Definition, receipt: q.After[0].Receipt, top: top, next: top - q.Granted[0], now: q.Now, sent: q.Sent}
	b.low = b.next
	l.blocks = append(l.blocks, b)
}

// A blockReturner returns the blocks that were not used within blockLifetime. It has a goroutine while
// any permits are borrowed.
type blockReturner struct {
	s       *Store
	mu      sync.Mutex
	keys    map[*keyState]struct{}
	running bool
}

// blockLifetime is how long borrowed permits can be granted. A block is sized to be used up earlier.
const blockLifetime = time.Second

func (r *blockReturner) add(ks *keyState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil {
		r.keys = map[*keyState]struct{}{}
	}
	r.keys[ks] = struct{}{}
	if !r.running {
		r.running = true
		go r.loop()
	}
}

// loop runs while anything is borrowed.
func (r *blockReturner) loop() {
	pause := blockLifetime
	for r.s.calls.Sleep(pause) {
		if pause = r.returnDue(time.Now()); pause == 0 {
			return
		}
	}
}

// returnDue returns to the store the blocks that have reached blockLifetime. The result is the time until the next blocks
// reach it, 0 if nothing is borrowed.
func (r *blockReturner) returnDue(now time.Time) time.Duration {
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.keys))
	r.mu.Unlock()
	pause := blockLifetime
	for _, ks := range all {
		ks.mu.Lock()
		left := blockLifetime - now.Sub(ks.blocks.fetchedAt)
		if left <= 0 {
			ks.returnBlocks()
		}
		if ks.dropUsedBlocks(now) == 0 {
			r.remove(ks)
		} else {
			pause = min(pause, left)
		}
		ks.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.keys) == 0 {
		r.running = false
		return 0
	}
	return max(pause, blockLifetime/20)
}

func (r *blockReturner) remove(ks *keyState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.keys, ks)
}

// returnBlocks returns all unused permits to the store. The keyState is locked.
func (ks *keyState) returnBlocks() {
	if ks.blocks.empty() {
		return
	}
	now := time.Now()
	for i := len(ks.blocks.blocks) - 1; i >= 0; i-- {
		b := &ks.blocks.blocks[i]
		if n := b.dropRestored(now); n > 0 {
			ks.c.giveBack(backend.OpReturnBlock, ks.key, b.def, n, b.receipt)
		}
	}
	ks.blocks.blocks = nil
}
