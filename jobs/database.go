package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errRemoved means that a row of jobs_keys whose ID was remembered no longer exists.
var errRemoved = errors.New("jobs: a key was removed")

// errUnreadable means that a row has what this program cannot read, because a newer program has written it.
var errUnreadable = errors.New("jobs: a limiter cannot be read")

// A database runs batches. Its methods are called by one goroutine at a time.
type database struct {
	pool         *pgxpool.Pool
	sql          *statements
	lease        time.Duration
	recheckLater func(keys []int64, delay time.Duration) // see batcher.recheckLater
	ids          map[Ref]int64                           // IDs of rows of jobs_keys
	definitions  map[int64]rules                         // by limiter
	foundJob     bool                                    // some job of a request was found: the database is that of the River client
}

// maxIDs bounds each map of a database, but for what one batch adds.
const maxIDs = 100_000

// resolve fills in the IDs of all needs, and makes missing rows. A request that names an unknown limiter gets its error.
func (d *database) resolve(ctx context.Context, reqs []*request) error {
	if len(d.ids) >= maxIDs { // before it is known what is missing: IDs that are cleared are
		clear(d.ids)
	}
	missing := map[Ref]bool{}
	eachNeed(reqs, func(_ *request, n *need) {
		for _, ref := range n.refs() {
			if _, ok := d.ids[ref]; !ok {
				missing[ref] = true
			}
		}
	})
	if len(missing) > 0 {
		if err := d.createKeys(ctx, missing); err != nil {
			return err
		}
	}
	eachNeed(reqs, func(req *request, n *need) {
		limiter := Ref{Type: n.ref.Type, Name: n.ref.Name}
		id, ok := d.ids[n.ref]
		if n.ref.Type == DynamicWindow {
			n.dynamicRow = d.ids[limiter]
			ok = ok && n.dynamicRow != 0
		}
		if n.id = id; !ok && req.decision.err == nil {
			req.decision.err = fmt.Errorf("%w: %v: it was never set, or has been removed", ErrUnknownLimiter, limiter)
		}
	})
	return nil
}

// createKeys makes missing rows of jobs_keys, and mutexes, and remembers their IDs. Other limiters must have been set.
func (d *database) createKeys(ctx context.Context, missing map[Ref]bool) error {
	var mutexes, types, names, keys []string
	var refs []Ref
	for ref := range missing {
		if ref.Type == Mutex {
			mutexes = append(mutexes, ref.Name)
		}
		refs = append(refs, ref)
		types, names, keys = append(types, string(ref.Type)), append(names, ref.Name), append(keys, ref.Key)
	}
	q := &pgx.Batch{}
	if len(mutexes) > 0 {
		slices.Sort(mutexes)
		q.Queue(d.sql.Mutexes, slices.Compact(mutexes))
	}
	q.Queue(d.sql.Keys, types, names, keys)
	var place, id int64
	q.Queue(d.sql.IDs, types, names, keys).Query(eachRow(func() { d.ids[refs[place-1]] = id }, &place, &id))
	return d.pool.SendBatch(ctx, q).Close()
}

// run decides the requests and writes the releases, in one transaction. At most room jobs wait in their workers. If run
// returns an error, it is that of all requests and releases.
func (d *database) run(ctx context.Context, reqs []*request, releases []release, room int) error {
	for try := 1; ; try++ {
		err := d.runOnce(ctx, reqs, releases, room)
		if err == nil || ctx.Err() != nil || try == maxTries {
			return err
		}
		switch {
		case isDeadlock(err):
		case errors.Is(err, errRemoved), hasCode(err, "23503"): // foreign key: the limiter was removed meanwhile
			clear(d.ids)
		default:
			return err
		}
	}
}

