package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rowsToRead are the rows that a batch needs, by their IDs.
type rowsToRead struct {
	lock    []int64 // rows of jobs_keys to be locked
	slots   []int64 // of these, mutexes and semaphores
	dynamic []int64 // of these, dynamic windows: their own rows, without a key
	windows []int64 // keys of dynamic windows
	jobs    []int64 // jobs of requests

	needsSlots bool // a request needs a mutex or a semaphore

	ownerKeys []int64 // with owners: who may hold a slot already
	owners    []string

	endedJobs []int64 // with endedAt: runs whose slots are released
	endedAt   []time.Time
}

func rowsOf(reqs []*request, releases []release) (r rowsToRead) {
	for _, req := range reqs {
		r.jobs = append(r.jobs, req.job)
	}
	eachNeed(reqs, func(req *request, n *need) {
		switch {
		case n.dynamicRow != 0:
			r.dynamic, r.windows = append(r.dynamic, n.dynamicRow), append(r.windows, n.id)
			r.lock = append(r.lock, n.dynamicRow)
			return
		case n.ref.Type.hasSlots():
			r.needsSlots, r.slots = true, append(r.slots, n.id)
			if !req.first || n.named { // a job that runs for the first time holds nothing
				r.ownerKeys, r.owners = append(r.ownerKeys, n.id), append(r.owners, n.owner)
			}
		}
		r.lock = append(r.lock, n.id)
	})
	for _, ended := range releases {
		r.endedJobs, r.endedAt = append(r.endedJobs, ended.run.job), append(r.endedAt, time.UnixMicro(ended.run.attempted))
		r.slots, r.lock = append(r.slots, ended.contended...), append(r.lock, ended.contended...)
	}
	r.slots, r.lock, r.dynamic, r.windows = sorted(r.slots), sorted(r.lock), sorted(r.dynamic), sorted(r.windows)
	return r
}

// load begins the transaction, locks what the requests need, and reads it.
func (d *database) load(ctx context.Context, conn *pgxpool.Conn, reqs []*request, releases []release) (*batch, error) {
	b, r := newBatch(0), rowsOf(reqs, releases)
	stored := storedRows{held: map[holderID]int64{}, waiters: map[int64][]waiter{}}
	q := &pgx.Batch{}
	// At a higher level, whatever the default of the pool, the role or the database is, the statements after the lock would
	// not see what the transaction that had the lock before has written.
	q.Queue("begin isolation level read committed")
	q.Queue(d.sql.Settings)
	q.Queue(d.sql.Lock, r.lock).Query(func(rows pgx.Rows) error { return d.readKeys(b, rows) })
	if len(r.dynamic) > 0 { // the limiter's row keeps out other batches, and these locks keep cleanUp from removing the keys
		q.Queue(d.sql.LockWindows, r.windows)
	}
	if len(releases) > 0 {
		var id holderID
		var us int64
		var waited bool
		q.Queue(d.sql.Released, r.endedJobs, r.endedAt).Query(eachRow(func() {
			stored.held[id] = max(stored.held[id], us)
			if _, locked := slices.BinarySearch(r.lock, id.key); waited && !locked {
				b.unlocked = append(b.unlocked, id.key)
			}
		}, &id.key, &id.owner, &us, &waited))
	}
	q.Queue(d.sql.Clock).QueryRow(func(row pgx.Row) error { return row.Scan(&b.now) })
	q.Queue(d.sql.Fence).QueryRow(func(row pgx.Row) error { return row.Scan(&b.fence) })
	if len(r.dynamic) > 0 {
		q.Queue(d.sql.Dynamic, r.dynamic, r.windows).Query(appendRows(&stored.dynamic))
	}
	if len(r.slots) > 0 {
		d.queueSlots(q, &r, len(reqs), &stored)
	}
	if r.needsSlots || len(reqs) > 0 && !d.foundJob {
		b.running = map[runID]bool{}
		var job int64
		var at time.Time
		q.Queue(d.sql.Running, r.jobs).Query(eachRow(func() { b.running[runID{job, at.UnixMicro()}] = true }, &job, &at))
	}
	if len(reqs) > 0 {
		var id waiterID
		var w waiterRow
		q.Queue(d.sql.WaitersOfJobs, r.jobs).Query(eachRow(func() { b.waiters[id] = w },
			&id.key, &id.job, &w.since, &w.wake, &w.earliest, &w.bucket, &w.inWorker, &w.version))
	}
	if err := conn.SendBatch(ctx, q).Close(); err != nil {
		return nil, err
	}
	if err := b.prepare(stored); err != nil {
		return nil, err
	}
	missing := false
	eachNeed(reqs, func(_ *request, n *need) { missing = missing || b.rows[n.id] == nil })
	if missing {
		d.forgetIDs(reqs)
		return nil, errRemoved
	}
	return b, nil
}

// queueSlots queues the statements that read what holds the mutexes and semaphores, and what waits for them.
func (d *database) queueSlots(q *pgx.Batch, r *rowsToRead, reqs int, stored *storedRows) {
	enough := make([]int64, len(r.slots))
	for i, key := range r.slots {
		enough[i] = 2*d.liveHolders[key] + fewHolders
	}
	q.Queue(d.sql.Overdue, r.slots, enough, reqs)
	q.Queue(d.sql.Holders, r.slots, enough, reqs).Query(appendRows(&stored.holders))
	// This must come after the statement above, which counts the rows. A row that is removed in between, which needs no
	// lock, would otherwise be counted as one less, although it was not read.
	if len(r.owners) > 0 {
		q.Queue(d.sql.OwnHolders, r.ownerKeys, r.owners).Query(appendRows(&stored.holders))
	}
	var key int64
	var w waiter
	q.Queue(d.sql.Waiters, r.slots).Query(eachRow(func() { stored.waiters[key] = append(stored.waiters[key], w) },
		&key, &w.job, &w.wake, &w.earliest, &w.inWorker))
}

// forgetIDs makes resolve look up again what the requests need.
func (d *database) forgetIDs(reqs []*request) {
	eachNeed(reqs, func(_ *request, n *need) {
		for _, ref := range n.refs() {
			delete(d.ids, ref)
		}
	})
}

// readKeys makes a keyRow of each row, with empty slots for a mutex or a semaphore.
func (d *database) readKeys(b *batch, rows pgx.Rows) error {
	var (
		row     keyRow
		version int64
		options []byte
		hold    int64
	)
	_, err := pgx.ForEachRow(rows, []any{&row.id, &row.limiter, &row.ref.Type, &version, &options, &row.ref.Key, &row.state, &hold, &row.waiting}, func() error {
		def, ok := d.definitions[row.limiter]
		if !ok || def.version != version {
			var err error
			if def, err = readRules(row.ref.Type, options); err != nil {
				return err
			}
			def.version = version
			if len(d.definitions) > maxIDs {
				clear(d.definitions)
			}
			d.definitions[row.limiter] = def
		}
		r := row
		r.rules, r.storedWaiting = def, row.waiting
		if r.ref.Type.hasSlots() {
			r.slots = &slots{max: def.maxCount, measuredHold: hold, waiting: row.waiting, owners: map[string]int64{}}
			r.keptOwners = map[string]bool{}
		}
		b.rows[r.id] = &r
		return nil
	})
	return err
}
