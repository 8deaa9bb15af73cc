package store

import (
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// A keyState is what this instance remembers of one key: the queue, borrowed blocks, and rejections. Most keys have
// no keyState, and most others only a rejection: what only waiting callers or blocks need is made for the first of them.
type keyState struct {
	c   *core
	key string // as it is stored

	mu         sync.Mutex
	evicted    bool // removed from the table, which can have another keyState for the key
	queue      queue
	lastAnswer answerState
	rejection  rememberedRejection
	blocks     *keyBlocks // nil until a block is borrowed
	held       int64      // concurrency: the permits of the leases of this instance, if there is a queue
}

func newKeyState(c *core, key string) *keyState {
	ks := &keyState{c: c, key: key}
	ks.queue.ks = ks
	return ks
}

// away reports whether the key's shard is away.
func (ks *keyState) away() bool {
	return ks.c.s.calls.Check(ks.c.name, ks.key) != nil
}

// askAgain is called when permits may have become free: what was rejected before is no answer any more. The keyState is locked.
func (ks *keyState) askAgain() {
	ks.rejection = rememberedRejection{}
	ks.queue.wake()
}

// wakeKey is called when permits of a key may have become free.
func (c *core) wakeKey(key string) {
	if ks := c.keys.lock(key, false); ks != nil {
		ks.askAgain()
		ks.mu.Unlock()
	}
}

// wakeKeyByNotice is wakeKey for a notice of a release at any instance.
func (c *core) wakeKeyByNotice(key string) {
	if ks := c.keys.lock(key, false); ks != nil {
		if ks.held > 0 || ks.queue.serving {
			ks.queue.turnsOfKey().Released(time.Now())
		}
		ks.askAgain()
		ks.mu.Unlock()
	}
}

// answerLocally answers from a remembered rejection or borrowed blocks. With peek, nothing is taken or counted. The keyState is
// locked.
func (ks *keyState) answerLocally(n int, peek bool) (limiter.Lease, bool) {
	if (ks.blocks == nil || ks.blocks.Empty()) && ks.rejection.until.IsZero() {
		return limiter.Lease{}, false
	}
	now := time.Now()
	ks.c.keeper.RefreshIfDue(now) // as long as this function answers, no other code refreshes the limits
	switch {
	case ks.blocks == nil:
	case peek && ks.blocks.Left(now) >= weight(n):
		return custom.Granted(n, nil), true
	case !peek:
		if tag, ok := ks.blocks.Take(int64(n), now); ok {
			ks.c.s.count.fromBlocks.Add(1)
			return grantedFromBlock(ks, n, tag), true
		}
	}
	if !ks.rejection.covers(n, now) {
		return limiter.Lease{}, false
	}
	if !peek {
		ks.c.s.count.cached.Add(1)
	}
	return custom.RejectedKnowing(ks.lastAnswer.untilAvailable(int64(n), now), "", ks.lastAnswer.free()), true
}

// remember keeps the answer to a rejected request for n permits, if a queue needs it to compute a Retry-After, or if
// rejections are cached.
func (c *core) remember(q *calls.Call, n int64) {
	ks := c.keys.lock(q.Key, c.remembersRejections() || c.limits().QueueLimit > 0)
	if ks == nil {
		return
	}
	defer ks.mu.Unlock()
	if ks.learn(q) && c.remembersRejections() && c.current(q) {
		// The wait counts from when the request was sent, which was before the decision, so no caller is rejected for too
		// long.
		ks.rejection = rememberedRejection{least: max(n, 1), until: q.Sent.Add(q.Wait(n))}
	}
}

// learn keeps an answer unless a later one is known. It reports whether the store has decided it after all that are known:
// a rejection must not be remembered from before permits were given back. The keyState is locked.
func (ks *keyState) learn(q *calls.Call) (newest bool) {
	last := &ks.lastAnswer
	if q.Sent.Before(last.sent) {
		return false
	}
	newest = last.def == nil || q.Now >= last.now
	*last = answerState{def: q.Definition, state: q.State, now: q.Now, sent: q.Sent, got: time.Now()}
	return newest
}

// current reports whether an answer is by the limits in force, and not by limits that were replaced.
func (c *core) current(q *calls.Call) bool {
	return c.keeper.InForce().Definition.Version == q.Definition.Version
}

// An answerState is the store's last answer about a key.
type answerState struct {
	def       *backend.Definition
	state     rate.State
	now       int64     // the store's clock
	sent, got time.Time // when it was asked for, and when it came
}

// untilAvailable returns how long n permits take to come back, at least 1 ns; 0 if there was no answer yet.
func (a *answerState) untilAvailable(n int64, now time.Time) time.Duration {
	if a.def == nil {
		return 0
	}
	return max(saturate.Micros(a.def.Wait(&a.state, a.now, n))-now.Sub(a.got), 1)
}

// available reports whether n permits are available if none were taken since.
func (a *answerState) available(n int64, now time.Time) bool {
	if a.def == nil {
		return false
	}
	at := a.now + max(now.Sub(a.got), 0).Microseconds()
	s := a.def.Advanced(a.state, at)
	return a.def.Wait(&s, at, n) == 0
}

// rejects reports whether n permits are not available by an answer that came less than a round trip ago. A request that
// was sent at the moment of that answer's decision would not have been answered yet.
func (a *answerState) rejects(n int64, now time.Time) bool {
	return now.Sub(a.got) < a.took() && !a.available(n, now)
}

// took returns how long the round trip took.
func (a *answerState) took() time.Duration { return a.got.Sub(a.sent) }

// untilFull returns how long it takes until all permits are back.
func (a *answerState) untilFull(now time.Time) time.Duration {
	return max(untilBack(a.def, &a.state, a.state.Missing, a.now)-now.Sub(a.got), 0)
}

// free returns how many permits were available at the answer.
func (a *answerState) free() int64 { return a.def.Free(&a.state) }

// A rememberedRejection covers requests for least permits or more, up to the moment until. They are rejected without
// asking the store. The zero value covers no request.
type rememberedRejection struct {
	least int64
	until time.Time
}

// covers reports whether a request for n permits is rejected.
func (r *rememberedRejection) covers(n int, now time.Time) bool {
	return weight(n) >= r.least && now.Before(r.until)
}

// endBy makes the rejection end at a moment, unless it ends before.
func (r *rememberedRejection) endBy(at time.Time) {
	if at.Before(r.until) {
		r.until = at
	}
}

// remembersRejections reports whether keys are rejected without asking the store.
func (c *core) remembersRejections() bool { return c.o.CacheRejections || c.o.Block > 1 }

const (
	// maxKeyBytes is the length of the longest key that is stored as it is. A longer key is stored as hashPrefix and its
	// SHA-256. A key that looks like such a hash is hashed, too, so that no two keys are stored alike.
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
