package store

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// cannotAsk returns why there is no sense in asking that part of the store, or nil.
func (s *Store) cannotAsk(p *part) error {
	if s.ctx.Err() != nil {
		return limiter.ErrClosed
	}
	return p.guard.err()
}

// decide is one flight: all that the calls ask, in one round trip.
func (s *Store) decide(f *flight, calls []*call) {
	p := calls[0].p
	if err := s.cannotAsk(p); err != nil {
		f.lands()
		group(calls).fail(err)
		return
	}
	f.begins(p.guard.now())
	sent := time.Now()
	groups := grouped(calls)
	batches := make([]*backend.Batch, len(groups))
	for i, g := range groups {
		batches[i] = g.batch()
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.o.CallTimeout)
	err := s.backend.Decide(ctx, batches)
	cancel()
	if f.lands() {
		var tally tally
		for _, b := range batches {
			tally.add(b.Outcome, b.Err)
		}
		p.landed(f.begun(), err, tally)
		s.count.decisions.Add(int64(len(calls)))
	}
	var undone []*undecided
	for i, g := range groups {
		switch b := batches[i]; {
		case err != nil:
			g.fail(err)
		case b.Outcome == backend.Decided:
			g.answer(b, sent)
		case b.Outcome == backend.Failed || b.Outcome == backend.Unreachable:
			g.fail(why(b.Err))
		default:
			undone = append(undone, &undecided{g: g, b: b})
		}
	}
	s.repair(undone)
}

// A tally is what the outcomes of a flight say of the part that it went to.
type tally struct {
	answered bool  // some key was answered, or has an error of its own
	err      error // why some key could not be reached
}

func (t *tally) add(o backend.Outcome, err error) {
	if o == backend.Unreachable {
		t.err = why(err)
	} else {
		t.answered = true
	}
}

// landed counts the end of a flight. A part that has answered for one key is there: a key that could not be reached
// has moved to another part just now, or the next flight fails as a whole.
func (p *part) landed(begun moment, err error, t tally) {
	if err == nil && !t.answered {
		err = t.err
	}
	p.guard.came(begun, err)
}

// A group is the calls of a flight that are about the same key.
type group []*call

func grouped(calls []*call) []group {
	if len(calls) == 1 {
		return []group{calls}
	}
	sorted := slices.Clone(calls)
	slices.SortStableFunc(sorted, func(a, b *call) int {
		return cmp.Or(strings.Compare(a.c.name, b.c.name), strings.Compare(a.key, b.key))
	})
	var groups []group
	for start, i := 0, 1; i <= len(sorted); i++ {
		if i == len(sorted) || sorted[i].c.name != sorted[start].c.name || sorted[i].key != sorted[start].key {
			groups = append(groups, sorted[start:i:i])
			start = i
		}
	}
	return groups
}

// definition is the newest that is in force for any of the calls: those of a limiter that was
// closed, and of one that was made anew by the same name, may be on one flight.
func (g group) definition() *backend.Definition {
	d := g[0].c.inForce.Load().Definition
	for _, q := range g[1:] {
		if own := q.c.inForce.Load().Definition; own.Version > d.Version {
			d = own
		}
	}
	return d
}

// batch is what is asked of the key.
func (g group) batch() *backend.Batch {
	b := &backend.Batch{}
	g.fill(b)
	return b
}

// fill asks by the definition that is in force now. What is given back under another
// grid than it was taken under is not to be found any more, and asks for nothing.
func (g group) fill(b *backend.Batch) {
	b.Definition, b.Key = g.definition(), g[0].key
	switch {
	case len(g) == 1:
		b.Requests, b.Granted = g[0].asks, g[0].got[:]
	case g.ofOneEach():
		b.Requests, b.Granted = []backend.Request{{Min: 1, Max: int64(len(g))}}, make([]int64, 1)
		return
	}
	for _, q := range g {
		if q.def != nil && !q.def.SameSchedule(b.Definition) {
			for i := range q.asks {
				q.asks[i].Max = 0
			}
		}
		if len(g) > 1 {
			b.Requests = append(b.Requests, q.asks...)
		}
	}
	if len(b.Granted) != len(b.Requests) {
		b.Granted = make([]int64, len(b.Requests))
	}
}

