package store

import (
	"crypto/sha256"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/waitlist"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
	"github.com/weir-go/weir/store/internal/fairness"
)

// A keyTable has the keyStates of one limiter.
type keyTable struct {
	c        *core
	shards   [16]keyShard // by hash, so that few callers wait for each other
	count    atomic.Int64 // of the keyStates in all shards
	evicting atomic.Bool  // evict is due
}

type keyShard struct {
	mu sync.Mutex
	m  map[string]*keyState
}

// seed is for hashes of keys.
var seed = maphash.MakeSeed()

// evictInterval is how often idle keyStates are evicted.
const evictInterval = 5 * time.Second

func (table *keyTable) shardOf(key string) *keyShard {
	return &table.shards[maphash.String(seed, key)%uint64(len(table.shards))]
}

// lock returns the keyState of a key, locked. It returns nil if there is none and create is false, if there are too
// many, or if the limiter is closed.
func (table *keyTable) lock(key string, create bool) *keyState {
	for {
		ks := table.find(key, create)
		if ks == nil {
			return nil
		}
		ks.mu.Lock()
		if !ks.evicted {
			return ks
		}
		ks.mu.Unlock()
	}
}

// find is lock without locking: the keyState can have been evicted.
func (table *keyTable) find(key string, create bool) *keyState {
	shard := table.shardOf(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	ks := shard.m[key]
	if ks != nil || !create || table.count.Load() >= maxKeys || table.c.closed.Load() {
		return ks
	}
	if shard.m == nil {
		shard.m = map[string]*keyState{}
	}
	ks = &keyState{c: table.c, key: key}
	ks.queue.ks = ks
	shard.m[key] = ks
	table.count.Add(1)
	table.evictLater()
	return ks
}

func (table *keyTable) evictLater() {
	if table.count.Load() > 0 && table.evicting.CompareAndSwap(false, true) {
		time.AfterFunc(evictInterval, table.evict)
	}
}

// evict evicts idle keyStates, until none is left.
func (table *keyTable) evict() {
	now := time.Now()
	table.each(func(ks *keyState) {
		if ks.idle(now) {
			table.remove(ks)
		}
	})
	table.evicting.Store(false)
	table.evictLater()
}

// remove removes a keyState, which is locked.
func (table *keyTable) remove(ks *keyState) {
	ks.evicted = true
	shard := table.shardOf(ks.key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	delete(shard.m, ks.key)
	if len(shard.m) == 0 {
		shard.m = nil // a map does not shrink
	}
	table.count.Add(-1)
}

// idle reports whether nothing would change if ks were replaced by a new keyState. For as long as an answer can come that the store
// has decided before the last one, learn must know the last one.
func (ks *keyState) idle(now time.Time) bool {
	return now.Sub(ks.lastAnswer.got) >= ks.c.s.o.CallTimeout && ks.queue.Empty() && !ks.queue.serving && ks.held == 0 && !ks.hasTurns(now) && !now.Before(ks.rejection.until) &&
		(ks.blocks == nil || ks.blocks.fetching == nil && ks.blocks.Left(now) == 0)
}

// each calls f with every keyState, locked.
func (table *keyTable) each(f func(*keyState)) {
	for i := range table.shards {
		shard := &table.shards[i]
		shard.mu.Lock()
		all := slices.Collect(maps.Values(shard.m))
		shard.mu.Unlock()
		for _, ks := range all {
			ks.mu.Lock()
			if !ks.evicted {
				f(ks)
			}
			ks.mu.Unlock()
		}
	}
}

// close rejects all waiters, returns borrowed blocks and forgets the keys: in a program whose limiters are closed and made
// again, those with long windows would pile up. The limiter counts as closed already, so no key is made any more.
func (table *keyTable) close() {
	table.each(func(ks *keyState) {
		for w := range ks.queue.All() {
			ks.queue.answer(w, custom.Rejected(0, limiter.ReasonClosed))
		}
		ks.returnBlocks()
		ks.queue.wake()
		table.remove(ks)
	})
}

// reconfigured applies new limits to waiters and to what is remembered. Blocks are returned, because under the new
// limits their permits can be restored earlier, or be too many.
func (table *keyTable) reconfigured() {
	most := table.c.limits().Permits
	table.each(func(ks *keyState) {
		ks.rejection = rememberedRejection{}
		if ks.turns != nil {
			ks.turns.Reset()
		}
		ks.returnBlocks()
		for w := range ks.queue.All() {
			if w.Permits > most {
				ks.queue.answer(w, custom.Rejected(0, limiter.ReasonLimitLowered))
			}
		}
		ks.queue.wake()
	})
}

// correct notes that what a waiter of a tenant was served has cost that many permits more, or fewer. Another waiter can be first then.
// The keyState is locked.
func (ks *keyState) correct(t limiter.Tenant, more int64) {
	before := ks.queue.First()
	ks.queue.Correct(t, more)
	if ks.queue.First() != before {
		ks.queue.wake()
	}
}

// A keyState is what this instance remembers of one key: the queue, borrowed blocks, and rejections. Most keys have
// no keyState, and most others only a rejection: what only waiting callers or blocks need is made for the first of them.
type keyState struct {
	c   *core
	key string // as it is stored

	mu         sync.Mutex
	evicted    bool // removed from the table, which can have another keyState for the key
	queue      queue
	turns      *fairness.Turns // at asking for the permits; nil is as good as the zero value
	lastAnswer answerState
	rejection  rememberedRejection
	blocks     *keyBlocks // nil until a block is borrowed
	held       int64      // concurrency: the permits of the leases of this instance, if there is a queue
}

// useTurns returns the turns, so that they can be changed. The keyState is locked.
func (ks *keyState) useTurns() *fairness.Turns {
	if ks.turns == nil {
		ks.turns = &fairness.Turns{Random: ks.c.s.calls.MakeSource(ks.c.name, ks.key)}
	}
	return ks.turns
}

// hasTurns reports whether callers that can wait ask through the queue, in its turns. The keyState is locked.
func (ks *keyState) hasTurns(now time.Time) bool {
	return ks.turns != nil && (ks.turns.Short(now) || ks.turns.LookDue(now))
}

// away reports whether the key's shard is away.
func (ks *keyState) away() bool {
	return ks.c.s.calls.Check(ks.c.name, ks.key) != nil
}

// freed is called when permits may have become free: what was rejected before is no answer any more. The keyState is locked.
func (ks *keyState) freed() {
	ks.rejection = rememberedRejection{}
	ks.queue.wake()
}

// wakeSpread is the time over which queues are spread that are woken together, so that they do not overload a store that has just
// come back.
const wakeSpread = 50 * time.Millisecond

// wakeSoon makes the queue ask again. The keyState is locked.
func (ks *keyState) wakeSoon() {
	if !ks.queue.Empty() {
		time.AfterFunc(rand.N(wakeSpread), ks.queue.wake)
	}
}

// freed is called when permits of a key may have become free.
func (table *keyTable) freed(key string) {
	if ks := table.lock(key, false); ks != nil {
		ks.freed()
		ks.mu.Unlock()
	}
}

// released is freed for a notice of a release at any instance.
func (table *keyTable) released(key string) {
	if ks := table.lock(key, false); ks != nil {
		if ks.held > 0 || ks.queue.serving {
			ks.useTurns().Released(time.Now())
		}
		ks.freed()
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
			return custom.GrantedBy(blockOwner{ks}, n, tag), true
		}
	}
	if weight(n) < ks.rejection.least || !now.Before(ks.rejection.until) {
		return limiter.Lease{}, false
	}
	if !peek {
		ks.c.s.count.cached.Add(1)
	}
	return custom.RejectedKnowing(ks.lastAnswer.untilAvailable(int64(n), now), "", ks.lastAnswer.free()), true
}

// weight returns how many permits must be available for a request for n.
func weight(n int) int64 { return waitlist.Weight(n) }

// learn keeps the answer about a key of which something is remembered, and that to a rejected request, if a queue needs it to
// compute a Retry-After, or if rejections are cached.
func (table *keyTable) learn(q *calls.Call) {
	c, first := table.c, slices.Index(q.Granted, backend.Rejected)
	ks := table.lock(q.Key, first >= 0 && (c.remembersRejections() || c.limits().QueueLimit > 0))
	if ks == nil {
		return
	}
	defer ks.mu.Unlock()
	if newest := ks.learn(q); newest && first >= 0 && c.remembersRejections() && c.current(q) {
		n := q.Requests[first].Min
		// The wait counts from when the request was sent, which was before the decision, so no caller is rejected for too
		// long.
		ks.rejection = rememberedRejection{least: max(n, 1) + ks.borrowed(time.Now()), until: q.Sent.Add(q.Wait(n))}
	}
}

// learn keeps an answer unless a later one is known. It reports whether the store has decided it after all that are known:
// a rejection must not be remembered from before permits were given back. The keyState is locked.
func (ks *keyState) learn(q *calls.Call) (newest bool) {
	if ks.blocks != nil {
		ks.blocks.SeeClock(q.Now, q.Sent)
	}
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

// borrowed is that of a key.
func (table *keyTable) borrowed(key string) int64 {
	ks := table.lock(key, false)
	if ks == nil {
		return 0
	}
	defer ks.mu.Unlock()
	return ks.borrowed(time.Now())
}

// untilBack returns how long it takes until so many of the missing permits are back.
func untilBack(d *backend.Definition, s *rate.State, permits, now int64) time.Duration {
	return saturate.Micros(max(saturate.Add(d.TimeOf(d.LineOf(s, permits)), -now), 0))
}

// levelAfter returns the level right after a request. The state is that after all requests of the round trip.
func levelAfter(q *calls.Call, i int) limiter.Level {
	missing := q.After[i].Missing
	return limiter.Level{Remaining: q.Definition.Permits - missing, Full: untilBack(q.Definition, &q.State, missing, q.Now)}
}

// learnCharge keeps the answer to a charge, so that neither a remembered rejection nor a waiting caller waits for permits
// that are there. It returns the level after the last request.
func (table *keyTable) learnCharge(q *calls.Call, gaveBack bool) limiter.Level {
	level := levelAfter(q, len(q.Requests)-1)
	// An answer from before the permits were given back may be remembered only later; see learn.
	ks := table.lock(q.Key, gaveBack && table.c.remembersRejections())
	if ks == nil {
		return level
	}
	defer ks.mu.Unlock()
	newest := ks.learn(q)
	borrowed := ks.borrowed(time.Now())
	end := q.Sent.Add(q.Wait(ks.rejection.least - borrowed))
	switch {
	case gaveBack:
		ks.freed()
	case newest && end.Before(ks.rejection.until):
		ks.rejection.until = end
	}
	level.Remaining = min(level.Remaining+borrowed, q.Definition.Permits)
	return level
}
