package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// load begins the transaction, locks what the asks need, and reads it.
func (d *database) load(ctx context.Context, conn *pgxpool.Conn, reqs []*request, releases []release) (*batch, error) {
	b := newBatch(0)
	var lock, slotKeys, resources, windows, askJobs []int64
	var ownerKeys []int64
	var owners []string
	holding := false
	for _, req := range reqs {
		askJobs = append(askJobs, req.job)
	}
	eachNeed(reqs, func(req *request, n *need) {
		switch {
		case n.dynamicRow != 0:
			resources, windows = append(resources, n.dynamicRow), append(windows, n.id)
			lock = append(lock, n.dynamicRow)
		case n.ref.Type.hasSlots():
			holding = true
			slotKeys = append(slotKeys, n.id)
			if !req.first || n.named { // else it holds nothing yet
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
	held := map[holderID]int64{} // how long
	if len(releases) > 0 {
		q.Queue(d.sql.released, endJobs, endAttempted).Query(func(rows pgx.Rows) error {
			var s holderID
			var us int64
			var waited bool
			_, err := pgx.ForEachRow(rows, []any{&s.key, &s.owner, &us, &waited}, func() error {
				held[s] = max(held[s], us)
				if _, locked := slices.BinarySearch(lock, s.key); waited && !locked {
					b.unlocked = append(b.unlocked, s.key)
				}
				return nil
			})
			return err
		})
	}
	q.Queue(d.sql.clock).QueryRow(func(row pgx.Row) error { return row.Scan(&b.now) })
	q.Queue(d.sql.fence).QueryRow(func(row pgx.Row) error { return row.Scan(&b.fence) })
	var parts []dynamicKey
	if len(resources) > 0 {
		q.Queue(d.sql.dynamic, resources, windows).Query(func(rows pgx.Rows) (err error) {
			parts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[dynamicKey])
			return err
		})
	}
	var holders []readHolder
	var waiters []readWaiter
	if len(slotKeys) > 0 {
		enough := make([]int64, len(slotKeys))
		for i, key := range slotKeys {
			enough[i] = 2*d.liveHolders[key] + fewHolders
		}
		q.Queue(d.sql.overdue, slotKeys, enough, len(reqs))
		q.Queue(d.sql.holders, slotKeys, enough, len(reqs)).Query(func(rows pgx.Rows) (err error) {
			holders, err = pgx.CollectRows(rows, pgx.RowToStructByPos[readHolder])
			return err
		})
		// After the rows were counted: one that is removed in between, which needs no lock, must not count as one less.
		if len(owners) > 0 {
			q.Queue(d.sql.ownHolders, ownerKeys, owners).Query(func(rows pgx.Rows) error {
				mine, err := pgx.CollectRows(rows, pgx.RowToStructByPos[readHolder])
				holders = append(holders, mine...)
				return err
			})
		}
		q.Queue(d.sql.waiters, slotKeys).Query(func(rows pgx.Rows) (err error) {
			waiters, err = pgx.CollectRows(rows, pgx.RowToStructByPos[readWaiter])
			return err
		})
	}
	if holding || !d.foundJob && len(reqs) > 0 {
		b.running = map[runID]bool{}
		q.Queue(d.sql.running, askJobs).Query(func(rows pgx.Rows) error {
			var id int64
			var at time.Time
			_, err := pgx.ForEachRow(rows, []any{&id, &at}, func() error {
				b.running[runID{id, at.UnixMicro()}] = true
				return nil
			})
			return err
		})
	}
	if len(reqs) > 0 {
		q.Queue(d.sql.waitersOfJobs, askJobs).Query(func(rows pgx.Rows) error {
			var p waiterID
			var w waiterRow
			_, err := pgx.ForEachRow(rows, []any{&p.key, &p.job, &w.since, &w.wake, &w.earliest, &w.bucket, &w.inWorker}, func() error {
				b.waiters[p] = w
				return nil
			})
			return err
		})
	}
	if err := conn.SendBatch(ctx, q).Close(); err != nil {
		return nil, err
	}
	if err := b.prepare(held, parts, holders, waiters); err != nil {
		return nil, err
	}
	for _, req := range reqs {
		for _, n := range req.needs {
			if b.rows[n.id] == nil {
				d.forget(reqs)
				return nil, errGone
			}
		}
	}
	return b, nil
}

// forget makes resolve look again for what the asks need.
func (d *database) forget(reqs []*request) {
	eachNeed(reqs, func(_ *request, n *need) {
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
		def, ok := d.definitions[row.limiter]
		if !ok || def.version != version {
			r, err := readRules(Type(typ), options)
			if err != nil {
				return err
			}
			def = readDefinition{version: version, rules: r}
			if len(d.definitions) > maxIDs {
				clear(d.definitions)
			}
			d.definitions[row.limiter] = def
		}
		r := row
		r.ref.Type, r.rules, r.storedWaiting = Type(typ), def.rules, row.waiting
		if r.ref.Type.hasSlots() {
			r.slots = &slots{max: def.rules.maxCount, measuredHold: hold, waiting: row.waiting, owners: map[string]int64{}}
			r.keptOwners = map[string]bool{}
		}
		b.rows[r.id] = &r
		return nil
	})
	return err
}

type dynamicKey struct {
	ID, Limiter int64
	Key, State  string
	Waiting     int64
}

// countRow is the mode of a holderRow that says how many rows there are: in Acquired.
const countRow = -1

type readHolder struct {
	Key       int64
	Owner     string
	Job       int64
	Mode      int16
	Live      bool
	Acquired  int64
	Finalized int64
}

type readWaiter struct {
	Key, Job, Wake, Earliest int64
	Present                  bool
}

// prepare makes slots and windows of what was read.
func (b *batch) prepare(held map[holderID]int64, parts []dynamicKey, holders []readHolder, waiters []readWaiter) (err error) {
	byLimiter := map[int64]*dynamicWindow{}
	for _, row := range b.rows {
		switch {
		case row.slots != nil:
		case row.rules.dynamic != nil:
			d := &dynamicWindow{rules: row.rules, keys: map[string]*window{}, now: b.now / row.rules.bucket}
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
			waiting: p.Waiting, storedWaiting: p.Waiting, window: w}
	}
	for _, d := range b.dynamic {
		for _, w := range d.keys {
			w.now = d.now // one clock for all keys
		}
	}
	seen, counted := map[holderID]bool{}, map[int64]int64{}
	for _, h := range holders {
		row := b.rows[h.Key]
		if row == nil || row.slots == nil {
			continue
		}
		if h.Mode == countRow {
			counted[h.Key] += h.Acquired
			continue
		}
		s := holderID{h.Key, h.Owner, h.Job}
		if seen[s] {
			continue
		}
		seen[s] = true
		counted[h.Key]--
		if !h.Live {
			b.deadRows = append(b.deadRows, holderRow{key: h.Key, owner: h.Owner, job: h.Job})
			if h.Mode == strictRow && row.waiting > 0 {
				ended := b.now
				if h.Finalized > 0 {
					ended = min(ended, max(h.Finalized, h.Acquired))
				}
				row.slots.learnHold(ended - h.Acquired)
			}
			continue
		}
		if since, ok := row.slots.owners[h.Owner]; !ok || h.Acquired < since {
			row.slots.owners[h.Owner] = h.Acquired
		}
		if h.Mode == keptRow {
			row.keptOwners[h.Owner] = true
		}
	}
	for key, others := range counted {
		b.rows[key].slots.otherOwners = max(others, 0)
	}
	for s, us := range held {
		row := b.rows[s.key]
		if row == nil || row.slots == nil {
			continue
		}
		if _, still := row.slots.owners[s.owner]; !still { // else others of the owner hold the slot
			row.slots.learnHold(us)
		}
	}
	for _, w := range waiters {
		if row := b.rows[w.Key]; row != nil && row.slots != nil {
			row.slots.waiters = append(row.slots.waiters, waiter{job: w.Job, wake: w.Wake, earliest: w.Earliest, inWorker: w.Present})
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
