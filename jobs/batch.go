package jobs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errGone: a row of jobs_keys that was known is there no more.
var errGone = errors.New("jobs: a key was removed")

// A database runs batches. Its methods but forget are called by one goroutine at a time.
type database struct {
	pool  *pgxpool.Pool
	sql   *statements
	lease time.Duration
	lead  func() int64
	later func(keys []int64, delay time.Duration) // has keys looked at again, for those who wait
	ids   map[Ref]int64                           // rows of jobs_keys that are known
	read  map[int64]readDefinition                // by limiter
	seen  bool                                    // a job was found in the database

	live map[int64]int64 // by key, how many rows counted when all were looked at; 0: few
}

// fewHolders is how many rows of jobs_holders a key may have before those that do not count any more are removed.
const fewHolders = 1000

type readDefinition struct {
	version int64
	rules   rules
}

// maxIDs bounds how many rows are remembered.
const maxIDs = 100_000

// resolve fills in the rows of all needs and makes those that are missing. An ask that names what does not exist gets its
// error.
func (d *database) resolve(ctx context.Context, asks []*ask) error {
	missing := map[Ref]bool{}
	each(asks, func(_ *ask, n *need) {
		for _, ref := range n.refs() {
			if _, ok := d.ids[ref]; !ok {
				missing[ref] = true
			}
		}
	})
	if len(missing) > 0 {
		if err := d.make(ctx, missing); err != nil {
			return err
		}
	}
	each(asks, func(a *ask, n *need) {
		id, ok := d.ids[n.ref]
		if n.ref.Type == DynamicWindow {
			n.resource = d.ids[Ref{Type: n.ref.Type, Name: n.ref.Name}]
			ok = ok && n.resource != 0
		}
		if n.id = id; !ok && a.result.err == nil {
			a.result.err = fmt.Errorf("%w: %v: it was never set, or has been removed", ErrUnknownLimiter, Ref{Type: n.ref.Type, Name: n.ref.Name})
		}
	})
	return nil
}

// refs returns what a need has rows for: a dynamic window has one for all its keys, too, which is locked.
func (n *need) refs() []Ref {
	if n.ref.Type == DynamicWindow {
		return []Ref{n.ref, {Type: n.ref.Type, Name: n.ref.Name}}
	}
	return []Ref{n.ref}
}

func each(asks []*ask, f func(*ask, *need)) {
	for _, a := range asks {
		for i := range a.needs {
			f(a, &a.needs[i])
		}
	}
}

func (d *database) make(ctx context.Context, missing map[Ref]bool) error {
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
		q.Queue(d.sql.mutexes, slices.Compact(mutexes))
	}
	q.Queue(d.sql.keys, types, names, keys)
	if len(d.ids)+len(refs) > maxIDs {
		clear(d.ids)
	}
	q.Queue(d.sql.ids, types, names, keys).Query(func(rows pgx.Rows) error {
		var place, id int64
		_, err := pgx.ForEachRow(rows, []any{&place, &id}, func() error {
			d.ids[refs[place-1]] = id
			return nil
		})
		return err
	})
	return d.pool.SendBatch(ctx, q).Close()
}

// A release ends a run's hold of what it holds in relaxed mode.
type release struct {
	run       run
	attempted time.Time
	contended []int64
}

// do answers the asks and releases. At most room jobs that ask are told to wait in their workers. An error is of all
// asks and releases.
func (d *database) do(ctx context.Context, asks []*ask, releases []release, room int) error {
	for try := 1; ; try++ {
		err := d.try(ctx, asks, releases, room)
		if err == nil || ctx.Err() != nil || try == 5 {
			return err
		}
		var pg *pgconn.PgError
		switch {
		case errors.Is(err, errGone):
		case errors.As(err, &pg) && (pg.Code == "40P01" || pg.Code == "40001"): // deadlock, serialization
		case errors.As(err, &pg) && pg.Code == "23503": // foreign key: the limiter was removed meanwhile
			clear(d.ids)
		default:
			return err
		}
	}
}

