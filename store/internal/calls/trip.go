package calls

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// A batcher sends calls with the same Op to a shard in round trips. The rule: a call is sent at once, unless the latest round
// trip has begun less than a pause ago and is under way; then it waits for the end of either, and goes together with the calls
// that came meanwhile. The pause is longer than a round trip to a near store, and a fraction of one to a far store. So a near
// store gets few round trips with many calls, and a call to a far store takes one round trip and a pause, not two round
// trips. A round trip that hangs delays nothing but its own calls, as long as fewer than limits.trips hang.
type batcher struct {
	shard *shard
	most  int // how many round trips can be under way at once
	place int // see settle

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
		return b.shard.o.Timeout
	}
	return min(max(b.took/time.Duration(b.most), minPause), b.shard.o.Timeout)
}

// add queues q and does not wait.
func (b *batcher) add(q *Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(b.pending, q)
	b.start()
}

// start begins a round trip on its own goroutine, if the rule allows one. The round trip takes its calls when it runs, so that
// calls that come meanwhile go with it. The batcher is locked.
func (b *batcher) start() {
	left := len(b.pending) - b.starting*maxBatch
	if left <= 0 || b.young != nil && left < maxBatch || len(b.underWay) == b.most {
		return
	}
	t := &trip{batcher: b, behind: b.starting}
	b.starting++
	b.young = t
	b.underWay = append(b.underWay, t)
	b.shard.o.Background.Begin()
	go t.run()
}

// take gives a round trip its calls. It returns false if there are none any more, because their callers have left.
func (b *batcher) take(t *trip) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starting--
	all := b.pending
	if b.shard.most.random != nil {
		slices.SortStableFunc(all, compareInSimulation)
	}
	n := 0
	batch := all[:0:len(all)] // in place: nothing else uses this slice
	for ; n < len(all) && len(batch) < maxBatch; n++ {
		if !all[n].dropped(b.shard.o.Timeout) {
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
		t.watch.Reset(time.Until(t.begun.Add(b.shard.o.Timeout)))
	}
	b.start()
}

// remove is called at the end of a round trip, so that the next one can begin, and again when one that was lost returns.
func (b *batcher) remove(t *trip) {
	b.mu.Lock()
	defer b.mu.Unlock()
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
	b.start()
	b.shard.o.Background.End()
}

// seed is for hashes of keys.
var seed = maphash.MakeSeed()

// send sends q in a round trip.
func (sh *shard) send(q *Call) {
	if q.Limiter.Definition() == nil {
		sh.repair([]*group{{calls: []*Call{q}}})
	} else {
		sh.batchers[q.Op][sh.batcherOf(q)].add(q)
	}
}

// batcherOf returns which batcher of its shard a call uses.
func (l *link) batcherOf(q *Call) uint64 {
	name, key, n := q.Limiter.Name(), q.Key, uint64(l.most.batchers)
	if l.most.random != nil { // in a simulation, which must not depend on the seed
		return deterministic.Hash(name+key) % n
	}
	return maphash.Comparable(seed, keyOf(q)) % n
}

// A trip is a round trip to a shard. It either returns in time or is lost.
type trip struct {
	batcher *batcher
	behind  int // how many round trips were starting before it
	calls   []*Call
	begun   time.Time
	epoch   epoch // of the shard, when it began
	over    atomic.Bool
	watch   *time.Timer // calls endPause; nil until the backend is called
	paused  bool        // see endPause
	one     struct {    // backs what a trip with one group needs
		groups  [1]group
		batches [1]*backend.Batch
	}
}

// end reports whether the trip was not over before.
func (t *trip) end() bool { return t.over.CompareAndSwap(false, true) }

// lose answers the calls of a trip that takes too long, or of which the backend has panicked.
func (t *trip) lose() {
	if !t.end() {
		return
	}
	t.batcher.remove(t)
	t.batcher.shard.record(t.epoch, errTimeout)
	for _, q := range t.calls {
		q.fail(errTimeout, true)
	}
}

