package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/internal/eventqueue"
)

// A Throttler throttles the jobs of River clients. Make one with [New] for each program and give its [Throttler.Plugin]
// to the clients. All Throttlers on one database and schema share their limiters. Its methods are safe for concurrent
// use.
type Throttler struct {
	o         Options
	pool      *pgxpool.Pool // the caller's
	own       *pgxpool.Pool // of connections that jobs cannot use up
	sql       *statements
	batcher   *batcher
	events    *eventqueue.Queue[Event]
	throttles atomic.Pointer[kindThrottles]
	now       func() time.Time

	leases  *leases
	janitor *janitor

	mu         sync.Mutex
	onDecision []func(context.Context, Decision)

	closing    sync.Once
	close      context.CancelFunc
	maintained sync.WaitGroup // for the leases and the janitor
}

// New returns a Throttler with its state in the pool's database, which must be that of the River clients: PostgreSQL, by
// any of River's drivers for it. [Migrate] must have been called, and River's migrations must have been run. New sets
// the limiters of o.Config. If o is nil, the defaults apply.
//
// The pool stays the caller's. Limits are requested and leases are renewed on at most three connections of the Throttler's
// own, which it opens with the pool's configuration: jobs that use up the pool do not lose their slots. Stop the River
// clients first, then [Throttler.Close] the Throttler, then close the pool.
func New(ctx context.Context, pool *pgxpool.Pool, o *Options) (t *Throttler, err error) {
	o = cmp.Or(o, new(Options))
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, errors.New("jobs: New: the pool is nil")
	}
	t = &Throttler{
		o: options, pool: pool, sql: newStatements(options.Schema, o.RiverSchema), events: eventqueue.New("jobs: OnEvent", o.OnEvent),
		now: time.Now,
	}
	if err := t.checkTables(ctx); err != nil {
		return nil, err
	}
	if err := t.Apply(ctx, o.Config); err != nil {
		return nil, err
	}
	config := pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = ownConns, 0, 0
	if t.own, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config); err != nil {
		return nil, fmt.Errorf("jobs: New: %w", err)
	}
	d := &database{pool: t.own, sql: t.sql, lease: options.Lease, ids: map[Ref]int64{}, definitions: map[int64]rules{}}
	d.recheckLater = func(keys []int64, delay time.Duration) { t.batcher.recheckLater(keys, delay) }
	t.batcher = newBatcher(options.CallTimeout, options.HandOverWorkers, d.run, t.reportDatabase)
	closed, cancel := context.WithCancel(context.Background())
	t.close = cancel
	t.leases = &leases{pool: t.own, sql: t.sql, length: options.Lease, timeout: options.CallTimeout, closed: closed, events: t.events, sessions: map[*session]bool{}}
	t.janitor = &janitor{pool: t.own, sql: t.sql, batcher: t.batcher, timeout: options.CallTimeout, closed: closed, cleanedUp: time.Now()}
	t.maintained.Go(func() { repeat(closed, "jobs: renewing leases", options.Lease/4, t.leases.renew) })
	t.maintained.Go(func() { repeat(closed, "jobs: maintenance", lookInterval, t.janitor.maintain) })
	return t, nil
}

// ownConns is one connection each for transactions of the batcher, renewals of leases and maintenance.
const ownConns = 3

// checkTables returns an error that says what to do if River's tables or weir's are missing or too old. For tables that a
// newer program has migrated, there is an event.
func (t *Throttler) checkTables(ctx context.Context) error {
	var weir, river bool
	if err := t.pool.QueryRow(ctx, t.sql.CheckTables).Scan(&weir, &river); err != nil {
		return fmt.Errorf("jobs: New: %w", err)
	}
	switch {
	case !weir:
		return fmt.Errorf("jobs: New: the database has no tables for throttling: call jobs.Migrate first")
	case !river:
		return fmt.Errorf("jobs: New: the database has no table river_job: run River's migrations first, set RiverSchema if they are in another schema, " +
			"and use the database of the River client; River on SQLite is not supported")
	}
	all, err := migrations.Migrations(t.o.Schema)
	if err != nil {
		return err
	}
	var version int
	if err := t.pool.QueryRow(ctx, t.sql.Version).Scan(&version); err != nil {
		return fmt.Errorf("jobs: New: %w", err)
	}
	switch known := all[len(all)-1].Version; {
	case version < known:
		return fmt.Errorf("jobs: New: the tables for throttling have version %d, and this program needs version %d: call jobs.Migrate first", version, known)
	case version > known:
		t.events.Add(Event{Kind: EventNewerSchema, Err: fmt.Errorf("the tables for throttling have version %d, and this program knows version %d", version, known)})
	}
	return nil
}

// Apply sets the limiters of a configuration and replaces the throttles of kinds that [Options.Config] or the last Apply
// gave. It is in force for jobs that start from now on; jobs that hold slots release them as they took them. If the
// configuration names a limiter that neither it nor the database has, Apply changes nothing.
func (t *Throttler) Apply(ctx context.Context, c Config) error {
	definitions, throttles, err := c.parse()
	if err != nil {
		return err
	}
	if err := t.applyDefinitions(ctx, definitions, throttles); err != nil {
		return err
	}
	t.throttles.Store(&throttles)
	return nil
}

// OnDecision adds a function that is called with each decision, on the goroutine of the job, before the job starts or its run
// ends. Package jobs/jobsmetrics counts decisions by it.
func (t *Throttler) OnDecision(f func(context.Context, Decision)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onDecision = append(slices.Clip(t.onDecision), f)
}

// Close writes the releases of jobs that have ended, and ends the goroutines and the connections of the Throttler. Jobs that
// start later are snoozed. The contexts of jobs that still hold slots end with [ErrLost], except in strict mode. Methods that
// set, list, inspect, release or remove limiters work after Close, as long as the pool does. The error is always nil.
func (t *Throttler) Close() error {
	t.closing.Do(func() {
		t.close()
		t.maintained.Wait()
		t.leases.close()
		t.batcher.close()
		t.own.Close()
	})
	return nil
}

// reportDatabase is called when a transaction has failed after one that succeeded, and with nil the other way round.
func (t *Throttler) reportDatabase(err error) {
	kind := EventDatabaseLost
	if err == nil {
		kind = EventDatabaseRecovered
	}
	t.events.Add(Event{Kind: kind, Err: err})
}
