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

// A keyState is what this instance remembers of one key: the queue, borrowed blocks, and rejections. Most keys have
// none.
type keyState struct {
	c   *core
	key string // as it is stored

	mu         sync.Mutex
	evicted    bool // removed from the table: look again
	queue      queue
	serving    bool          // serveLoop is running
	wakeup     chan struct{} // one signal: ask again
	lastAnswer answerState
	rejection  rememberedRejection
	blocks     blockList
	fairness   fairness
	held       int64 // concurrency: the permits that this instance holds, as far as they were counted
}

// An answerState is the store's last answer about a key.
type answerState struct {
	def       *backend.Definition
	state     backend.State
	now       int64
	sent, got time.Time
}

// A rememberedRejection means that at least so many permits are not available before a moment.
type rememberedRejection struct {
	least int64
	until time.Time
}

// wake makes serveLoop ask again.
func (ks *keyState) wake() {
	select {
	case ks.wakeup <- struct{}{}:
	default:
	}
}

// wake is called when permits of a key may have become free.
func (c *core) wake(key string) {
	if ks := c.keys.lock(key, false); ks != nil {
		ks.rejection = rememberedRejection{}
		ks.wake()
		ks.mu.Unlock()
	}
}

const (
	// maxKeyBytes is the length of the longest key that is stored as it is. A longer one is stored as hashPrefix and
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

// tryLocally answers without the store, or returns byStore. A caller that will wait if rejected can also be rejected
// because other instances come first.
func (c *core) tryLocally(key string, n int, waiting bool) (limiter.Lease, rejectedBy) {
	ks := c.keys.lock(key, false)
	if ks == nil {
		return limiter.Lease{}, byStore
	}
	defer ks.mu.Unlock()
	if n > 0 && !ks.queue.empty() && c.queueing.Load().order == limiter.OldestFirst {
		from := byKeyState
		now := time.Now()
		yields := !c.leased && (ks.fairness.hasRivals(now) || ks.fairness.turnLeft(now) > 0)
		if yields && ks.lastAnswer.has(saturate.Add(ks.queue.permits, int64(n)), now) {
			from = byFairness // the queue waits for its turn, not for permits
		}
		return limiter.Rejected(ks.waitBehind(n), ""), from
	}
	if lease, ok := ks.answerLocally(n); ok {
		return lease, byKeyState
	}
	if waiting && n > 0 && !ks.away() {
		if wait := ks.newcomerPause(time.Now()); wait > 0 {
			return limiter.Rejected(wait, ""), byFairness
		}
	}
	return limiter.Lease{}, byStore
}

// answerLocally answers from a remembered rejection or borrowed blocks. The keyState is locked.
func (ks *keyState) answerLocally(n int) (limiter.Lease, bool) {
	if ks.blocks.empty() && ks.rejection.until.IsZero() {
		return limiter.Lease{}, false
	}
	now := time.Now()
	ks.c.refreshIfDue(now) // while it answers, no other path may call it for long
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

// covers reports whether n permits are known to be unavailable.
func (r *rememberedRejection) covers(n int, now time.Time) bool {
	return weight(n) >= r.least && now.Before(r.until)
}

// wait returns how long n permits take to come back, at least 1 ns.
func (k *answerState) wait(n int64, at time.Time) time.Duration {
	if k.def == nil {
		return 0
	}
	return max(duration(k.def.Wait(k.state, k.now, n))-at.Sub(k.got), 1)
}

// has reports whether n permits are available if none were taken since.
func (k *answerState) has(n int64, at time.Time) bool {
	if k.def == nil {
		return false
	}
	now := k.now + max(at.Sub(k.got), 0).Microseconds()
	return k.def.Wait(k.def.Advance(k.state, now), now, n) == 0
}

// left returns how many permits were available at the last answer.
func (k *answerState) left() int64 { return k.def.Permits - k.state.Missing }

// remember keeps an answer if it is needed: by a queue, to tell newcomers how long it takes, and by a limiter that
// caches rejections.
func (c *core) remember(q *call, n int64) {
	ks := c.keys.lock(q.key, c.o.CacheRejections || c.queueing.Load().limit > 0)
	if ks == nil {
		return
	}
	defer ks.mu.Unlock()
	ks.learn(q)
	if c.o.CacheRejections && c.inForce.Load().Definition == q.def { // else the answer is late
		// from when it was sent: the decision was later, so no caller is rejected for too long
		ks.rejection = rememberedRejection{least: max(n, 1), until: q.sent.Add(q.wait(n))}
	}
}

func (ks *keyState) learn(q *call) {
	if !q.sent.Before(ks.lastAnswer.sent) {
		ks.lastAnswer = answerState{def: q.def, state: q.state, now: q.now, sent: q.sent, got: time.Now()}
	}
}

// observeRelease is wake for a notice of a release.
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