func (d *database) try(ctx context.Context, all []*ask, releases []release, room int) error {
	for _, a := range all {
		a.result = verdict{}
	}
	if err := d.resolve(ctx, all); err != nil {
		return err
	}
	asks := slices.DeleteFunc(slices.Clone(all), func(a *ask) bool { return a.result.err != nil })
	if len(asks) == 0 && len(releases) == 0 {
		return nil
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // the pool closes a connection whose transaction is open
	b, err := d.load(ctx, conn, asks, releases)
	if err != nil {
		return d.rollback(ctx, conn, err)
	}
	d.remember(b)
	asks = d.foreign(b, asks)
	b.room = room
	b.decide(asks, d.lease.Microseconds())
	again, err := d.bringBack(ctx, conn, b)
	if err == nil {
		err = d.save(ctx, conn, b)
	}
	if err != nil {
		return d.rollback(ctx, conn, err)
	}
	d.later(b.unseen, 0)
	d.later(again, recorded)
	return nil
}

// bringBack has River bring back the waiters whose turn is near. It returns the keys that are to be looked at again soon.
func (d *database) bringBack(ctx context.Context, conn *pgxpool.Conn, b *batch) (again []int64, err error) {
	for range 3 { // again if there were waiters that do not come, for those behind them
		var ids []int64
		next := b.toBringBack(d.lead())
		for _, ws := range next {
			for _, w := range ws {
				ids = append(ids, w.job)
			}
		}
		if len(ids) == 0 {
			return again, nil
		}
		rows, err := conn.Query(ctx, d.sql.pull, ids)
		if err != nil {
			return nil, err
		}
		answers := map[int64]int{}
		var id int64
		var answer int
		if _, err := pgx.ForEachRow(rows, []any{&id, &answer}, func() error {
			answers[id] = answer
			return nil
		}); err != nil {
			return nil, err
		}
		var never []int64
		more := false
		for key, ws := range next {
			for _, w := range ws {
				switch answers[w.job] {
				case 0:
					b.comes(key, w, b.now)
				case 1:
					again = append(again, key)
				case 2:
					never, more = append(never, key), true
				default:
					b.comes(key, w, b.now-2*maxPatience) // as if it had not come when it should
					more = true
				}
			}
		}
		if !more {
			return again, nil
		}
		again = append(again, never...) // there may be more behind those that were read
		if rows, err = conn.Query(ctx, d.sql.lost, sorted(never)); err != nil {
			return nil, err
		}
		var p place
		if _, err := pgx.ForEachRow(rows, []any{&p.key, &p.job}, func() error {
			b.forget(p)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return again, nil
}

func (d *database) rollback(ctx context.Context, conn *pgxpool.Conn, err error) error {
	if !conn.Conn().IsClosed() && conn.Conn().PgConn().TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "rollback")
	}
	return err
}

// remember notes how many holders keys have that have many.
func (d *database) remember(b *batch) {
	for id, row := range b.rows {
		if row.slots == nil || row.slots.others > 0 {
			continue
		}
		delete(d.live, id)
		if n := int64(len(row.slots.owners)); n > fewHolders/2 && len(d.live) < maxIDs {
			d.live[id] = n
		}
	}
}

// foreign answers the asks of jobs that are not running in this database.
func (d *database) foreign(b *batch, asks []*ask) []*ask {
	if b.running == nil {
		return asks
	}
	return slices.DeleteFunc(asks, func(a *ask) bool {
		if a.leaves {
			return false
		}
		if b.running[run{a.job, a.attempted.UnixMicro()}] {
			d.seen = true
			return false
		}
		a.result.err = fmt.Errorf("%w: job %d: the pool of the Throttler must lead to the database and the schema of the River client, "+
			"on PostgreSQL", ErrForeignJob, a.job)
		return true
	})
}

func newBatch(now int64) *batch {
	return &batch{
		now: now, rows: map[int64]*keyRow{}, dynamic: map[int64]*resource{}, known: map[place]waiting{},
		keysOf: map[int64][]int64{}, hold: map[slot]holder{}, gone: map[place]bool{}, wait: map[place]waiting{},
	}
}

// load begins the transaction, locks what the asks need, and reads it.
func (d *database) load(ctx context.Context, conn *pgxpool.Conn, asks []*ask, releases []release) (*batch, error) {
	b := newBatch(0)
	var lock, slotKeys, resources, windows, askJobs []int64
	var ownerKeys []int64
	var owners []string
	holding := false
	for _, a := range asks {
		askJobs = append(askJobs, a.job)
	}
	each(asks, func(a *ask, n *need) {
		switch {
		case n.resource != 0:
			resources, windows = append(resources, n.resource), append(windows, n.id)
			lock = append(lock, n.resource)
		case n.ref.Type.slots():
			holding = true
			slotKeys = append(slotKeys, n.id)
			if !a.first || n.named { // else it holds nothing yet
				ownerKeys, owners = append(ownerKeys, n.id), append(owners, n.owner)
			}
			lock = append(lock, n.id)
		default:
			lock = append(lock, n.id)
		}
	})
	var endJobs []int64
	var endAttempted []time.Time
	for _, r := range releases {
		endJobs, endAttempted = append(endJobs, r.run.job), append(endAttempted, r.attempted)
		slotKeys, lock = append(slotKeys, r.contended...), append(lock, r.contended...)
	}
	slotKeys, lock, resources = sorted(slotKeys), sorted(lock), sorted(resources)

	q := &pgx.Batch{}
	// At any other level the statements after the lock would not see what the last one that had it has written. A pool, a
	// role or a database can have another default.
	q.Queue("begin isolation level read committed")
	q.Queue(d.sql.settings)
	q.Queue(d.sql.lock, lock).Query(func(rows pgx.Rows) error { return d.readKeys(b, rows) })
	if len(resources) > 0 { // the resource keeps other batches away, and this keeps the sweep from removing what has expired
		q.Queue(d.sql.lockWindows, sorted(windows))
	}
	held := map[slot]int64{} // how long
	if len(releases) > 0 {
		q.Queue(d.sql.released, endJobs, endAttempted).Query(func(rows pgx.Rows) error {
			var s slot
			var us int64
			var waited bool
			_, err := pgx.ForEachRow(rows, []any{&s.key, &s.owner, &us, &waited}, func() error {
				held[s] = max(held[s], us)
				if _, locked := slices.BinarySearch(lock, s.key); waited && !locked {
					b.unseen = append(b.unseen, s.key)
				}
				return nil
			})
			return err
		})
	}
	q.Queue(d.sql.clock).QueryRow(func(row pgx.Row) error { return row.Scan(&b.now) })
	q.Queue(d.sql.fence).QueryRow(func(row pgx.Row) error { return row.Scan(&b.fence) })
	var parts []part
	if len(resources) > 0 {
		q.Queue(d.sql.dynamic, resources, windows).Query(func(rows pgx.Rows) (err error) {
			parts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[part])
			return err
		})
	}
	var holders []holderRow
	var waiters []waiterRow
	if len(slotKeys) > 0 {
		enough := make([]int64, len(slotKeys))
		for i, key := range slotKeys {
			enough[i] = 2*d.live[key] + fewHolders
		}
		q.Queue(d.sql.overdue, slotKeys, enough, len(asks))
		q.Queue(d.sql.holders, slotKeys, enough, len(asks)).Query(func(rows pgx.Rows) (err error) {
			holders, err = pgx.CollectRows(rows, pgx.RowToStructByPos[holderRow])
			return err
		})
		// After the rows were counted: one that is removed in between, which needs no lock, must not count as one less.
		if len(owners) > 0 {
			q.Queue(d.sql.mine, ownerKeys, owners).Query(func(rows pgx.Rows) error {
				mine, err := pgx.CollectRows(rows, pgx.RowToStructByPos[holderRow])
				holders = append(holders, mine...)
				return err
			})
		}
		q.Queue(d.sql.waiters, slotKeys).Query(func(rows pgx.Rows) (err error) {
			waiters, err = pgx.CollectRows(rows, pgx.RowToStructByPos[waiterRow])
			return err
		})
	}
	if holding || !d.seen && len(asks) > 0 {
		b.running = map[run]bool{}
		q.Queue(d.sql.running, askJobs).Query(func(rows pgx.Rows) error {
			var id int64
			var at time.Time
			_, err := pgx.ForEachRow(rows, []any{&id, &at}, func() error {
				b.running[run{id, at.UnixMicro()}] = true
				return nil
			})
			return err
		})
	}
	if len(asks) > 0 {
		q.Queue(d.sql.known, askJobs).Query(func(rows pgx.Rows) error {
			var p place
			var w waiting
			_, err := pgx.ForEachRow(rows, []any{&p.key, &p.job, &w.since, &w.wake, &w.earliest, &w.bucket, &w.present}, func() error {
				b.known[p] = w
				return nil
			})
			return err
		})
	}
	if err := conn.SendBatch(ctx, q).Close(); err != nil {
		return nil, err
	}
	for _, a := range asks {
		for _, n := range a.needs {
			if row := n.id; n.resource != 0 && b.rows[n.resource] == nil || n.resource == 0 && b.rows[row] == nil {
				d.forget(asks)
				return nil, errGone
			}
		}
	}
	if err := b.prepare(held, parts, holders, waiters); err != nil {
		return nil, err
	}
	for _, a := range asks {
		for _, n := range a.needs {
			if b.rows[n.id] == nil {
				d.forget(asks)
				return nil, errGone
			}
		}
	}
	return b, nil
}

// forget makes resolve look again for what the asks need.
func (d *database) forget(asks []*ask) {
	each(asks, func(_ *ask, n *need) {
		for _, ref := range n.refs() {
			delete(d.ids, ref)
		}
	})
}

func (d *database) readKeys(b *batch, rows pgx.Rows) error {
	var (
		row     keyRow
		typ     string
		version int64
		options []byte
		hold    int64
	)
	_, err := pgx.ForEachRow(rows, []any{&row.id, &row.limiter, &typ, &version, &options, &row.ref.Key, &row.state, &hold, &row.waiting}, func() error {
		def, ok := d.read[row.limiter]
		if !ok || def.version != version {
			r, err := readRules(Type(typ), options)
			if err != nil {
				return err
			}
			def = readDefinition{version: version, rules: r}
			if len(d.read) > maxIDs {
				clear(d.read)
			}
			d.read[row.limiter] = def
		}
		r := row
		r.ref.Type, r.rules, r.before = Type(typ), def.rules, row.waiting
		if r.ref.Type.slots() {
			r.slots = &slots{max: def.rules.maxCount, hold: hold, waiting: row.waiting, owners: map[string]int64{}}
			r.kept = map[string]bool{}
		}
		b.rows[r.id] = &r
		return nil
	})
	return err
}

type part struct {
	ID, Limiter int64
	Key, State  string
	Waiting     int64
}

// countRow is the mode of a holderRow that says how many rows there are: in Acquired.
const countRow = -1

type holderRow struct {
	Key       int64
	Owner     string
	Job       int64
	Mode      int16
	Live      bool
	Acquired  int64
	Finalized int64
}

type waiterRow struct {
	Key, Job, Wake, Earliest int64
	Present                  bool
}

// prepare makes slots and windows of what was read.
func (b *batch) prepare(held map[slot]int64, parts []part, holders []holderRow, waiters []waiterRow) (err error) {
	byLimiter := map[int64]*resource{}
	for _, row := range b.rows {
		switch {
		case row.slots != nil:
		case row.rules.dynamic != nil:
			d := &resource{rules: row.rules, keys: map[string]*window{}, now: b.now / row.rules.bucket}
			b.dynamic[row.id], byLimiter[row.limiter] = d, d
		default:
			if row.window, err = readWindow(row.state, row.rules, b.now); err != nil {
				return err
			}
		}
	}
	for _, p := range parts {
		d := byLimiter[p.Limiter]
		if d == nil || p.Key == "" {
			continue
		}
		w, err := readWindow(p.State, d.rules, b.now)
		if err != nil {
			return err
		}
		d.keys[p.Key] = w
		d.now = max(d.now, w.now)
		b.rows[p.ID] = &keyRow{id: p.ID, limiter: p.Limiter, ref: Ref{Type: DynamicWindow, Key: p.Key}, rules: d.rules, state: p.State,
			waiting: p.Waiting, before: p.Waiting, window: w}
	}
	for _, d := range b.dynamic {
		for _, w := range d.keys {
			w.now = d.now // one clock for all keys
		}
	}
	seen, counted := map[slot]bool{}, map[int64]int64{}
	for _, h := range holders {
		row := b.rows[h.Key]
		if row == nil || row.slots == nil {
			continue
		}
		if h.Mode == countRow {
			counted[h.Key] += h.Acquired
			continue
		}
		s := slot{h.Key, h.Owner, h.Job}
		if seen[s] {
			continue
		}
		seen[s] = true
		counted[h.Key]--
		if !h.Live {
			b.dead = append(b.dead, holder{key: h.Key, owner: h.Owner, job: h.Job})
			if h.Mode == strictRow && row.waiting > 0 {
				ended := b.now
				if h.Finalized > 0 {
					ended = min(ended, max(h.Finalized, h.Acquired))
				}
				row.slots.learn(ended - h.Acquired)
			}
			continue
		}
		if since, ok := row.slots.owners[h.Owner]; !ok || h.Acquired < since {
			row.slots.owners[h.Owner] = h.Acquired
		}
		if h.Mode == keptRow {
			row.kept[h.Owner] = true
		}
	}
	for key, others := range counted {
		b.rows[key].slots.others = max(others, 0)
	}
	for s, us := range held {
		row := b.rows[s.key]
		if row == nil || row.slots == nil {
			continue
		}
		if _, still := row.slots.owners[s.owner]; !still { // else others of the owner hold the slot
			row.slots.learn(us)
		}
	}
	for _, w := range waiters {
		if row := b.rows[w.Key]; row != nil && row.slots != nil {
			row.slots.waiters = append(row.slots.waiters, waiter{job: w.Job, wake: w.Wake, earliest: w.Earliest, present: w.Present})
		}
	}
	for _, row := range b.rows {
		if row.slots != nil && len(row.slots.waiters) < maxWaiters {
			row.waiting = int64(len(row.slots.waiters))
			row.slots.waiting = row.waiting
		}
	}
	return nil
}

// save writes what was decided and ends the transaction.
func (d *database) save(ctx context.Context, conn *pgxpool.Conn, b *batch) error {
	q := &pgx.Batch{}
	var ids, holds, waits, expires []int64
	var states []string
	for _, id := range slices.Sorted(maps.Keys(b.rows)) {
		row := b.rows[id]
		state, hold, expiry, changed := row.state, int64(0), b.now+(24*time.Hour).Microseconds(), row.waiting != row.before
		if row.window != nil && (changed || row.window.changed) {
			state, expiry, changed = row.window.String(), row.window.expires(), true
		}
		if s := row.slots; s != nil {
			hold, changed = s.hold, changed || s.learned
		}
		if !changed {
			continue
		}
		ids, states, holds = append(ids, id), append(states, state), append(holds, hold)
		waits, expires = append(waits, row.waiting), append(expires, expiry)
	}
	if len(ids) > 0 {
		q.Queue(d.sql.update, ids, states, holds, waits, expires)
	}
	if len(b.dead) > 0 {
		keys, owners, jobs := columns(b.dead)
		q.Queue(d.sql.dead, keys, owners, jobs)
	}
	if len(b.adopt) > 0 {
		keys, owners, _ := columns(b.adopt)
		q.Queue(d.sql.adopt, keys, owners)
	}
	if len(b.hold) > 0 {
		held := slices.Collect(maps.Values(b.hold))
		keys, owners, jobs := columns(held)
		var attempted []time.Time
		var modes []int16
		var untils, fences, since []int64
		for _, h := range held {
			attempted, modes = append(attempted, h.attempted), append(modes, h.mode)
			untils, fences, since = append(untils, h.until), append(fences, h.fence), append(since, h.since)
		}
		q.Queue(d.sql.hold, keys, owners, jobs, attempted, modes, untils, fences, since)
	}
	if len(b.gone) > 0 {
		keys, jobs := placeColumns(maps.Keys(b.gone))
		q.Queue(d.sql.gone, keys, jobs)
	}
	if len(b.wait) > 0 {
		var keys, jobs, wakes, earliest, buckets []int64
		var present []bool
		for p, w := range b.wait {
			keys, jobs = append(keys, p.key), append(jobs, p.job)
			wakes, earliest = append(wakes, w.wake), append(earliest, w.earliest)
			buckets, present = append(buckets, w.bucket), append(present, w.present)
		}
		q.Queue(d.sql.wait, keys, jobs, wakes, earliest, buckets, present)
	}
	q.Queue("commit")
	return conn.SendBatch(ctx, q).Close()
}

func sorted(ids []int64) []int64 {
	slices.Sort(ids)
	return slices.Compact(ids)
}

func columns(hs []holder) (keys []int64, owners []string, jobs []int64) {
	for _, h := range hs {
		keys, owners, jobs = append(keys, h.key), append(owners, h.owner), append(jobs, h.job)
	}
	return keys, owners, jobs
}

func placeColumns(places iter.Seq[place]) (keys, jobs []int64) {
	for p := range places {
		keys, jobs = append(keys, p.key), append(jobs, p.job)
	}
	return keys, jobs
}
