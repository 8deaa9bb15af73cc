package jobs

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// save writes what was decided and ends the transaction.
func (d *database) save(ctx context.Context, conn *pgxpool.Conn, b *batch) error {
	q := &pgx.Batch{}
	d.queueKeys(q, b)
	if len(b.deadRows) > 0 {
		keys, owners, jobs := holderColumns(b.deadRows)
		q.Queue(d.sql.RemoveHolders, keys, owners, jobs)
	}
	if len(b.takenOver) > 0 {
		keys, owners, _ := holderColumns(b.takenOver)
		q.Queue(d.sql.TakeOver, keys, owners)
	}
	if len(b.granted) > 0 {
		var ids []holderID
		var attempted []time.Time
		var modes []int16
		var untils, fences, since []int64
		for id, h := range b.granted {
			ids, attempted, modes = append(ids, id), append(attempted, h.attempted), append(modes, h.mode)
			untils, fences, since = append(untils, h.until), append(fences, h.fence), append(since, h.since)
		}
		keys, owners, jobs := holderColumns(ids)
		q.Queue(d.sql.SaveHolders, keys, owners, jobs, attempted, modes, untils, fences, since)
	}
	if len(b.removedWaiters) > 0 {
		keys, jobs := waiterColumns(slices.Collect(maps.Keys(b.removedWaiters)))
		q.Queue(d.sql.RemoveWaiters, keys, jobs)
	}
	if len(b.savedWaiters) > 0 {
		var ids []waiterID
		var wakes, earliest, buckets, versions []int64
		var inWorker []bool
		for id, w := range b.savedWaiters {
			ids, wakes, earliest = append(ids, id), append(wakes, w.wake), append(earliest, w.earliest)
			buckets, inWorker, versions = append(buckets, w.bucket), append(inWorker, w.inWorker), append(versions, w.version)
		}
		keys, jobs := waiterColumns(ids)
		q.Queue(d.sql.SaveWaiters, keys, jobs, wakes, earliest, buckets, inWorker, versions)
	}
	q.Queue("commit")
	return conn.SendBatch(ctx, q).Close()
}

// queueKeys queues the update of the rows of jobs_keys that have changed.
func (d *database) queueKeys(q *pgx.Batch, b *batch) {
	var ids, holds, waiting, expires []int64
	var states []string
	for _, id := range slices.Sorted(maps.Keys(b.rows)) {
		row := b.rows[id]
		state, hold, expiry, changed := row.state, int64(0), b.now+(24*time.Hour).Microseconds(), row.waiting != row.storedWaiting
		if row.window != nil && (changed || row.window.changed) {
			state, expiry, changed = row.window.String(), row.window.expires(), true
		}
		if s := row.slots; s != nil {
			hold, changed = s.measuredHold, changed || s.learned
		}
		if changed {
			ids, states, holds = append(ids, id), append(states, state), append(holds, hold)
			waiting, expires = append(waiting, row.waiting), append(expires, expiry)
		}
	}
	if len(ids) > 0 {
		q.Queue(d.sql.SaveKeys, ids, states, holds, waiting, expires)
	}
}

// sorted sorts ids in place and returns them without duplicates.
func sorted(ids []int64) []int64 {
	slices.Sort(ids)
	return slices.Compact(ids)
}

func holderColumns(ids []holderID) (keys []int64, owners []string, jobs []int64) {
	for _, id := range ids {
		keys, owners, jobs = append(keys, id.key), append(owners, id.owner), append(jobs, id.job)
	}
	return keys, owners, jobs
}

func waiterColumns(ids []waiterID) (keys, jobs []int64) {
	for _, id := range ids {
		keys, jobs = append(keys, id.key), append(jobs, id.job)
	}
	return keys, jobs
}