// run makes the round trip. If the backend panics or ends the goroutine, the round trip is lost.
func (t *trip) run() {
	defer t.batcher.remove(t)
	for range 1 + t.behind {
		t.batcher.shard.settle(t.batcher.place)
	}
	if !t.batcher.take(t) {
		return
	}
	defer func() {
		if t.watch != nil {
			t.watch.Stop()
		}
		t.lose()
	}()
	recovered.Call("store: Backend", t.ask)
}

func (t *trip) ask() {
	sh := t.batcher.shard
	if err := sh.check(); err != nil {
		t.end()
		for _, q := range t.calls {
			q.fail(err, false)
		}
		return
	}
	groups := t.grouped()
	t.batcher.watch(t)
	answer := Answer{Sent: time.Now()}
	ctx, cancel := context.WithTimeout(sh.o.Background.Context(), sh.o.Timeout)
	err := t.call(ctx, sh.backend, groups)
	cancel()
	inTime := t.end()
	if inTime {
		sh.record(t.epoch, failure(err, len(groups), func(i int) backend.Result { return groups[i].result() }))
	}
	var outdated []*group
	for i := range groups {
		g := &groups[i]
		switch r := g.result(); {
		case err != nil:
			g.fail(err, inTime)
		case r.Outcome == backend.Decided:
			g.answer(answer, inTime)
		case r.Outcome == backend.OutdatedDefinition || r.Outcome == backend.OutdatedState:
			outdated = append(outdated, g)
		default:
			g.fail(r.Err, inTime)
		}
	}
	if len(outdated) > 0 {
		sh.repair(outdated)
	}
}

// call calls the method of the backend.
func (t *trip) call(ctx context.Context, b backend.Backend, groups []group) error {
	if op := t.calls[0].Op; op != Decide {
		requests := make([]*backend.LeaseRequest, len(groups))
		for i := range groups {
			requests[i] = groups[i].lease
		}
		switch op {
		case Acquire:
			return b.Acquire(ctx, requests)
		case Renew:
			return b.Renew(ctx, requests)
		default:
			return b.Release(ctx, requests)
		}
	}
	batches := t.one.batches[:]
	if len(groups) > 1 {
		batches = make([]*backend.Batch, len(groups))
	}
	for i := range groups {
		batches[i] = &groups[i].batch
	}
	return b.Decide(ctx, batches)
}

// failure returns why a round trip with n keys has failed, or nil; err is the error of the backend. It counts as failed only if no
// key was answered, be it with the outcome Failed: if some were, the others may have just moved to another shard.
func failure(err error, n int, result func(i int) backend.Result) error {
	if err != nil {
		return err
	}
	for i := range n {
		r := result(i)
		if r.Outcome != backend.Unreachable {
			return nil
		}
		err = r.Err
	}
	return err
}

// A group is the calls of a round trip with one answer: all about one key of a bucket or window, or one about a lease.
type group struct {
	calls []*Call
	batch backend.Batch
	lease *backend.LeaseRequest // nil: batch. A copy, because the backend can still write to it after a timeout
	err   error                 // why the calls cannot be sent again; see repair
}

// grouped returns the groups of the calls, sorted by name and key as [backend.Backend] demands.
func (t *trip) grouped() []group {
	calls := t.calls
	slices.SortStableFunc(calls, compare)
	n := 1
	for i := 1; i < len(calls); i++ {
		if calls[i].Op != Decide || compare(calls[i], calls[i-1]) != 0 {
			n++
		}
	}
	groups := t.one.groups[:]
	if n > 1 {
		groups = make([]group, n)
	}
	for i, begin, end := 0, 0, 1; i < n; i, begin, end = i+1, end, end+1 {
		for calls[begin].Op == Decide && end < len(calls) && compare(calls[begin], calls[end]) == 0 {
			end++
		}
		groups[i].fill(calls[begin:end:end])
	}
	return groups
}

func compare(a, b *Call) int {
	return cmp.Or(strings.Compare(a.Limiter.Name(), b.Limiter.Name()), strings.Compare(a.Key, b.Key))
}

// result returns that of the answer. Without an answer, its Outcome is 0.
func (g *group) result() backend.Result {
	if g.lease != nil {
		return g.lease.Result
	}
	return g.batch.Result
}

