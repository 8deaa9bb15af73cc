package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/internal/recovered"
)

const (
	cleanUpInterval = time.Minute
	// The Throttler looks after waiters after lookInterval at most, not always at the same time within the buckets of a
	// window, but is at rest for restFactor times as long as that took.
	lookInterval = time.Second
	restFactor   = 20
)

// repeat calls f until Close: first after d, then each time after the duration that f returns.
func (t *Throttler) repeat(what string, d time.Duration, f func() time.Duration) {
	defer t.maintained.Done()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-t.closed.Done():
			return
		case <-timer.C:
			recovered.Call(what, func() { d = f() })
			timer.Reset(d)
		}
	}
}

// renew renews the leases of all running jobs, and ends the contexts of jobs that have lost theirs. A job has lost its slots
// if one of its rows is missing or its lease has ended, because then another job may be about to take them. If the database
// does not answer, a job in relaxed mode loses its slots before its lease ends: renew runs four times in a lease, so that is
// after half of it to three quarters.
func (t *Throttler) renew() (next time.Duration) {
	asked := time.Now()
	defer func() { next = max(t.o.Lease/4-time.Since(asked), time.Millisecond) }()
	t.mu.Lock()
	byRun := map[runID]*session{}
	var jobs []int64
	var attempted []time.Time
	for s := range t.sessions {
		byRun[s.held.run] = s
		jobs, attempted = append(jobs, s.held.run.job), append(attempted, time.UnixMicro(s.held.run.attempted))
	}
	t.mu.Unlock()
	if len(jobs) == 0 {
		return next
	}
	ctx, cancel := context.WithTimeout(t.closed, min(t.o.CallTimeout, t.o.Lease/4))
	defer cancel()
	found := map[runID]int{} // how many rows of the run have been renewed
	var job int64
	var at time.Time
	err := query(ctx, t.own, eachRow(func() { found[runID{job, at.UnixMicro()}]++ }, &job, &at),
		t.sql.RenewLeases, jobs, attempted, t.o.Lease.Microseconds())
	t.mu.Lock()
	defer t.mu.Unlock()
	for r, s := range byRun {
		switch {
		case !t.sessions[s]: // it has ended meanwhile
		case err == nil && found[r] >= s.granted.heldRows:
			s.renewed = asked
		case err == nil:
			t.lose(s, fmt.Errorf("%w: another run of the job, another job or an operator has taken it", ErrLost))
		case s.granted.leased && time.Since(s.renewed) >= t.o.Lease/2:
			t.lose(s, fmt.Errorf("%w: the lease could not be renewed: %w", ErrLost, err))
		}
	}
	return next
}

// lose ends the context of a job that has lost its slots. The caller holds t.mu.
func (t *Throttler) lose(s *session, why error) {
	delete(t.sessions, s)
	s.cancel(why)
	t.events.Add(Event{Kind: EventSlotLost, Job: s.job.ID, JobKind: s.job.Kind, Err: why})
}

// maintain looks after waiters, and cleans up from time to time.
func (t *Throttler) maintain() (next time.Duration) {
	begun := time.Now()
	_ = t.withTimeout(t.lookAfterWaiters)
	if begun.Sub(t.cleanedUp) >= cleanUpInterval && t.withTimeout(t.cleanUp) == nil {
		t.cleanedUp = begun
	}
	return min(max(lookInterval/2+rand.N(lookInterval/2), restFactor*time.Since(begun)), cleanUpInterval)
}

// withTimeout calls f with a context of its own that ends after CallTimeout.
func (t *Throttler) withTimeout(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.closed, t.o.CallTimeout)
	defer cancel()
	return f(ctx)
}

// lookAfterWaiters brings back waiters that would come too late:
//   - A limiter has changed since they were throttled. A job that is snoozed just when its limiter changes is found when River
//     has recorded the snooze.
//   - River has not made them available in time. Its leader does that by its own clock, which may be behind.
//   - A slot is free, because the job that held it has died, or has released it before they waited, or because the waiters
//     before them do not come.
//   - Places in a window were reserved for jobs that do not come.
func (t *Throttler) lookAfterWaiters(ctx context.Context) error {
	for _, sql := range []string{t.sql.BringBackOutdated, t.sql.BringBackLate, t.sql.BringForward} {
		if _, err := t.own.Exec(ctx, sql); err != nil {
			return err
		}
	}
	var key int64
	var stalled []int64
	if err := query(ctx, t.own, eachRow(func() { stalled = append(stalled, key) }, &key), t.sql.Stalled); err != nil {
		return err
	}
	t.batcher.recheckLater(stalled, 0)
	return nil
}

// cleanUp removes rows of jobs that never came back, and keys that no longer have an effect. If a statement fails, the rest
// is left for the next cleanUp.
func (t *Throttler) cleanUp(ctx context.Context) error {
	for _, sql := range []string{t.sql.RemoveFinishedWaiters, t.sql.RemoveDeadHolders} {
		if _, err := t.own.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return pgx.BeginTxFunc(ctx, t.own, readCommitted, func(tx pgx.Tx) error {
		var key int64
		var ids []int64
		err := query(ctx, tx, eachRow(func() { ids = append(ids, key) }, &key), t.sql.LockExpiredKeys)
		if err != nil || len(ids) == 0 {
			return err
		}
		// Whether the keys are in use is checked after they are locked, by a statement of its own, which sees what other
		// transactions wrote before the lock.
		_, err = tx.Exec(ctx, t.sql.RemoveExpiredKeys, ids)
		return err
	})
}
