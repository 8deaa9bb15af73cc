package store

import (
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// A cell is what an instance has to remember of one key: who waits for it, what was
// borrowed, and until when there is nothing to be had. Most keys have none.
type cell struct {
	c   *core
	key string // as it is stored

	mu      sync.Mutex
	gone    bool // it was forgotten: look for another
	queue   queue
	pumping bool          // a goroutine serves the queue
	wakeup  chan struct{} // one signal: it is worth asking again
	last    known
	reject  rejection
	loan    loan
	rivals  rivalry
	held    int64 // concurrency: the permits that this instance holds, as far as they were counted
}

// known is what the store last said of a key.
type known struct {
	def       *backend.Definition
	state     backend.State
	now       int64
	sent, got time.Time
}

// A rejection says that of at least so many permits nothing can be had before a moment.
type rejection struct {
	least int64
	until time.Time
}

// wake makes the goroutine that serves the queue ask again.
func (ce *cell) wake() {
	select {
	case ce.wakeup <- struct{}{}:
	default:
	}
}

// wake is for when something of a key may be free that was not before.
func (c *core) wake(key string) {
	if ce := c.cells.lock(key, false); ce != nil {
		ce.reject = rejection{}
		ce.wake()
		ce.mu.Unlock()
	}
}

const (
	// longestKey is the longest that is stored as it is. A longer one is stored as hashed and
	// its SHA-256, and so is a key that looks like that, so that no two keys are stored alike.
	longestKey = 200
	hashed     = "sha256:"
)

func storedKey(key string) string {
	looksHashed := len(key) == len(hashed)+sha256.Size && strings.HasPrefix(key, hashed)
	if len(key) <= longestKey && !looksHashed {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashed + string(sum[:])
}

// atOnce answers without asking, where that can be done; else it says that the store must. A
// caller who is waiting if rejected may also be rejected because other instances come first.
func (c *core) atOnce(key string, n int, waiting bool) (limiter.Lease, source) {
	ce := c.cells.lock(key, false)
	if ce == nil {
		return limiter.Lease{}, fromStore
	}
	defer ce.mu.Unlock()
	if n > 0 && !ce.queue.empty() && c.queueing.Load().order == limiter.OldestFirst {
		from := fromCell
		now := time.Now()
		polite := !c.lends && (ce.rivals.has(now) || ce.rivals.away(now) > 0)
		if polite && ce.last.has(saturate.Add(ce.queue.permits, int64(n)), now) {
			from = fromRivals // the queue waits for its turn, not for permits
		}
		return limiter.Rejected(ce.waitBehind(n), ""), from
	}
	if lease, ok := ce.locally(n); ok {
		return lease, fromCell
	}
	if waiting && n > 0 && !ce.storeIsAway() {
		if wait := ce.rivals.leavesAlone(c.lends, c.s.heard.Load(), time.Now()); wait > 0 {
			return limiter.Rejected(wait, ""), fromRivals
		}
	}
	return limiter.Lease{}, fromStore
}

// locally answers from what is known and what was borrowed. The cell is locked.
func (ce *cell) locally(n int) (limiter.Lease, bool) {
	if ce.loan.none() && ce.reject.until.IsZero() {
		return limiter.Lease{}, false
	}
	now := time.Now()
	ce.c.refreshIfDue(now) // nobody else may for long
	if lease, ok := ce.lend(n, now); ok {
		ce.c.s.count.lent.Add(1)
		return lease, true
	}
	if !ce.reject.of(n, now) {
		return limiter.Lease{}, false
	}
	ce.c.s.count.cached.Add(1)
	return limiter.RejectedKnowing(ce.last.wait(int64(n), now), "", ce.last.left()), true
}

// of tells whether n permits are known not to be there.
func (r *rejection) of(n int, now time.Time) bool { return weight(n) >= r.least && now.Before(r.until) }

// wait is how long n permits take to come back, never less than it is.
func (k *known) wait(n int64, at time.Time) time.Duration {
	if k.def == nil {
		return 0
	}
	return max(lasting(k.def.Wait(k.state, k.now, n))-at.Sub(k.got), 1)
}

// has reports whether n permits are there now, if none has been taken since.
func (k *known) has(n int64, at time.Time) bool {
	if k.def == nil {
		return false
	}
	now := k.now + max(at.Sub(k.got), 0).Microseconds()
	return k.def.Wait(k.def.Advance(k.state, now), now, n) == 0
}

// left is how many permits there were when the store was last asked.
func (k *known) left() int64 { return k.def.Permits - k.state.Missing }

// remember keeps what the store has said, where somebody needs it: a queue, to tell newcomers
// how long it will take, and a limiter that answers for itself.
func (c *core) remember(q *call, n int64) {
	ce := c.cells.lock(q.key, c.o.CacheRejections || c.queueing.Load().limit > 0)
	if ce == nil {
		return
	}
	defer ce.mu.Unlock()
	ce.learn(q)
	if c.o.CacheRejections && c.inForce.Load().Definition == q.def { // it may be a late answer
		// From when it was sent: the decision was later, so nobody is kept out for too long.
		ce.reject = rejection{least: max(n, 1), until: q.sent.Add(q.wait(n))}
	}
}

func (ce *cell) learn(q *call) {
	if !q.sent.Before(ce.last.sent) {
		ce.last = known{def: q.def, state: q.state, now: q.now, sent: q.sent, got: time.Now()}
	}
}

// heardRelease is wake for a release that the store has told of.
func (c *core) heardRelease(key string) {
	if ce := c.cells.lock(key, false); ce != nil {
		if ce.held > 0 || ce.pumping {
			ce.rivals.heardRelease(time.Now())
		}
		ce.reject = rejection{}
		ce.wake()
		ce.mu.Unlock()
	}
}