func (d *database) runOnce(ctx context.Context, all []*request, releases []release, room int) error {
	for _, req := range all {
		req.decision = decision{}
	}
	if err := d.resolve(ctx, all); err != nil {
		return err
	}
	reqs := slices.DeleteFunc(slices.Clone(all), func(req *request) bool { return req.decision.err != nil })
	if len(reqs) == 0 && len(releases) == 0 {
		return nil
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // the pool closes a connection whose transaction is open
	again, later, err := d.transact(ctx, conn, reqs, releases, room)
	if err != nil {
		if !conn.Conn().IsClosed() && conn.Conn().PgConn().TxStatus() != 'I' {
			_, _ = conn.Exec(ctx, "rollback")
		}
		return err
	}
	d.recheckLater(again, 0)
	d.recheckLater(later, recordDelay)
	return nil
}

// transact runs the transaction. It also returns the keys to be rechecked at once, and when River has recorded how runs have ended.
func (d *database) transact(ctx context.Context, conn *pgxpool.Conn, reqs []*request, releases []release, room int) (again, later []int64, err error) {
	b, err := d.load(ctx, conn, reqs, releases)
	if err != nil {
		return nil, nil, err
	}
	reqs = d.decidable(b, reqs)
	b.handOverRoom = room
	b.decide(reqs, d.lease.Microseconds())
	again, later, err = d.bringBack(ctx, conn, b)
	for _, req := range reqs {
		req.decision.written = time.Now()
	}
	if err == nil {
		err = d.save(ctx, conn, b)
	}
	return append(again, b.unlocked...), later, err
}

// Answers of the statement BringBack for a job.
const (
	comes    = iota // River runs the job next
	notYet          // River has not yet recorded that the job was snoozed
	finished        // the job never comes back
	// Otherwise the job comes back at an unknown time, as after a failure.
)

// bringBack makes River run the waiters whose turn is near. It returns the keys to be rechecked: at once because a waiter will not
// come and others have its turn, or later.
func (d *database) bringBack(ctx context.Context, conn *pgxpool.Conn, b *batch) (again, later []int64, err error) {
	next := b.toBringBack()
	var ids []int64
	for _, w := range next {
		ids = append(ids, w.Job)
	}
	if len(ids) == 0 {
		return nil, nil, nil
	}
	answers := map[int64]int{}
	var id int64
	var answer int
	if err := query(ctx, conn, eachRow(func() { answers[id] = answer }, &id, &answer), d.sql.BringBack, ids); err != nil {
		return nil, nil, err
	}
	var ended []int64
	for _, w := range next {
		switch answers[w.Job] {
		case comes:
			b.setWake(w, b.now)
		case notYet:
			later = append(later, w.Key)
		case finished:
			ended = append(ended, w.Key)
		default:
			b.setWake(w, b.now-2*gracePeriod) // as if it had not come at its time
			again = append(again, w.Key)
		}
	}
	if len(ended) == 0 {
		return again, later, nil
	}
	// Thousands may have ended while they waited: of a key, all that were read leave at once.
	var gone waiterID
	err = query(ctx, conn, eachRow(func() { b.removeFinished(gone) }, &gone.Key, &gone.Job), d.sql.FinishedWaiters, sorted(ended))
	return append(again, ended...), later, err
}

// decidable returns the requests that can be decided, and sets the error of the others: their jobs are not running in this database,
// or what they need cannot be read.
func (d *database) decidable(b *batch, reqs []*request) []*request {
	eachNeed(reqs, func(req *request, n *need) {
		req.decision.err = cmp.Or(req.decision.err, b.unreadable[n.id], b.unreadable[n.dynamicRow])
	})
	return slices.DeleteFunc(reqs, func(req *request) bool {
		switch {
		case b.running[req.run()]:
			d.foundJob = true
		case b.running[runID{job: req.job}]:
			req.decision.err = fmt.Errorf("%w: job %d: this run of the job has been ended, by River, which rescues jobs, or by hand", ErrForeignJob, req.job)
		case b.running != nil:
			req.decision.err = fmt.Errorf("%w: job %d: unless it has been deleted, the pool of the Throttler must lead to the database and the schema "+
				"of the River client, on PostgreSQL", ErrForeignJob, req.job)
		}
		return req.decision.err != nil
	})
}

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

	endedJobs []int64 // with endedAt and unused: runs whose slots are released
	endedAt   []time.Time
	unused    []bool

	strictJobs []int64 // with strictAt: runs in strict mode, not the first of their jobs
	strictAt   []time.Time
	needJobs   []int64 // with needKeys: what these runs need
	needKeys   []int64
}

