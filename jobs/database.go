package jobs

import (
	"context"
	"errors"
	"fmt"
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
	pool         *pgxpool.Pool
	sql          *statements
	lease        time.Duration
	lead         func() int64
	recheckLater func(keys []int64, delay time.Duration) // has keys looked at again, for those who wait
	ids          map[Ref]int64                           // rows of jobs_keys that are known
	definitions  map[int64]readDefinition                // by limiter
	foundJob     bool                                    // a job was found in the database

	liveHolders map[int64]int64 // by key, how many rows counted when all were looked at; 0: few
}

// fewHolders is the number of rows of jobs_holders that a key may have before the rows that no longer count are removed.
const fewHolders = 1000

type readDefinition struct {
	version int64
	rules   rules
}

// maxIDs bounds how many rows are remembered.
const maxIDs = 100_000

// resolve fills in the rows of all needs and makes the missing ones. An ask that names what does not exist gets its
// error.
func (d *database) resolve(ctx context.Context, reqs []*request) error {
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
		id, ok := d.ids[n.ref]
		if n.ref.Type == DynamicWindow {
			n.dynamicRow = d.ids[Ref{Type: n.ref.Type, Name: n.ref.Name}]
			ok = ok && n.dynamicRow != 0
		}
		if n.id = id; !ok && req.decision.err == nil {
			req.decision.err = fmt.Errorf("%w: %v: it was never set, or has been removed", ErrUnknownLimiter, Ref{Type: n.ref.Type, Name: n.ref.Name})
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

func eachNeed(reqs []*request, f func(*request, *need)) {
	for _, req := range reqs {
		for i := range req.needs {
			f(req, &req.needs[i])
		}
	}
}

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
	run       runID
	attempted time.Time
	contended []int64
}

// do answers the asks and releases. At most room jobs that ask are told to wait in their workers. An error is of all
// asks and releases.
func (d *database) run(ctx context.Context, reqs []*request, releases []release, room int) error {
	for try := 1; ; try++ {
		err := d.runOnce(ctx, reqs, releases, room)
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
	b, err := d.load(ctx, conn, reqs, releases)
	if err != nil {
		return d.rollback(ctx, conn, err)
	}
	d.rememberHolders(b)
	reqs = d.refuseForeign(b, reqs)
	b.handOverRoom = room
	b.decide(reqs, d.lease.Microseconds())
	again, err := d.bringBack(ctx, conn, b)
	if err == nil {
		err = d.save(ctx, conn, b)
	}
	if err != nil {
		return d.rollback(ctx, conn, err)
	}
	d.recheckLater(b.unlocked, 0)
	d.recheckLater(again, recordDelay)
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
		rows, err := conn.Query(ctx, d.sql.bringBack, ids)
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
					b.setWake(key, w, b.now)
				case 1:
					again = append(again, key)
				case 2:
					never, more = append(never, key), true
				default:
					b.setWake(key, w, b.now-2*maxPatience) // as if it had not come when it should
					more = true
				}
			}
		}
		if !more {
			return again, nil
		}
		again = append(again, never...) // there can be more rows than were read
		if rows, err = conn.Query(ctx, d.sql.finishedWaiters, sorted(never)); err != nil {
			return nil, err
		}
		var p waiterID
		if _, err := pgx.ForEachRow(rows, []any{&p.key, &p.job}, func() error {
			b.removeFinished(p)
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
func (d *database) rememberHolders(b *batch) {
	for id, row := range b.rows {
		if row.slots == nil || row.slots.otherOwners > 0 {
			continue
		}
		delete(d.liveHolders, id)
		if n := int64(len(row.slots.owners)); n > fewHolders/2 && len(d.liveHolders) < maxIDs {
			d.liveHolders[id] = n
		}
	}
}

// foreign answers the asks of jobs that are not running in this database.
func (d *database) refuseForeign(b *batch, reqs []*request) []*request {
	if b.running == nil {
		return reqs
	}
	return slices.DeleteFunc(reqs, func(req *request) bool {
		if req.withdraws {
			return false
		}
		if b.running[runID{req.job, req.attempted.UnixMicro()}] {
			d.foundJob = true
			return false
		}
		req.decision.err = fmt.Errorf("%w: job %d: the pool of the Throttler must lead to the database and the schema of the River client, "+
			"on PostgreSQL", ErrForeignJob, req.job)
		return true
	})
}

func newBatch(now int64) *batch {
	return &batch{
		now: now, rows: map[int64]*keyRow{}, dynamic: map[int64]*dynamicWindow{}, waiters: map[waiterID]waiterRow{},
		keysOfJob: map[int64][]int64{}, granted: map[holderID]holderRow{}, removedWaiters: map[waiterID]bool{}, savedWaiters: map[waiterID]waiterRow{},
	}
}
