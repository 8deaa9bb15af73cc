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

// A keyState is what an instance has to remember of one key: who waits for it, what was
// borrowed, and until when there is nothing to be had. Most keys have none.
type keyState struct {
	c   *core
	key string // as it is stored

	mu         sync.Mutex
	evicted    bool // it was forgotten: look for another
	queue      queue
	serving    bool          // a goroutine serves the queue
	wakeup     chan struct{} // one signal: it is worth asking again
	lastAnswer answerState
	rejection  rememberedRejection
	blocks     blockList
	fairness   fairness
	held       int64 // concurrency: the permits that this instance holds, as far as they were counted
}

// answerState is what the store last said of a key.
type answerState struct {
	def       *backend.Definition
	state     backend.State
	now       int64
	sent, got time.Time
}

// A rememberedRejection says that of at least so many permits nothing can be had before a moment.
type rememberedRejection struct {
	least int64
	until time.Time
}

// wake makes the goroutine that serves the queue ask again.
func (ks *keyState) wake() {
	select {
	case ks.wakeup <- struct{}{}:
	default:
	}
}

// wake is for when something of a key may be free that was not before.
func (c *core) wake(key string) {
	if ks := c.keys.lock(key, false); ks != nil {
		ks.rejection = rememberedRejection{}
		ks.wake()
		ks.mu.Unlock()
	}
}

const (
	// maxKeyBytes is the longest that is stored as it is. A longer one is stored as hashed and
	// its SHA-256, and so is a key that looks like that, so that no two keys are stored alike.
	maxKeyBytes = 200
	hashPrefix  = "sha256:"
)

func storedKey(key string) string {
	looksHashed := len(key) == len(hashPrefix)+sha256.Size && strings.HasPrefix(key, hashPrefix)
	if len(key) <= maxKeyBytes && !looksHashed {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashPrefix + string(sum[:])
}

// tryLocally answers without asking, where that can be done; else it says that the store must. A
// caller who is waiting if rejected may also be rejected because other instances come first.
func (c *core) tryLocally(key string, n int, waiting bool) (limiter.Lease, rejectedBy) {
	ks := c.keys.lock(key, false)
	if ks == nil {
		return limiter.Lease{}, byStore
	}
	defer ks.mu.Unlock()
	if n > 0 && !ks.queue.empty() && c.queueing.Load().order == limiter.OldestFirst {
		from := byKeyState
		now := time.Now()
		polite := !c.leased && (ks.fairness.hasRivals(now) || ks.fairness.pauseLeft(now) > 0)
		if polite && ks.lastAnswer.has(saturate.Add(ks.queue.permits, int64(n)), now) {
			from = byFairness // the queue waits for its turn, not for permits
		}
		return limiter.Rejected(ks.waitBehind(n), ""), from
	}
	if lease, ok := ks.answerLocally(n); ok {
		return lease, byKeyState
	}
	if waiting && n > 0 && !ks.storeIsAway() {
		if wait := ks.fairness.newcomerPause(c.leased, c.s.listening.Load(), time.Now()); wait > 0 {
			return limiter.Rejected(wait, ""), byFairness
		}
	}
	return limiter.Lease{}, byStore
}

// answerLocally answers from what is known and what was borrowed. The cell is locked.
func (ks *keyState) answerLocally(n int) (limiter.Lease, bool) {
	if ks.blocks.empty() && ks.rejection.until.IsZero() {
		return limiter.Lease{}, false
	}
	now := time.Now()
	ks.c.refreshIfDue(now) // nobody else may for long
	if lease, ok := ks.grantFromBlocks(n, now); ok {
		ks.c.s.count.fromBlocks.Add(1)
		return lease, true
	}
	if !ks.rejection.covers(n, now) {
		return limiter.Lease{}, false
	}
	ks.c.s.count.cached.Add(1)
	return limiter.RejectedKnowing(ks.lastAnswer.wait(int64(n), now), "", ks.lastAnswer.left()), true
}

// covers tells whether n permits are known not to be there.
func (r *rememberedRejection) covers(n int, now time.Time) bool {
	return weight(n) >= r.least && now.Before(r.until)
}

// wait is how long n permits take to come back, never less than it is.
func (k *answerState) wait(n int64, at time.Time) time.Duration {
	if k.def == nil {
		return 0
	}
	return max(duration(k.def.Wait(k.state, k.now, n))-at.Sub(k.got), 1)
}

// has reports whether n permits are there now, if none has been taken since.
func (k *answerState) has(n int64, at time.Time) bool {
	if k.def == nil {
		return false
	}
	now := k.now + max(at.Sub(k.got), 0).Microseconds()
	return k.def.Wait(k.def.Advance(k.state, now), now, n) == 0
}

// left is how many permits there were when the store was last asked.
func (k *answerState) left() int64 { return k.def.Permits - k.state.Missing }

// remember keeps what the store has said, where somebody needs it: a queue, to tell newcomers
// how long it will take, and a limiter that answers for itself.
func (c *core) remember(q *call, n int64) {
	ks := c.keys.lock(q.key, c.o.CacheRejections || c.queueing.Load().limit > 0)
	if ks == nil {
		return
	}
	defer ks.mu.Unlock()
	ks.learn(q)
	if c.o.CacheRejections && c.inForce.Load().Definition == q.def { // it may be a late answer
		// From when it was sent: the decision was later, so nobody is kept out for too long.
		ks.rejection = rememberedRejection{least: max(n, 1), until: q.sent.Add(q.wait(n))}
	}
}

func (ks *keyState) learn(q *call) {
	if !q.sent.Before(ks.lastAnswer.sent) {
		ks.lastAnswer = answerState{def: q.def, state: q.state, now: q.now, sent: q.sent, got: time.Now()}
	}
}

// observeRelease is wake for a release that the store has told of.
func (c *core) observeRelease(key string) {
	if ks := c.keys.lock(key, false); ks != nil {
		if ks.held > 0 || ks.serving {
			ks.fairness.observeRelease(time.Now())
		}
		ks.rejection = rememberedRejection{}
		ks.wake()
		ks.mu.Unlock()
	}
}