func rowsOf(reqs []*request, releases []release) (r rowsToRead) {
	for _, req := range reqs {
		r.jobs = append(r.jobs, req.job)
		if req.strict && !req.first {
			r.strictJobs, r.strictAt = append(r.strictJobs, req.job), append(r.strictAt, req.attempted)
		}
	}
	eachNeed(reqs, func(req *request, n *need) {
		if req.strict && !req.first {
			r.needJobs, r.needKeys = append(r.needJobs, req.job), append(r.needKeys, n.id)
		}
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
		r.unused = append(r.unused, ended.unused)
		r.slots, r.lock = append(r.slots, ended.contended...), append(r.lock, ended.contended...)
	}
	r.slots, r.lock, r.dynamic, r.windows = sorted(r.slots), sorted(r.lock), sorted(r.dynamic), sorted(r.windows)
	return r
}

// load begins the transaction, locks what the requests need, and reads it.
func (d *database) load(ctx context.Context, conn *pgxpool.Conn, reqs []*request, releases []release) (*batch, error) {
	b, r := newBatch(0), rowsOf(reqs, releases)
	stored := storedRows{held: map[holderID]int64{}}
	q := &pgx.Batch{}
	// At a higher level, whatever the default of the pool, the role or the database is, the statements after the lock would
	// not see what the transaction that had the lock before has written.
	q.Queue("begin isolation level read committed")
	q.Queue(d.sql.Settings)
	q.Queue(d.sql.Lock, r.lock)
	q.Queue(d.sql.Locked, r.lock).Query(func(rows pgx.Rows) error { return d.readKeys(b, rows) })
	if len(r.dynamic) > 0 { // the limiter's row keeps out other batches, and these locks keep cleanUp from removing the keys
		q.Queue(d.sql.Lock, r.windows)
	}
	if len(releases) > 0 {
		var id holderID
		var us int64
		var waited bool
		q.Queue(d.sql.Released, r.endedJobs, r.endedAt, r.unused).Query(eachRow(func() {
			stored.held[id] = max(stored.held[id], us)
			if _, locked := slices.BinarySearch(r.lock, id.Key); waited && !locked {
				b.unlocked = append(b.unlocked, id.Key)
			}
		}, &id.Key, &id.Owner, &us, &waited))
	}
	if len(r.strictJobs) > 0 {
		var key int64
		q.Queue(d.sql.OtherKeys, r.strictJobs, r.strictAt, r.needJobs, r.needKeys).Query(eachRow(func() {
			b.unlocked = append(b.unlocked, key)
		}, &key))
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
		var at *time.Time
		q.Queue(d.sql.Running, r.jobs).Query(eachRow(func() {
			b.running[runID{job: job}] = true
			if at != nil {
				b.running[runID{job, at.UnixMicro()}] = true
			}
		}, &job, &at))
	}
	if len(reqs) > 0 {
		q.Queue(d.sql.WaitersOfJobs, r.jobs).Query(appendRows(&stored.ofJobs))
	}
	if err := conn.SendBatch(ctx, q).Close(); err != nil {
		return nil, err
	}
	b.prepare(stored)
	missing := false
	eachNeed(reqs, func(_ *request, n *need) {
		missing = missing || b.rows[n.id] == nil && b.unreadable[n.id] == nil && b.unreadable[n.dynamicRow] == nil
	})
	if missing {
		return nil, errRemoved
	}
	return b, nil
}

// queueSlots queues the statements that read what holds the mutexes and semaphores, and what waits for them.
func (d *database) queueSlots(q *pgx.Batch, r *rowsToRead, reqs int, stored *storedRows) {
	q.Queue(d.sql.Overdue, r.slots, reqs)
	q.Queue(d.sql.Holders, r.slots, reqs).Query(appendRows(&stored.holders))
	// This must come after the statement above, which counts the rows. A row that is removed in between, which needs no
	// lock, would otherwise be counted as one less, although it was not read.
	if len(r.owners) > 0 {
		q.Queue(d.sql.OwnHolders, r.ownerKeys, r.owners).Query(appendRows(&stored.holders))
	}
	q.Queue(d.sql.Waiters, r.slots).Query(appendRows(&stored.waiters))
}

// readKeys makes a keyRow of each row, with empty slots for a mutex or a semaphore.
func (d *database) readKeys(b *batch, rows pgx.Rows) error {
	var (
		row     keyRow
		version int64
		options []byte
		hold    int64
		waiting int64
	)
	_, err := pgx.ForEachRow(rows, []any{&row.id, &row.limiter, &row.ref.Type, &version, &options, &row.ref.Key, &row.state, &hold, &waiting}, func() error {
		def, ok := d.definitions[row.limiter]
		if !ok || def.version != version {
			var err error
			if def, err = readRules(row.ref.Type, options); err != nil {
				b.unreadable[row.id] = fmt.Errorf("%w: %w", errUnreadable, err)
				return nil
			}
			def.version = version
			if len(d.definitions) > maxIDs {
				clear(d.definitions)
			}
			d.definitions[row.limiter] = def
		}
		r := row
		r.rules = def
		if r.ref.Type.hasSlots() {
			r.slots = &slots{limit: def.maxCount, measuredHold: hold, waiting: waiting, owners: map[string]int64{}}
			r.keptOwners = map[string]int64{}
		}
		b.rows[r.id] = &r
		return nil
	})
	return err
}

// save writes what was decided and ends the transaction.
func (d *database) save(ctx context.Context, conn *pgxpool.Conn, b *batch) error {
	q := &pgx.Batch{}
	var keys []keyState
	for _, id := range slices.Sorted(maps.Keys(b.rows)) {
		switch row := b.rows[id]; {
		case row.window != nil && row.window.Changed:
			keys = append(keys, keyState{ID: id, State: row.window.String(), Expires: row.window.Expires()})
		case row.slots != nil && row.slots.changed:
			keys = append(keys, keyState{ID: id, Hold: row.slots.measuredHold, Waiting: row.slots.waiting, Expires: b.now + (24 * time.Hour).Microseconds()})
		}
	}
	if len(keys) > 0 {
		q.Queue(d.sql.SaveKeys, columns(keys)...)
	}
	if len(b.deadRows) > 0 {
		q.Queue(d.sql.RemoveHolders, columns(b.deadRows)...)
	}
	if len(b.granted) > 0 {
		q.Queue(d.sql.SaveHolders, columns(slices.Collect(maps.Values(b.granted)))...)
	}
	if len(b.removedWaiters) > 0 {
		q.Queue(d.sql.RemoveWaiters, columns(slices.Collect(maps.Keys(b.removedWaiters)))...)
	}
	if len(b.savedWaiters) > 0 {
		q.Queue(d.sql.SaveWaiters, columns(slices.Collect(maps.Values(b.savedWaiters)))...)
	}
	q.Queue("commit")
	return conn.SendBatch(ctx, q).Close()
}

// sorted sorts ids in place and returns them without duplicates.
func sorted(ids []int64) []int64 {
	slices.Sort(ids)
	return slices.Compact(ids)
}
