package jobs

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// save writes what was decided and ends the transaction.
func (d *database) save(ctx context.Context, conn *pgxpool.Conn, b *batch) error {
	q := &pgx.Batch{}
	var ids, holds, waits, expires []int64
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
		if !changed {
			continue
		}
		ids, states, holds = append(ids, id), append(states, state), append(holds, hold)
		waits, expires = append(waits, row.waiting), append(expires, expiry)
	}
	if len(ids) > 0 {
		q.Queue(d.sql.saveKeys, ids, states, holds, waits, expires)
	}
	if len(b.deadRows) > 0 {
		keys, owners, jobs := columns(b.deadRows)
		q.Queue(d.sql.removeHolders, keys, owners, jobs)
	}
	if len(b.takenOver) > 0 {
		keys, owners, _ := columns(b.takenOver)
		q.Queue(d.sql.takeOver, keys, owners)
	}
	if len(b.granted) > 0 {
		held := slices.Collect(maps.Values(b.granted))
		keys, owners, jobs := columns(held)
		var attempted []time.Time
		var modes []int16
		var untils, fences, since []int64
		for _, h := range held {
			attempted, modes = append(attempted, h.attempted), append(modes, h.mode)
			untils, fences, since = append(untils, h.until), append(fences, h.fence), append(since, h.since)
		}
		q.Queue(d.sql.saveHolders, keys, owners, jobs, attempted, modes, untils, fences, since)
	}
	if len(b.removedWaiters) > 0 {
		keys, jobs := placeColumns(maps.Keys(b.removedWaiters))
		q.Queue(d.sql.removeWaiters, keys, jobs)
	}
	if len(b.savedWaiters) > 0 {
		var keys, jobs, wakes, earliest, buckets []int64
		var present []bool
		for p, w := range b.savedWaiters {
			keys, jobs = append(keys, p.key), append(jobs, p.job)
			wakes, earliest = append(wakes, w.wake), append(earliest, w.earliest)
			buckets, present = append(buckets, w.bucket), append(present, w.inWorker)
		}
		q.Queue(d.sql.saveWaiters, keys, jobs, wakes, earliest, buckets, present)
	}
	q.Queue("commit")
	return conn.SendBatch(ctx, q).Close()
}

func sorted(ids []int64) []int64 {
	slices.Sort(ids)
	return slices.Compact(ids)
}

func columns(hs []holderRow) (keys []int64, owners []string, jobs []int64) {
	for _, h := range hs {
		keys, owners, jobs = append(keys, h.key), append(owners, h.owner), append(jobs, h.job)
	}
	return keys, owners, jobs
}

func placeColumns(places iter.Seq[waiterID]) (keys, jobs []int64) {
	for p := range places {
		keys, jobs = append(keys, p.key), append(jobs, p.job)
	}
	return keys, jobs
}
