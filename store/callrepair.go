package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// repair makes it possible to ask again for groups that were not decided, many of them together. It does so beside the
// lane: those who ask about other keys do not wait for it.
func (s *Store) repair(all []*pendingGroup) {
	for _, u := range all {
		q := u.g[0]
		q.shard.repairs[batcherOf(q.c, q.key)].add(u)
	}
}

// sendRepairs is one flight of repairs.
func (s *Store) sendRepairs(f *roundTrip, all []*pendingGroup) {
	f.start(all[0].g[0].shard.breaker.current())
	s.loadNewerDefinitions(all)
	s.convertStates(f, all)
	f.finish()
	for _, u := range all {
		u.resend(s)
	}
}

// repairsTimedOut is what becomes of those on a flight of repairs that does not come back.
func (s *Store) repairsTimedOut(f *roundTrip, all []*pendingGroup) {
	all[0].g[0].shard.breaker.record(f.started(), errTimeout)
	for _, u := range all {
		u.g.fail(errTimeout)
	}
}

// maxRepairs is how many leases are seen to at once after their limiters were reconfigured.
const maxRepairs = 16

// goLimited calls f on a goroutine of its own, of which only so many work at once.
func (s *Store) goLimited(f func()) {
	s.inFlight.Add(1)
	go func() {
		defer s.finishInFlight()
		select {
		case s.repairSlots <- struct{}{}:
			defer func() { <-s.repairSlots }()
		case <-s.ctx.Done():
		}
		f()
	}()
}

// An pendingGroup is a group whose batch was not decided, and why it is not to be asked again, if it is not.
type pendingGroup struct {
	g   group
	b   *backend.Batch
	err error
}

// loadNewerDefinitions loads the newer definitions, each once.
func (s *Store) loadNewerDefinitions(all []*pendingGroup) {
	for _, u := range all {
		if u.b.Outcome == backend.OutdatedDefinition {
			u.err = u.g[0].c.awaitVersion(u.b.State.Version)
		}
	}
}

// convertStates replaces the old states, in one round trip.
func (s *Store) convertStates(f *roundTrip, all []*pendingGroup) {
	var list []*backend.Replacement
	var of []*pendingGroup
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
	p, begun := of[0].g[0].shard, f.started()
	// The answers belong to the backend until it returns, which may be later than the call is waited for.
	answers, err := callWithTimeout(s, func(ctx context.Context) ([]*backend.Replacement, error) {
		return list, s.backend.Replace(ctx, list)
	})
	if err != nil {
		for _, u := range of {
			u.err = err
		}
		p.breaker.record(begun, err)
		return
	}
	var tally outcomes
	for i, r := range answers {
		if tally.add(r.Outcome, r.Err); r.Outcome != backend.Decided {
			of[i].err = reasonOf(r.Err)
		}
	}
	p.recordRoundTrip(begun, nil, tally)
}

func (u *pendingGroup) op() leaseOp { return 0 }

// abandoned is false: a state is converted also for the next who asks.
func (u *pendingGroup) abandoned() bool { return false }

// resend sends the calls of the group once more.
func (u *pendingGroup) resend(s *Store) {
	if u.err != nil {
		u.g.fail(u.err)
		return
	}
	var waiting []*call
	var pause time.Duration
	for _, q := range u.g {
		if q.answered.Load() {
			continue // its caller has left
		}
		p, ok := q.attempts.next(s.o.CallTimeout)
		if !ok {
			q.fail(errReconfiguring)
			continue
		}
		waiting, pause = append(waiting, q), max(pause, p)
	}
	s.afterPause(pause, func() {
		for _, q := range waiting {
			s.send(q)
		}
	})
}

// attempts are those of something that is tried again because its limiter was reconfigured meanwhile.
type attempts struct {
	n     int
	since time.Time // when they began, or the first has failed
	last  time.Time // when the last was to begin
}

const (
	// immediateAttempts is how many tries follow without a pause: a single Reconfigure costs one or two.
	immediateAttempts = 4
	// attemptInterval is how much later than the one before a later try begins, about. Where the store takes longer to
	// answer there is no pause: a key can be decided about in the time between two Reconfigures, if any.
	attemptInterval = 5 * time.Millisecond
)

// next returns how long to wait before the next try, or false if that time has passed.
func (t *attempts) next(within time.Duration) (pause time.Duration, ok bool) {
	now := time.Now()
	if t.n++; t.since.IsZero() {
		t.since = now
	}
	if t.n > immediateAttempts {
		pause = max(attemptInterval/2+rand.N(attemptInterval)-now.Sub(t.last), 0)
	}
	t.last = now.Add(pause)
	return pause, t.last.Sub(t.since) < within
}

// afterPause calls f, which does not wait, after a pause. Close waits for it.
func (s *Store) afterPause(pause time.Duration, f func()) {
	if pause <= 0 {
		f()
		return
	}
	s.inFlight.Add(1)
	time.AfterFunc(pause, func() {
		defer s.finishInFlight()
		f()
	})
}

var errReconfiguring = errors.New("the limiter is being reconfigured all the time")