// fill sets what the backend is asked for the calls, by the newest definition in force for one of them. They can differ: a
// closed limiter and one made later with the same name share round trips.
func (g *group) fill(calls []*Call) {
	g.calls = calls
	first, d := calls[0], calls[0].Limiter.Definition()
	if first.Op != Decide {
		r := *first.Lease
		g.lease, r.Definition = &r, d
		return
	}
	for _, q := range calls[1:] {
		if own := q.Limiter.Definition(); own.Version > d.Version {
			d = own
		}
	}
	g.batch.Definition, g.batch.Key = d, first.Key
	g.fillRequests()
}

// fillRequests sets the requests. Permits that were taken under another schedule cannot be given back any more, so the Max of
// such a request becomes 0.
func (g *group) fillRequests() {
	b := &g.batch
	switch {
	case len(g.calls) == 1:
		b.Requests, b.Granted = g.calls[0].Requests, g.calls[0].one.granted[:]
	case g.allSingle():
		b.Requests, b.Granted = []backend.Request{{Min: 1, Max: int64(len(g.calls))}}, make([]int64, 1)
		return
	}
	for _, q := range g.calls {
		if q.Definition != nil && !q.Definition.SameLines(&b.Definition.Schedule) {
			for i := range q.Requests {
				q.Requests[i].Max = 0
			}
		}
		if len(g.calls) > 1 {
			b.Requests = append(b.Requests, q.Requests...)
		}
	}
	if len(b.Granted) != len(b.Requests) {
		b.Granted = make([]int64, len(b.Requests))
	}
}

// allSingle reports whether every call asks for one permit, as most do. Then one request asks for all, and what is
// granted goes to the first calls.
func (g *group) allSingle() bool {
	for _, q := range g.calls {
		if len(q.Requests) != 1 || q.Requests[0] != (backend.Request{Min: 1, Max: 1}) {
			return false
		}
	}
	return true
}

func (g *group) fail(err error, inTime bool) {
	for _, q := range g.calls {
		q.fail(err, inTime) // otherwise it has failed already
	}
}

// answer gives the calls their answers. If the round trip was lost, they have failed already, and what was granted belongs to
// no caller.
func (g *group) answer(a Answer, inTime bool) {
	switch q := g.calls[0]; {
	case g.lease == nil:
		g.split(a)
	case !inTime:
		if q.Op == Acquire && g.lease.OK && g.lease.Permits > 0 {
			q.Limiter.Unclaimed(q, g.lease)
		}
		return
	default:
		q.Answer, q.Definition, q.Reply = a, g.lease.Definition, g.lease
		if q.Op == Acquire {
			q.Limiter.Answered(q)
		}
	}
	for _, q := range g.calls { // in the order of their arrival
		q.deliver()
	}
}

// split splits the answer to a batch among the calls. The backend returns the state after all requests. Receipts need the
// state after each request, so split goes through the requests from the last to the first.
func (g *group) split(a Answer) {
	b, s := &g.batch, g.batch.State
	together, end := len(b.Requests) < len(g.calls), len(b.Granted) // together: see allSingle
	a.State, a.Now = b.State, b.Now
	for i, q := range slices.Backward(g.calls) {
		end -= len(q.Requests)
		q.Answer, q.Definition = a, b.Definition
		if q.Granted = q.one.granted[:]; !together {
			q.Granted = b.Granted[end : end+len(q.Requests)]
		} else if q.Granted[0] = 1; int64(i) >= b.Granted[0] {
			q.Granted[0] = backend.Rejected
		}
		if q.After = q.one.after[:]; len(q.Requests) > 1 {
			q.After = make([]After, len(q.Requests))
		}
		for j, r := range slices.Backward(q.Requests) {
			q.After[j] = After{Receipt: b.Definition.Receipt(&s), Missing: s.Missing}
			s.Missing -= missingChange(r.Op, q.Granted[j])
			if r.Op == backend.OpRefund || r.Op == backend.OpGiveBack {
				s.Refunded -= q.Granted[j]
			}
		}
	}
}

