package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/internal/recovered"
)

const cleanUpInterval = time.Minute

// keep renews the leases of running jobs, ends the contexts of jobs that have lost theirs, and removes rows that no longer
// count.
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
	sweep := time.NewTicker(cleanUpInterval)
	defer sweep.Stop()
	for {
		select {
		case <-t.stop:
			ended = true
			return
		case <-renew.C:
			recovered.Call("jobs: renewing leases", t.renew)
		case <-sweep.C:
			recovered.Call("jobs: sweeping", t.cleanUp)
		}
	}
}

// renew renews the leases of all running jobs. A job whose rows are not all there any more has lost its slots, and so has
// one whose lease has ended: another job may be about to take them. If the database does not answer, jobs in relaxed mode
// are told before their lease ends: with four attempts in a lease, after half of it to three quarters.
func (t *Throttler) renew() {
	asked := time.Now()
	t.mu.Lock()
	byRun := map[runID]*session{}
	var jobs []int64
	var attempted []time.Time
	for s := range t.sessions {
		byRun[s.held.run] = s
		jobs, attempted = append(jobs, s.held.run.job), append(attempted, s.held.attempted)
	}
	t.mu.Unlock()
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(t.o.CallTimeout, t.o.Lease/4))
	defer cancel()
	found := map[runID]int{}
	rows, err := t.pool.Query(ctx, t.sql.renewLeases, jobs, attempted, t.o.Lease.Microseconds())
	if err == nil {
		var job int64
		var at time.Time
		_, err = pgx.ForEachRow(rows, []any{&job, &at}, func() error {
			found[runID{job, at.UnixMicro()}]++
			return nil
		})
	}
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

// lose tells a job that it holds nothing any more. The caller holds t.mu.
func (t *Throttler) lose(s *session, why error) {
	delete(t.sessions, s)
	s.cancel(why)
	t.events.Add(Event{Kind: EventSlotLost, Job: s.job.ID, JobKind: s.job.Kind, Err: why})
}

// sweep removes what is left of jobs that never came back, and keys that mean nothing any more. What fails is left for the
// next time.
func (t *Throttler) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), t.o.CallTimeout)
	defer cancel()
	_ = t.tryCleanUp(ctx)
}

func (t *Throttler) tryCleanUp(ctx context.Context) error {
	if err := t.cleanUpReservations(ctx); err != nil {
		return err
	}
	for _, sql := range []string{t.sql.removeFinishedWaiters, t.sql.removeDeadHolders} {
		if _, err := t.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	rows, err := t.pool.Query(ctx, t.sql.stalled)
	if err != nil {
		return err
	}
	stalled, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	t.batcher.recheckLater(stalled, 0)
	return pgx.BeginTxFunc(ctx, t.pool, readCommitted, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, t.sql.lockExpiredKeys)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(ids) == 0 {
			return err
		}
		// Whether they are in use is asked once they are locked: by a statement of its own, which sees what others had
		// written before that.
		_, err = tx.Exec(ctx, t.sql.removeExpiredKeys, ids)
		return err
	})
}

// sweepPlaces gives back what jobs that never come have reserved in windows, and brings back as many of those who wait for
// a later place. What is reserved may be far ahead: without that a window would stand still for as long.
func (t *Throttler) cleanUpReservations(ctx context.Context) error {
	rows, err := t.pool.Query(ctx, t.sql.deadReservations)
	if err != nil {
		return err
	}
	dead, free := map[int64][]need{}, map[int64]int64{}
	var job, key int64
	var n need
	if _, err := pgx.ForEachRow(rows, []any{&job, &key, &n.ref.Type, &n.ref.Name, &n.ref.Key}, func() error {
		dead[job] = append(dead[job], n)
		free[key]++
		return nil
	}); err != nil || len(dead) == 0 {
		return err
	}
	t.batcher.withdraw(dead)
	keys := slices.Collect(maps.Keys(free))
	counts := make([]int64, len(keys))
	for i, key := range keys {
		counts[i] = free[key]
	}
	_, err = t.pool.Exec(ctx, t.sql.bringBackReserved, keys, counts)
	return err
}