// ofOneEach tells whether all ask for one permit, as most do. Then they can be asked for as one:
// as many as there are go to those who came first.
func (g group) ofOneEach() bool {
	for _, q := range g {
		if len(q.asks) != 1 || q.asks[0] != (backend.Request{Min: 1, Max: 1}) {
			return false
		}
	}
	return true
}

// apart is what each was granted where they were asked for as one.
func (g group) apart(granted int64) []int64 {
	each := make([]int64, len(g))
	for i := range each {
		if each[i] = 1; int64(i) >= granted {
			each[i] = backend.Rejected
		}
	}
	return each
}

func (g group) fail(err error) {
	for _, q := range g {
		q.fail(err)
	}
}

// repair makes it possible to ask again for groups that were not decided, many of them together. It does so beside the
// lane: those who ask about other keys do not wait for it.
func (s *Store) repair(all []*undecided) {
	for _, u := range all {
		q := u.g[0]
		q.p.repairs[laneOf(q.c, q.key)].add(u)
	}
}

// mend is one flight of repairs.
func (s *Store) mend(f *flight, all []*undecided) {
	f.begins(all[0].g[0].p.guard.now())
	s.hearOf(all)
	s.convert(f, all)
	f.lands()
	for _, u := range all {
		u.again(s)
	}
}

// lostRepairs is what becomes of those on a flight of repairs that does not come back.
func (s *Store) lostRepairs(f *flight, all []*undecided) {
	all[0].g[0].p.guard.came(f.begun(), errTimeout)
	for _, u := range all {
		u.g.fail(errTimeout)
	}
}

// repairs is how many leases are seen to at once after their limiters were reconfigured.
const repairs = 16

// aside calls f on a goroutine of its own, of which only so many work at once.
func (s *Store) aside(f func()) {
	s.busy.Add(1)
	go func() {
		defer s.lessBusy()
		select {
		case s.repairing <- struct{}{}:
			defer func() { <-s.repairing }()
		case <-s.ctx.Done():
		}
		f()
	}()
}

// An undecided is a group whose batch was not decided, and why it is not to be asked again, if it is not.
type undecided struct {
	g   group
	b   *backend.Batch
	err error
}

// hearOf loads the newer definitions, each once.
func (s *Store) hearOf(all []*undecided) {
	for _, u := range all {
		if u.b.Outcome == backend.OutdatedDefinition {
			u.err = u.g[0].c.heardOf(u.b.State.Version)
		}
	}
}

// convert replaces the old states, in one round trip.
func (s *Store) convert(f *flight, all []*undecided) {
	var list []*backend.Replacement
	var of []*undecided
	for _, u := range all {
		switch u.b.Outcome {
		case backend.OutdatedDefinition:
		case backend.OutdatedState:
			list = append(list, &backend.Replacement{Definition: u.b.Definition, Key: u.b.Key, Old: u.b.State, Next: u.b.Definition.Convert(u.b.State)})
			of = append(of, u)
		default:
			u.err = errors.New("the backend has set no outcome")
		}
	}
	if len(list) == 0 {
		return
	}
	p, begun := of[0].g[0].p, f.begun()
	// The answers belong to the backend until it returns, which may be later than the call is waited for.
	answers, err := bounded(s, func(ctx context.Context) ([]*backend.Replacement, error) {
		return list, s.backend.Replace(ctx, list)
	})
	if err != nil {
		for _, u := range of {
			u.err = err
		}
		p.guard.came(begun, err)
		return
	}
	var tally tally
	for i, r := range answers {
		if tally.add(r.Outcome, r.Err); r.Outcome != backend.Decided {
			of[i].err = why(r.Err)
		}
	}
	p.landed(begun, nil, tally)
}

func (u *undecided) about() what { return 0 }

// left is false: a state is converted also for the next who asks.
func (u *undecided) left() bool { return false }

// again sends the calls of the group once more.
func (u *undecided) again(s *Store) {
	if u.err != nil {
		u.g.fail(u.err)
		return
	}
	var waiting []*call
	var pause time.Duration
	for _, q := range u.g {
		if q.ended.Load() {
			continue // its caller has left
		}
		p, ok := q.tries.next(s.o.CallTimeout)
		if !ok {
			q.fail(errAllTheTime)
			continue
		}
		waiting, pause = append(waiting, q), max(pause, p)
	}
	s.after(pause, func() {
		for _, q := range waiting {
			s.send(q)
		}
	})
}

