package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// An outdatedGroup is a group whose batch was not decided because its definition or its state is outdated.
type outdatedGroup struct {
	calls group
	batch *backend.Batch
	err   error // not nil: why it cannot be sent again
}

func (p *outdatedGroup) order() string { return p.calls[0].order() }

// abandoned is false: the next caller needs the converted state, too.
func (p *outdatedGroup) abandoned() bool { return false }

// repair resolves why groups were not decided, and sends them again. It uses its own batchers, so that calls about
// other keys do not wait.
func (s *Store) repair(all []*outdatedGroup) {
	for _, p := range all {
		q := p.calls[0]
		q.shard.repairs[batcherOf(q.c, q.key)].add(p)
	}
}

// sendRepairs loads the newer definitions, converts the outdated states, and sends the calls of the groups again.
func (s *Store) sendRepairs(trip *roundTrip, all []*outdatedGroup) {
	trip.start(all[0].calls[0].shard.breaker.current())
	s.loadNewerDefinitions(all)
	s.convertStates(trip, all)
	if !trip.finish() {
		return // repairsTimedOut has seen to the calls
	}
	for _, p := range all {
		p.resend(s, p.err)
	}
}

// repairsTimedOut answers the groups of a round trip that took too long.
func (s *Store) repairsTimedOut(trip *roundTrip, all []*outdatedGroup) {
	all[0].calls[0].shard.breaker.record(trip.epoch(), errTimeout)
	for _, p := range all {
		p.resend(s, errTimeout)
	}
}

// loadNewerDefinitions loads each newer definition once, all at the same time: if many limiters of a far store are
// reconfigured together, one load after another takes longer than CallTimeout.
func (s *Store) loadNewerDefinitions(all []*outdatedGroup) {
	var loads sync.WaitGroup
	for _, p := range all {
		if p.batch.Outcome == backend.OutdatedDefinition {
			loads.Go(func() { p.err = p.calls[0].c.keeper.Await(p.batch.Version) })
		}
	}
	loads.Wait()
}

// convertStates replaces the outdated states in one round trip.
func (s *Store) convertStates(trip *roundTrip, all []*outdatedGroup) {
	var replacements []*backend.Replacement
	var outdated []*outdatedGroup // the group of each replacement
	for _, p := range all {
		switch p.batch.Outcome {
		case backend.OutdatedDefinition:
		case backend.OutdatedState:
			d, old := p.batch.Definition, *p.batch.Stored
			replacements = append(replacements, &backend.Replacement{Definition: d, Key: p.batch.Key, Old: old, Next: d.Convert(old)})
			outdated = append(outdated, p)
		default:
			p.err = errors.New("the backend has set no outcome")
		}
	}
	if len(replacements) == 0 {
		return
	}
	sh, begun := outdated[0].calls[0].shard, trip.epoch()
	// After a timeout, the backend may still write to replacements. Then answers is nil.
	answers, err := callWithTimeout(s, func(ctx context.Context) ([]*backend.Replacement, error) {
		return replacements, s.backend.Replace(ctx, replacements)
	})
	if err != nil {
		for _, p := range outdated {
			p.err = err
		}
		sh.breaker.record(begun, err)
		return
	}
	var o outcomes
	for i, r := range answers {
		if o.add(r.Outcome, r.Err); r.Outcome != backend.Decided {
			outdated[i].err = reasonOf(r.Err)
		}
	}
	sh.breaker.record(begun, o.result(nil))
}

// resend sends the calls of the group again, of which nothing was carried out. If err is not nil, they fail with it. But if
// err is a timeout, calls that give permits back are sent again: while limits change all the time, a load can take longer
// than CallTimeout, and the permits would be lost.
func (p *outdatedGroup) resend(s *Store, err error) {
	var waiting []*call
	var pause time.Duration
	for _, q := range p.calls {
		if q.abandoned() {
			continue // its caller has left
		}
		within := s.o.CallTimeout
		if q.background() {
			within *= backgroundTimeouts
		}
		if err != nil && !(q.background() && errors.Is(err, errTimeout)) {
			q.fail(err)
			continue
		}
		next, ok := q.attempts.next(within)
		if !ok {
			q.fail(errReconfiguring)
			continue
		}
		waiting, pause = append(waiting, q), max(pause, next)
	}
	s.afterPause(pause, func() {
		for _, q := range waiting {
			s.send(q)
		}
	})
}

// attempts counts and spaces the attempts of define, and of a call that is sent again because its limiter was
// reconfigured meanwhile.
type attempts struct {
	n     int
	since time.Time // when the first attempt of define began, or the first attempt of a call ended
	last  time.Time // when the last attempt began
}

const (
	// immediateAttempts is how many attempts follow without a pause. One Reconfigure causes one or two.
	immediateAttempts = 4
	// attemptInterval is the average time between the starts of later attempts. If the store takes longer to answer,
	// there is no pause, so that a key can be decided between two Reconfigures.
	attemptInterval = 5 * time.Millisecond
	// backgroundTimeouts is for how many times CallTimeout a call without a caller is sent again: a storm of changes has
	// an end, but a store that never accepts the definition it has itself returned must not be asked forever.
	backgroundTimeouts = 10
)

// next returns the pause before the next attempt, or false if that attempt would not begin within the given time of since.
func (a *attempts) next(within time.Duration) (pause time.Duration, ok bool) {
	now := time.Now()
	if a.n++; a.since.IsZero() {
		a.since = now
	}
	if a.n > immediateAttempts {
		pause = max(attemptInterval/2+rand.N(attemptInterval)-now.Sub(a.last), 0)
	}
	a.last = now.Add(pause)
	return pause, a.last.Sub(a.since) < within
}

var errReconfiguring = errors.New("the limiter is reconfigured too often")
