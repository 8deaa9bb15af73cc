package jobs

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/internal/recovered"
)

const (
	cleanUpInterval = time.Minute
	// The Throttler looks after waiters after lookInterval at most, not always at the same time within the buckets of a
	// window, but is at rest for restFactor times as long as that took.
	lookInterval = time.Second
	restFactor   = 20
	// cleanUp removes that many rows in one transaction, and goes on while there are as many.
	removedAtOnce = 1000
)

// repeat calls f until closed ends: first after d, then each time after the duration that f returns.
func repeat(closed context.Context, what string, d time.Duration, f func() time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-closed.Done():
			return
		case <-timer.C:
			recovered.Call(what, func() { d = f() })
			timer.Reset(d)
		}
	}
}

// A janitor looks after waiters, and removes what no longer has an effect.
type janitor struct {
	pool      *pgxpool.Pool
	sql       *statements
	batcher   *batcher
	timeout   time.Duration   // of a call
	closed    context.Context // ends with Close
	cleanedUp time.Time
	failing   bool
}

// maintain looks after waiters, and cleans up from time to time.
func (j *janitor) maintain() (next time.Duration) {
	begun := time.Now()
	err := j.withTimeout(j.lookAfterWaiters)
	if begun.Sub(j.cleanedUp) >= cleanUpInterval {
		failed := j.withTimeout(j.cleanUp)
		if failed == nil {
			j.cleanedUp = begun
		}
		err = errors.Join(err, failed)
	}
	if failing := err != nil; failing != j.failing && j.closed.Err() == nil {
		j.failing = failing
		if failing {
			slog.Error("jobs: maintenance fails", "err", err)
		} else {
			slog.Info("jobs: maintenance succeeds again")
		}
	}
	return min(max(lookInterval/2+rand.N(lookInterval/2), restFactor*time.Since(begun)), cleanUpInterval)
}

// withTimeout calls f with a context of its own that ends after CallTimeout.
func (j *janitor) withTimeout(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(j.closed, j.timeout)
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
func (j *janitor) lookAfterWaiters(ctx context.Context) error {
	var failed error
	for _, sql := range []string{j.sql.BringBackOutdated, j.sql.BringBackLate, j.sql.BringForward} {
		_, err := j.pool.Exec(ctx, sql)
		failed = errors.Join(failed, err)
	}
	var key int64
	var stalled []int64
	err := query(ctx, j.pool, eachRow(func() { stalled = append(stalled, key) }, &key), j.sql.Stalled)
	j.batcher.recheckLater(stalled, 0)
	return errors.Join(failed, err)
}

// cleanUp removes rows of jobs that never came back, and keys that no longer have an effect. What it has no time for is left for
// the next cleanUp.
func (j *janitor) cleanUp(ctx context.Context) (failed error) {
	enough, cancel := context.WithTimeout(ctx, j.timeout/2)
	defer cancel()
	for _, remove := range []func(context.Context) (removed int64, err error){
		j.exec(j.sql.RemoveFinishedWaiters), j.exec(j.sql.RemoveDeadHolders), j.removeKeys,
	} {
		for more := true; more && enough.Err() == nil; {
			n, err := remove(ctx)
			failed, more = errors.Join(failed, err), n == removedAtOnce
		}
	}
	return failed
}

// exec returns a function that runs a statement, which changes removedAtOnce rows at most, and returns how many it was.
func (j *janitor) exec(sql string) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		tag, err := j.pool.Exec(ctx, sql, removedAtOnce)
		return tag.RowsAffected(), err
	}
}

// removeKeys removes keys that no longer have an effect, and returns how many.
func (j *janitor) removeKeys(ctx context.Context) (removed int64, err error) {
	var ids []int64
	err = inTransaction(ctx, j.pool, func(tx pgx.Tx) error {
		var key int64
		ids = nil
		err := query(ctx, tx, eachRow(func() { ids = append(ids, key) }, &key), j.sql.LockExpiredKeys, removedAtOnce)
		if err != nil || len(ids) == 0 {
			return err
		}
		// Whether the keys are in use is checked again after they are locked, by a statement of its own, which sees what other
		// transactions wrote before the lock.
		_, err = tx.Exec(ctx, j.sql.RemoveExpiredKeys, ids)
		return err
	})
	if err != nil {
		return 0, err
	}
	return int64(len(ids)), nil
}