// tries are those of something that is tried again because its limiter was reconfigured meanwhile.
type tries struct {
	n     int
	since time.Time // when they began, or the first has failed
	last  time.Time // when the last was to begin
}

const (
	// triesAtOnce is how many tries follow without a pause: a single Reconfigure costs one or two.
	triesAtOnce = 4
	// betweenTries is how much later than the one before a later try begins, about. Where the store takes longer to
	// answer there is no pause: a key can be decided about in the time between two Reconfigures, if any.
	betweenTries = 5 * time.Millisecond
)

// next returns how long to wait before the next try, or false if that time has passed.
func (t *tries) next(within time.Duration) (pause time.Duration, ok bool) {
	now := time.Now()
	if t.n++; t.since.IsZero() {
		t.since = now
	}
	if t.n > triesAtOnce {
		pause = max(betweenTries/2+rand.N(betweenTries)-now.Sub(t.last), 0)
	}
	t.last = now.Add(pause)
	return pause, t.last.Sub(t.since) < within
}

// after calls f, which does not wait, after a pause. Close waits for it.
func (s *Store) after(pause time.Duration, f func()) {
	if pause <= 0 {
		f()
		return
	}
	s.busy.Add(1)
	time.AfterFunc(pause, func() {
		defer s.lessBusy()
		f()
	})
}

var errAllTheTime = errors.New("the limiter is being reconfigured all the time")

// answer splits the answers to a batch among the calls.
func (g group) answer(b *backend.Batch, sent time.Time) {
	after := b.State.Missing
	if len(b.Requests) < len(g) {
		b.Granted = g.apart(b.Granted[0])
	}
	end := len(b.Granted)
	for _, q := range slices.Backward(g) {
		end -= len(q.asks)
		q.granted = b.Granted[end : end+len(q.asks)]
		q.marks = q.mark[:]
		if len(q.asks) > 1 {
			q.marks = make([]backend.Receipt, len(q.asks))
		}
		for j := len(q.asks) - 1; j >= 0; j-- {
			q.marks[j] = backend.Receipt{Tick: b.State.Tick, Missing: after}
			after -= change(q.asks[j].Op, q.granted[j])
		}
		q.def, q.state, q.now, q.sent = b.Definition, b.State, b.Now, sent
	}
	g.tellRivalries(b, sent)
	for _, q := range g { // in the order in which they came
		q.answer()
	}
}

// tellRivalries enters the answer where callers wait, or have waited lately. Mostly all calls
// are of one limiter; another of the same name in this process is like one elsewhere.
func (g group) tellRivalries(b *backend.Batch, sent time.Time) {
	var told *core
	for _, q := range g {
		if q.c == told || sent.UnixNano()-q.c.waited.Load() >= int64(mostAttentive) {
			continue
		}
		told = q.c
		ce := told.cells.lock(q.key, false)
		if ce == nil {
			continue
		}
		if now := time.Now(); ce.rivals.attends(now) || !ce.queue.empty() {
			ce.rivals.saw(answer{
				def: b.Definition, state: b.State, now: b.Now, sent: sent,
				own: g.takenBy(told), rejected: g.rejects(told), alone: !told.o.NoCoalescing,
			}, now)
		}
		ce.mu.Unlock()
	}
}

// rejects reports whether a limiter has asked for more than there was.
func (g group) rejects(c *core) bool {
	for _, q := range g {
		for i, a := range q.asks {
			if q.c == c && a.Op == backend.OpTake && a.Max > 0 && (q.granted[i] == backend.Rejected || q.granted[i] < a.Max) {
				return true
			}
		}
	}
	return false
}

// takenBy is by how much more is missing because of what a limiter asked.
func (g group) takenBy(c *core) (own int64) {
	for _, q := range g {
		if q.c != c {
			continue
		}
		for i, a := range q.asks {
			own += change(a.Op, q.granted[i])
		}
	}
	return own
}

// change is by how many more permits are missing after an ask.
func change(op backend.Op, granted int64) int64 {
	if op == backend.OpRefund || op == backend.OpReturnBlock {
		return -granted
	}
	return max(granted, 0)
}
