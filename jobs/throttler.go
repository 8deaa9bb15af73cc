package jobs

import (
	"cmp"
	"context"
	"fmt"
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
	pool      *pgxpool.Pool
	sql       *statements
	batcher   *batcher
	events    *eventqueue.Queue[Event]
	throttles atomic.Pointer[kindThrottles]
	metrics   *metrics
	lead      atomic.Int64 // how much earlier than their turn jobs are brought back, µs
	now       func() time.Time

	mu           sync.Mutex
	sessions     map[*session]bool // of jobs that hold slots
	databaseLost bool              // the last transaction has failed

	closing    sync.Once
	stop       chan struct{}
	maintained chan struct{} // closed when maintain has ended
}

// New returns a Throttler with its state in the pool's database, which must be that of the River clients: PostgreSQL, by
// any of River's drivers for it. [Migrate] must have been called, and River's migrations must have been run. New sets
// the limiters of o.Config. If o is nil, it is the zero Options.
//
// The pool stays the caller's. Stop the River clients first, then [Throttler.Close] the Throttler, then close the pool.
func New(ctx context.Context, pool *pgxpool.Pool, o *Options) (*Throttler, error) {
	o = cmp.Or(o, new(Options))
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Throttler{
		o: options, pool: pool, sql: newStatements(options.Schema, o.RiverSchema), events: eventqueue.New("jobs: OnEvent", o.OnEvent),
		now: time.Now, sessions: map[*session]bool{}, stop: make(chan struct{}), maintained: make(chan struct{}),
	}
	if err := t.checkTables(ctx); err != nil {
		return nil, err
	}
	if err := t.Apply(ctx, o.Config); err != nil {
		return nil, err
	}
	if t.metrics, err = newMetrics(o.MeterProvider, t.Limiters); err != nil {
		return nil, err
	}
	d := &database{pool: pool, sql: t.sql, lease: options.Lease, lead: t.lead.Load, ids: map[Ref]int64{}, definitions: map[int64]readDefinition{}, liveHolders: map[int64]int64{}}
	d.recheckLater = func(keys []int64, delay time.Duration) { t.batcher.recheckLater(keys, delay) }
	t.batcher = newBatcher(options.CallTimeout, options.HandOverWorkers, d.run, t.reportTransaction)
	go t.maintain()
	return t, nil
}

// checkTables returns an error that says what to do if River's tables or weir's are missing.
func (t *Throttler) checkTables(ctx context.Context) error {
	var weir, river bool
	if err := t.pool.QueryRow(ctx, t.sql.checkTables).Scan(&weir, &river); err != nil {
		return fmt.Errorf("jobs: New: %w", err)
	}
	switch {
	case !weir:
		return fmt.Errorf("jobs: New: the database has no tables for throttling: call jobs.Migrate first")
	case !river:
		return fmt.Errorf("jobs: New: the database has no table river_job: run River's migrations first, set RiverSchema if they are in another schema, " +
			"and use the database of the River client; River on SQLite is not supported")
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

// Close releases what is left to release and ends the goroutines of the Throttler. Jobs that start later are snoozed.
func (t *Throttler) Close() {
	t.closing.Do(func() {
		close(t.stop)
		<-t.maintained
		t.batcher.close()
		_ = t.metrics.callback.Unregister()
	})
}

// reportTransaction is called with the result of each transaction.
func (t *Throttler) reportTransaction(err error) {
	t.mu.Lock()
	was := t.databaseLost
	t.databaseLost = err != nil
	t.mu.Unlock()
	switch {
	case err != nil && !was:
		t.events.Add(Event{Kind: EventDatabaseLost, Err: err})
	case err == nil && was:
		t.events.Add(Event{Kind: EventDatabaseRecovered})
	}
}

// adjustLead moves the lead towards how late River brought a job back: a fourth of the difference up, an eighth down.
func (t *Throttler) adjustLead(late int64) {
	if late < 0 {
		return
	}
	lead := t.lead.Load()
	late = min(late, t.o.HandOver.Microseconds()*3/4)
	if late > lead {
		lead += (late - lead) / 4
	} else {
		lead -= (lead - late) / 8
	}
	t.lead.Store(lead)
}
