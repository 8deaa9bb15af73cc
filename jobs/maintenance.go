package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/internal/recovered"
)

const cleanUpInterval = time.Minute

// maintain renews the leases of running jobs, ends the contexts of jobs that have lost theirs, and removes rows that no
// longer count.
func (t *Throttler) maintain() {
	ended := false
	defer func() {
		if !ended { // a hook of the pool has called runtime.Goexit
			go t.maintain()
			return
		}
		close(t.maintained)
	}()
	renew := time.NewTicker(t.o.Lease / 4)
	defer renew.Stop()
	cleanUp := time.NewTicker(cleanUpInterval)
	defer cleanUp.Stop()
	for {
		select {
		case <-t.stop:
			ended = true
			return
		case <-renew.C:
			recovered.Call("jobs: renewing leases", t.renew)
		case <-cleanUp.C:
			recovered.Call("jobs: cleaning up", func() { _ = t.cleanUp() })
		}
	}
}

// renew renews the leases of all running jobs. A job has lost its slots if one of its rows is missing or its lease has
// ended, because then another job may be about to take them. If the database does not answer, a job in relaxed mode
// loses its slots before its lease ends: renew runs four times in a lease, so that is after half of it to three
// quarters.
func (t *Throttler) renew() {
	asked := time.Now()
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
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(t.o.CallTimeout, t.o.Lease/4))
	defer cancel()
	found := map[runID]int{} // how many rows of the run have been renewed
	var job int64
	var at time.Time
	err := query(ctx, t.pool, eachRow(func() { found[runID{job, at.UnixMicro()}]++ }, &job, &at),
		t.sql.renewLeases, jobs, attempted, t.o.Lease.Microseconds())
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
}

// lose ends the context of a job that has lost its slots. The caller holds t.mu.
func (t *Throttler) lose(s *session, why error) {
	delete(t.sessions, s)
	s.cancel(why)
	t.events.Add(Event{Kind: EventSlotLost, Job: s.job.ID, JobKind: s.job.Kind, Err: why})
}

// cleanUp removes rows of jobs that never came back, and keys that no longer have an effect. If a statement fails, the rest
// is left for the next cleanUp.
func (t *Throttler) cleanUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), t.o.CallTimeout)
	defer cancel()
	if err := t.cleanUpReservations(ctx); err != nil {
		return err
	}
	for _, sql := range []string{t.sql.removeFinishedWaiters, t.sql.removeDeadHolders} {
		if _, err := t.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	var key int64
	var stalled []int64
	if err := query(ctx, t.pool, eachRow(func() { stalled = append(stalled, key) }, &key), t.sql.stalled); err != nil {
		return err
	}
	t.batcher.recheckLater(stalled, 0)
	return pgx.BeginTxFunc(ctx, t.pool, readCommitted, func(tx pgx.Tx) error {
		var ids []int64
		err := query(ctx, tx, eachRow(func() { ids = append(ids, key) }, &key), t.sql.lockExpiredKeys)
		if err != nil || len(ids) == 0 {
			return err
		}
		// Whether the keys are in use is checked after they are locked, by a statement of its own, which sees what other
		// transactions wrote before the lock.
		_, err = tx.Exec(ctx, t.sql.removeExpiredKeys, ids)
		return err
	})
}

// cleanUpReservations withdraws the reservations of jobs that never come back, and brings back as many of the jobs with the
// latest reservations. Otherwise a window could be idle until its latest reservations, which may be far ahead.
func (t *Throttler) cleanUpReservations(ctx context.Context) error {
	dead, free := map[int64][]need{}, map[int64]int64{} // by job; by key
	var job, key int64
	var n need
	add := func() {
		dead[job] = append(dead[job], n)
		free[key]++
	}
	err := query(ctx, t.pool, eachRow(add, &job, &key, &n.ref.Type, &n.ref.Name, &n.ref.Key), t.sql.deadReservations)
	if err != nil || len(dead) == 0 {
		return err
	}
	t.batcher.withdraw(dead)
	var keys, counts []int64
	for key, n := range free {
		keys, counts = append(keys, key), append(counts, n)
	}
	_, err = t.pool.Exec(ctx, t.sql.bringBackReserved, keys, counts)
	return err
}
