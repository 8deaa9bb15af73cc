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

// errRemoved means that a row of jobs_keys whose ID was remembered no longer exists.
var errRemoved = errors.New("jobs: a key was removed")

// A database runs batches. Its methods are called by one goroutine at a time.
type database struct {
	pool         *pgxpool.Pool
	sql          *statements
	lease        time.Duration
	lead         func() int64
	recheckLater func(keys []int64, delay time.Duration) // see batcher.recheckLater
	ids          map[Ref]int64                           // IDs of rows of jobs_keys
	definitions  map[int64]rules                         // by limiter
	foundJob     bool                                    // a job of a request was found, so the database is that of the River client
	liveHolders  map[int64]int64                         // by key, how many rows counted when all were last read; absent: few
}

const (
	// fewHolders is how many rows of jobs_holders a key may have before a batch looks for rows that no longer count.
	fewHolders = 1000
	// maxIDs bounds each map of a database.
	maxIDs = 100_000
)

// resolve fills in the IDs of all needs, and makes missing rows. A request that names an unknown limiter gets its error.
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
	if len(d.ids)+len(refs) > maxIDs {
		clear(d.ids)
	}
	var place, id int64
	q.Queue(d.sql.IDs, types, names, keys).Query(eachRow(func() { d.ids[refs[place-1]] = id }, &place, &id))
	return d.pool.SendBatch(ctx, q).Close()
}

// run decides the requests and writes the releases, in one transaction. At most room jobs wait in their workers. If run
// returns an error, it is that of all requests and releases.
func (d *database) run(ctx context.Context, reqs []*request, releases []release, room int) error {
	for try := 1; ; try++ {
		err := d.runOnce(ctx, reqs, releases, room)
		if err == nil || ctx.Err() != nil || try == 5 {
			return err
		}
		var pg *pgconn.PgError
		switch {
		case errors.Is(err, errRemoved):
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
	again, b, err := d.transact(ctx, conn, reqs, releases, room)
	if err != nil {
		if !conn.Conn().IsClosed() && conn.Conn().PgConn().TxStatus() != 'I' {
			_, _ = conn.Exec(ctx, "rollback")
		}
		return err
	}
	d.recheckLater(b.unlocked, 0)
	d.recheckLater(again, recordDelay)
	return nil
}

// transact runs the transaction. It also returns the keys to be rechecked when River has recorded how runs have ended.
func (d *database) transact(ctx context.Context, conn *pgxpool.Conn, reqs []*request, releases []release, room int) (again []int64, b *batch, err error) {
	b, err = d.load(ctx, conn, reqs, releases)
	if err != nil {
		return nil, nil, err
	}
	d.rememberHolders(b)
	reqs = d.refuseForeign(b, reqs)
	b.handOverRoom = room
	b.decide(reqs, d.lease.Microseconds())
	again, err = d.bringBack(ctx, conn, b)
	if err == nil {
		err = d.save(ctx, conn, b)
	}
	return again, b, err
}

// Results of the statement bringBack for a job.
const (
	comes    = iota // River runs the job next
	notYet          // River has not yet recorded that the job was snoozed
	finished        // the job never comes back
	// Otherwise the job comes back at an unknown time, as after a failure.
)

// bringBack makes River run the waiters whose turn is near. It returns the keys to be rechecked.
func (d *database) bringBack(ctx context.Context, conn *pgxpool.Conn, b *batch) (again []int64, err error) {
	for range 3 { // in place of a waiter that does not come, the ones behind it are brought back
		next := b.toBringBack(d.lead())
		var ids []int64
		for _, ws := range next {
			for _, w := range ws {
				ids = append(ids, w.job)
			}
		}
		if len(ids) == 0 {
			return again, nil
		}
		answers := map[int64]int{}
		var id int64
		var answer int
		if err := query(ctx, conn, eachRow(func() { answers[id] = answer }, &id, &answer), d.sql.BringBack, ids); err != nil {
			return nil, err
		}
		var never []int64
		more := false
		for key, ws := range next {
			for _, w := range ws {
				switch answers[w.job] {
				case comes:
					b.setWake(key, w, b.now)
				case notYet:
					again = append(again, key)
				case finished:
					never, more = append(never, key), true
				default:
					b.setWake(key, w, b.now-2*maxGrace) // as if it had not come at its time
					more = true
				}
			}
		}
		if !more {
			return again, nil
		}
		again = append(again, never...) // there can be more finished waiters than were read
		var waiter waiterID
		if err := query(ctx, conn, eachRow(func() { b.removeFinished(waiter) }, &waiter.key, &waiter.job), d.sql.FinishedWaiters, sorted(never)); err != nil {
			return nil, err
		}
	}
	return again, nil
}

// rememberHolders updates liveHolders.
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

// refuseForeign sets the error of requests whose jobs are not running in this database, and returns the others.
func (d *database) refuseForeign(b *batch, reqs []*request) []*request {
	if b.running == nil {
		return reqs
	}
	return slices.DeleteFunc(reqs, func(req *request) bool {
		if b.running[req.run()] {
			d.foundJob = true
			return false
		}
		req.decision.err = fmt.Errorf("%w: job %d: the pool of the Throttler must lead to the database and the schema of the River client, "+
			"on PostgreSQL", ErrForeignJob, req.job)
		return true
	})
}
