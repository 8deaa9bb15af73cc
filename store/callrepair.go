package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// repair resolves why groups were not decided, and sends them again. It uses its own batchers, so that calls about
// other keys do not wait.
func (s *Store) repair(all []*pendingGroup) {
	for _, u := range all {
		q := u.g[0]
		q.shard.repairs[batcherOf(q.c, q.key)].add(u)
	}
}

// sendRepairs is one round trip of repairs.
func (s *Store) sendRepairs(trip *roundTrip, all []*pendingGroup) {
	trip.start(all[0].g[0].shard.breaker.current())
	s.loadNewerDefinitions(all)
	s.convertStates(trip, all)
	trip.finish()
	for _, u := range all {
		u.resend(s)
	}
}

// repairsTimedOut answers the groups of an abandoned round trip.
func (s *Store) repairsTimedOut(trip *roundTrip, all []*pendingGroup) {
	all[0].g[0].shard.breaker.record(trip.started(), errTimeout)
	for _, u := range all {
		u.g.fail(errTimeout)
	}
}

// A pendingGroup is a group whose batch was not decided. err, if not nil, is why it cannot be sent again.
type pendingGroup struct {
	g   group
	b   *backend.Batch
	err error
}

// loadNewerDefinitions loads each newer definition once.
func (s *Store) loadNewerDefinitions(all []*pendingGroup) {
	for _, u := range all {
		if u.b.Outcome == backend.OutdatedDefinition {
			u.err = u.g[0].c.awaitVersion(u.b.State.Version)
		}
	}
}

// convertStates replaces the outdated states in one round trip.
func (s *Store) convertStates(trip *roundTrip, all []*pendingGroup) {
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
	sh, begun := of[0].g[0].shard, trip.started()
	// The backend can write to list until it returns, which may be after callWithTimeout has.
	answers, err := callWithTimeout(s, func(ctx context.Context) ([]*backend.Replacement, error) {
		return list, s.backend.Replace(ctx, list)
	})
	if err != nil {
		for _, u := range of {
			u.err = err
		}
		sh.breaker.record(begun, err)
		return
	}
	var sum outcomes
	for i, r := range answers {
		if sum.add(r.Outcome, r.Err); r.Outcome != backend.Decided {
			of[i].err = reasonOf(r.Err)
		}
	}
	sh.recordRoundTrip(begun, nil, sum)
}

func (u *pendingGroup) priority() int { return 0 }

// abandoned is false: the next caller needs the converted state, too.
func (u *pendingGroup) abandoned() bool { return false }

// resend sends the calls of the group again.
func (u *pendingGroup) resend(s *Store) {
	if u.err != nil {
		u.g.fail(u.err)
		return
	}
	var waiting []*call
	var pause time.Duration
	for _, q := range u.g {
		if q.claimed.Load() {
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

// attempts are those of a call that is sent again because its limiter was reconfigured meanwhile.
type attempts struct {
	n     int
	since time.Time // the begin, or the first failure
	last  time.Time // the start of the last attempt
}

const (
	// immediateAttempts is how many attempts follow without a pause; a single Reconfigure needs one or two.
	immediateAttempts = 4
	// attemptInterval is the average time between the starts of later attempts. If the store takes longer to answer,
	// there is no pause, so that a key can be decided between two Reconfigures.
	attemptInterval = 5 * time.Millisecond
)

// next returns the pause before the next attempt, or false if there must be none.
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

var errReconfiguring = errors.New("the limiter is being reconfigured all the time")