// missingChange returns by how much a request has changed what is missing.
func missingChange(op backend.Op, granted int64) int64 {
	if op > backend.OpCharge { // gives permits back
		return -granted
	}
	return max(granted, 0)
}

// repair gets the definition, or converts the state, for lack of which the groups were not decided, and sends their calls
// again. It has a goroutine of its own, so that calls about other keys do not wait.
func (sh *shard) repair(groups []*group) {
	sh.o.Background.Begin()
	go func() {
		defer sh.o.Background.End()
		awaitDefinitions(groups)
		sh.convert(groups)
		var again []*Call
		var pause time.Duration
		for _, g := range groups {
			for _, q := range g.calls {
				if wait, ok := q.repaired(g.err, sh.o.Timeout); ok {
					again, pause = append(again, q), max(pause, wait)
				}
			}
		}
		if pause > 0 {
			sh.o.Background.Sleep(pause)
		}
		for _, q := range again {
			sh.send(q)
		}
	}()
}

// awaitDefinitions waits for all definitions together: if many limiters of a far store are reconfigured at once, one load
// after another takes longer than the timeout.
func awaitDefinitions(groups []*group) {
	var loads sync.WaitGroup
	for _, g := range groups {
		version := g.batch.Version
		if g.lease != nil {
			version = g.lease.Version
		}
		if outcome := g.result().Outcome; outcome == 0 || outcome == backend.OutdatedDefinition {
			loads.Go(func() { g.err = g.calls[0].Limiter.AwaitDefinition(version) })
		}
	}
	loads.Wait()
}

// convert replaces the outdated states in one round trip.
func (sh *shard) convert(groups []*group) {
	var replacements []*backend.Replacement
	var outdated []*group // the group of each replacement
	for _, g := range groups {
		if b := &g.batch; b.Outcome == backend.OutdatedState {
			replacements = append(replacements, &backend.Replacement{
				Definition: b.Definition, Key: b.Key, Old: *b.Stored, Next: b.Definition.Convert(*b.Stored),
			})
			outdated = append(outdated, g)
		}
	}
	if len(replacements) == 0 {
		return
	}
	begun := sh.epoch()
	// After a timeout, the backend can still write to replacements. Then answers is nil.
	answers, err := within(sh.link, func(ctx context.Context) ([]*backend.Replacement, error) {
		return replacements, sh.backend.Replace(ctx, replacements)
	})
	for i, g := range outdated {
		if g.err = err; err == nil && answers[i].Outcome != backend.Decided {
			g.err = answers[i].Err
		}
	}
	sh.record(begun, failure(err, len(answers), func(i int) backend.Result { return answers[i].Result }))
}

const (
	// immediateAttempts is how many attempts follow without a pause. One Reconfigure causes one or two.
	immediateAttempts = 4
	// maxPause is the longest pause before a later attempt.
	maxPause = 5 * time.Millisecond
	// backgroundTimeouts is for how many times the timeout a call without a caller is sent again: a storm of changes has
	// an end, but a store that never accepts the definition it has itself returned must not be asked forever.
	backgroundTimeouts = 10
)

// repaired reports whether q is to be sent again, and after which pause. If err is not nil, q fails with it. But if err is a
// timeout, a call that no caller waits for is sent again: while limits change all the time, a load can take longer than the
// timeout, and the permits that it gives back would be lost.
func (q *Call) repaired(err error, timeout time.Duration) (pause time.Duration, ok bool) {
	within := timeout
	if q.OnAnswer != nil {
		within *= backgroundTimeouts
	}
	if q.repair.n++; q.repair.n == 1 {
		q.repair.since = time.Now()
	}
	switch late := time.Since(q.repair.since) >= within; {
	case q.dropped(timeout):
		return 0, false
	case err != nil && (q.OnAnswer == nil || !errors.Is(err, errTimeout)):
	case late:
		err = errReconfiguring
	case q.repair.n > immediateAttempts:
		return rand.N(maxPause), true
	default:
		return 0, true
	}
	q.fail(err, false)
	return 0, false
}
