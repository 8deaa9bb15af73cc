package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// errReturned is why a refund of lent permits is lost.
var errReturned = errors.New("what was borrowed is used up or was returned")

// A borrowing is under way for all who need more than is there. The rest is there once done
// is closed.
type borrowing struct {
	done     chan struct{}
	err      error // the store could not be asked
	n        int64 // so many, and more,
	rejected bool  // cannot be had
	wait     time.Duration
	free     bool // n == 0: something is left
}

// borrow takes n permits from what was borrowed, and borrows more where that is too little.
func (c *core) borrow(ctx context.Context, key string, n int) (limiter.Lease, error) {
	limit := time.NewTimer(c.s.o.CallTimeout)
	defer limit.Stop()
	for {
		ce := c.cells.lock(key, true)
		if ce == nil {
			return c.takeRemotely(ctx, key, n)
		}
		lease, ok := ce.locally(n)
		under := ce.loan.under
		if !ok && under == nil {
			under = ce.borrowMore(n)
		}
		ce.mu.Unlock()
		if ok {
			return lease, nil
		}
		if err := wait(ctx, limit, under.done); err != nil {
			return limiter.Lease{}, err
		}
		switch {
		case under.err != nil:
			return limiter.Lease{}, under.err
		case under.rejected && weight(n) >= under.n:
			return limiter.Rejected(under.wait, ""), nil
		case n == 0 && under.free:
			return limiter.Granted(0, nil), nil
		}
	}
}

// borrowMore asks for more, in the background: whoever began it may leave, and the others
// have what came of it. The cell is locked.
func (ce *cell) borrowMore(n int) *borrowing {
	l := &ce.loan
	ask := ce.nextLoan(n)
	b := &borrowing{done: make(chan struct{}), n: weight(n)}
	l.under = b
	go func() {
		q, err := ce.c.ask(ce.c.s.ctx, ce.key, ask)
		ce.mu.Lock()
		defer ce.mu.Unlock()
		l.under = nil
		switch {
		case err == nil:
			ce.borrowed(b, q)
		case ce.c.s.ctx.Err() != nil: // it is no caller's context that has ended
			b.err = unavailable(limiter.ErrClosed)
		default:
			b.err = err
		}
		close(b.done)
	}()
	return b
}

// nextLoan returns what to ask for. The more often something is borrowed, the more it is.
func (ce *cell) nextLoan(n int) backend.Request {
	c, l, now := ce.c, &ce.loan, time.Now()
	if n == 0 {
		return backend.Request{}
	}
	switch since := now.Sub(l.at); {
	case since > unusedFor:
		l.size /= 2
	case since < unusedFor/10:
		l.size *= 2
	}
	l.size = max(min(l.size, int64(c.o.Block), c.limits().Permits/4, ce.rivals.most(now)), 1)
	l.at = now
	least := max(int64(n)-ce.left(now), 1)
	return backend.Request{Min: least, Max: max(least, l.size), Block: true}
}

// borrowed enters the answer.
func (ce *cell) borrowed(b *borrowing, q *call) {
	c, l := ce.c, &ce.loan
	ce.learn(q)
	current := c.inForce.Load().Definition == q.def && !c.closed.Load()
	switch ask := q.asks[0]; {
	case q.granted[0] == backend.Rejected:
		b.rejected, b.wait = true, q.wait(ask.Min)
		if current {
			ce.reject = rejection{least: b.n, until: q.sent.Add(b.wait)}
		}
	case !ask.Block:
		b.free = true
	case !current: // new limits are no matter of old blocks: whoever needs some asks again
		q.undo(0)
	default:
		l.enter(ce, q)
		c.s.lent.add(ce)
	}
}

// enter makes a block of what was granted.
func (l *loan) enter(ce *cell, q *call) {
	if l.by == nil {
		l.by = limiter.NewGranter((*lentBy)(ce))
	}
	l.serial++
	top := q.marks[0].Missing
	b := block{serial: l.serial, def: q.def, line: q.marks[0].Tick, top: top, next: top - q.granted[0], now: q.now, sent: q.sent}
	b.low = b.next
	l.blocks = append(l.blocks, b)
}

// lenders are the cells that have borrowed something.
type lenders struct {
	s       *Store
	mu      sync.Mutex
	cells   map[*cell]struct{}
	running bool
}

// unusedFor is how long what was borrowed may be used. A block is so large that it is used
// up earlier; what is left has been too much.
const unusedFor = time.Second

func (l *lenders) add(ce *cell) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cells == nil {
		l.cells = map[*cell]struct{}{}
	}
	l.cells[ce] = struct{}{}
	if !l.running {
		l.running = true
		go l.returnUnused()
	}
}

// returnUnused runs as long as anything is borrowed.
func (l *lenders) returnUnused() {
	pause := unusedFor
	for l.s.sleeps(pause) {
		if pause = l.returnDue(time.Now()); pause == 0 {
			return
		}
	}
}

// returnDue returns what is due, and how long it takes until something else is; 0: nothing
// is borrowed any more.
func (l *lenders) returnDue(now time.Time) time.Duration {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.cells))
	l.mu.Unlock()
	pause := unusedFor
	for _, ce := range all {
		ce.mu.Lock()
		left := unusedFor - now.Sub(ce.loan.at)
		if left <= 0 {
			ce.returnBlocks()
		}
		if ce.left(now) == 0 {
			l.remove(ce)
		} else {
			pause = min(pause, left)
		}
		ce.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.cells) == 0 {
		l.running = false
		return 0
	}
	return max(pause, unusedFor/20)
}

func (l *lenders) remove(ce *cell) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cells, ce)
}

// returnBlocks gives back what was not used. The cell is locked.
func (ce *cell) returnBlocks() {
	now := time.Now()
	for i := len(ce.loan.blocks) - 1; i >= 0; i-- {
		b := &ce.loan.blocks[i]
		if n := b.left(now); n > 0 {
			ce.c.giveLoanBack(ce.key, b.def, n, backend.Receipt{Tick: b.line, Missing: b.top})
		}
	}
	ce.loan.blocks = nil
}
