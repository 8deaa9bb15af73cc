package calls

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/fixedhash"
	"github.com/weir-go/weir/internal/random"
	"github.com/weir-go/weir/store/backend"
)

// A batcher sends calls with the same Op to a shard in round trips. The rule: a call is sent at once, unless the latest round
// trip has begun less than a pause ago and is under way; then it waits for the end of either, and goes together with the calls
// that came meanwhile. The pause is longer than a round trip to a near store, and a fraction of one to a far store. So a near
// store gets few round trips with many calls, and a call to a far store takes one round trip and a pause, not two round
// trips. A round trip that hangs delays nothing but its own calls, as long as fewer than limits.trips hang.
type batcher struct {
	c     *Client
	shard *shard
	most  int // how many round trips can be under way at once

	mu       sync.Mutex
	pending  []*Call
	starting int           // how many round trips have not yet taken their calls from pending
	young    *trip         // the latest round trip, if it is under way and began less than a pause ago
	underWay []*trip       // in the order in which they began
	latest   time.Time     // when that of the round trips that have ended began that began last
	took     time.Duration // how long that took
}

const (
	// maxBatch bounds a round trip: one statement or pipeline of that size takes about a millisecond.
	maxBatch = 256
	// minPause is more than a near store takes for a round trip.
	minPause = time.Millisecond
)

// pause returns how long after a round trip the next one begins beside it: with round trips of 8 ms and 5 at once, 1.6 ms.
func (b *batcher) pause() time.Duration {
	if b.most == 1 {
		return b.c.o.Timeout
	}
	return min(max(b.took/time.Duration(b.most), minPause), b.c.o.Timeout)
}

// add queues q and does not wait.
func (b *batcher) add(q *Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(b.pending, q)
	b.start()
}

// start begins a round trip on its own goroutine, if the rule allows one. The batcher is locked.
func (b *batcher) start() {
	if t := b.begin(); t != nil {
		b.c.Begin()
		go b.run(t)
	}
}

// begin returns a new round trip, or nil if the rule allows none. The round trip takes its calls when it runs, so that calls
// that come meanwhile go with it. The batcher is locked.
func (b *batcher) begin() *trip {
	left := len(b.pending) - b.starting*maxBatch
	if left <= 0 || b.young != nil && left < maxBatch || len(b.underWay) == b.most {
		return nil
	}
	t := &trip{batcher: b}
	b.starting++
	b.young = t
	b.underWay = append(b.underWay, t)
	return t
}

// run makes round trips, until no calls must be sent now, or a round trip is lost: then another goroutine continues.
func (b *batcher) run(t *trip) {
	for t != nil {
		if b.c.most.random != nil {
			time.Sleep(time.Nanosecond) // until everything that happens at this instant has happened
		}
		if b.take(t) && !t.run(b.c) {
			return // see replace
		}
		b.mu.Lock()
		b.remove(t)
		t = b.begin()
		b.mu.Unlock()
	}
	b.c.End()
}

// take gives a round trip its calls. It returns false if there are none any more, because their callers have left.
func (b *batcher) take(t *trip) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starting--
	all := b.pending
	if b.c.most.random != nil {
		slices.SortStableFunc(all, func(x, y *Call) int { return strings.Compare(x.order(), y.order()) })
	}
	n := 0
	batch := all[:0:len(all)] // in place: nothing else uses this slice
	for ; n < len(all) && len(batch) < maxBatch; n++ {
		if !all[n].dropped(b.c.o.Timeout) {
			batch = append(batch, all[n])
		}
	}
	if b.pending = all[n:]; n == len(all) {
		b.pending = nil
	}
	if len(batch) == 0 {
		return false
	}
	t.calls, t.begun, t.epoch = slices.Clip(batch), time.Now(), b.shard.epoch()
	return true
}

// watch calls endPause at the end of the pause of a round trip.
func (b *batcher) watch(t *trip) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.watch = time.AfterFunc(b.pause(), t.endPause)
}

// endPause is called at the end of the pause of a round trip, and at its timeout. At the end of the pause, the next round trip
// can begin. If too many are under way, the first of them that ends is followed by it.
func (t *trip) endPause() {
	b := t.batcher
	b.mu.Lock()
	if t.paused {
		b.mu.Unlock()
		t.lose()
		return
	}
	defer b.mu.Unlock()
	t.paused = true
	if b.young == t {
		b.young = nil
	}
	if !t.over.Load() {
		t.watch.Reset(time.Until(t.begun.Add(b.c.o.Timeout)))
	}
	b.start()
}

// replace is called if a round trip was lost.
func (b *batcher) replace(t *trip) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(t)
	b.start()
	b.c.End()
}

// remove is called at the end of a round trip. The batcher is locked.
func (b *batcher) remove(t *trip) {
	i := slices.Index(b.underWay, t)
	if i < 0 {
		return
	}
	b.underWay = slices.Delete(b.underWay, i, i+1)
	if b.young == t {
		b.young = nil
	}
	if t.begun.After(b.latest) {
		b.latest, b.took = t.begun, time.Since(t.begun)
	}
}

const (
	// maxBatchers is how many batchers of one Op a shard has at most. All calls about one key use the same one.
	maxBatchers = 4
	// maxTrips is how many round trips of a batcher can be under way at once, if there are enough connections.
	maxTrips = 8
)

// limits are how many batchers of one Op a shard has, and how many round trips of each can be under way at once. Together that
// is half of the backend's connections at most. A batcher has two round trips, rather than a shard twice as many batchers: with
// one, a call waits for the round trip under way and then for its own.
type limits struct {
	batchers, trips int
	// random is not nil in a simulation: then the calls that arrive at one instant go together, in an order that is always the
	// same, because goroutines add them in any.
	random random.Maker
}

func limitsOf(b backend.Backend) (l limits) {
	half := maxBatchers * maxTrips
	if p, ok := b.(backend.Pooled); ok {
		half = max(p.Connections()/2, 1)
	}
	l.batchers = min(max(half/2, 1), maxBatchers)
	l.trips = min(half/l.batchers, maxTrips)
	l.random, _ = b.(random.Maker)
	return l
}

// seed is for hashes of keys.
var seed = maphash.MakeSeed()

// batcherOf returns which batcher of its shard a call uses.
func (c *Client) batcherOf(q *Call) uint64 {
	name, key, n := q.Limiter.Name(), q.Key, uint64(c.most.batchers)
	if c.most.random != nil { // in a simulation, which must not depend on the seed
		return fixedhash.String(name+key) % n
	}
	return maphash.Comparable(seed, limiterKey{name, key}) % n
}
