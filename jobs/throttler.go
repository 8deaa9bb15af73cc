package jobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivertype"

	"github.com/weir-go/weir/internal/eventqueue"
)

// A Throttler throttles the jobs of River clients. Make one with [New] for each program and give its [Throttler.Plugin]
// to the clients. All Throttlers on one database and schema share their limiters. Its methods are safe for concurrent
// use.
type Throttler struct {
	o       Options
	pool    *pgxpool.Pool
	sql     *statements
	batcher *batcher
	events  *eventqueue.Queue[Event]
	rules   atomic.Pointer[kindThrottles]
	metrics *metrics
	lead    atomic.Int64 // how much earlier than their turn jobs are brought back, µs
	now     func() time.Time

	mu           sync.Mutex
	sessions     map[*session]bool // of jobs that hold slots
	databaseLost bool              // the last transaction has failed

	closing    sync.Once
	stop       chan struct{}
	maintained chan struct{} // keep has ended
}

// New returns a Throttler with its state in the pool's database, which must be that of the River clients: PostgreSQL, by
// any of River's drivers for it. [Migrate] must have been called, and River's migrations must have been run. New sets
// the limiters of o.Config. If o is nil, it is the zero Options.
//
// The pool stays the caller's. Stop the River clients first, then [Throttler.Close] the Throttler, then close the pool.
func New(ctx context.Context, pool *pgxpool.Pool, o *Options) (*Throttler, error) {
	if o == nil {
		o = &Options{}
	}
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	schema, err := migrations.SchemaName(o.Schema)
	if err != nil {
		return nil, err
	}
	t := &Throttler{
		o: options, pool: pool, sql: newStatements(schema, o.RiverSchema), events: eventqueue.New("jobs: OnEvent", o.OnEvent),
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
	settings, rules, err := c.parse()
	if err != nil {
		return err
	}
	if err := t.applyDefinitions(ctx, settings, rules); err != nil {
		return err
	}
	t.rules.Store(&rules)
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

// report is told how each transaction has ended.
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

// begin asks whether the job of a session may start. It returns nil if it may, and otherwise the error that the run ends
// with.
func (t *Throttler) begin(ctx context.Context, s *session) error {
	req, err := t.newRequest(s)
	if err != nil {
		return t.fail(s, err)
	}
	if len(req.needs) == 0 {
		return nil
	}
	result, err := t.batcher.decide(ctx, req)
	switch {
	case errors.Is(err, ErrUnknownLimiter), errors.Is(err, ErrForeignJob):
		return t.fail(s, err)
	case err != nil && ctx.Err() != nil: // the client stops; if the job was cancelled, River knows
		return &rivertype.JobSnoozeError{}
	case err != nil: // the database is away, or the Throttler was closed: the job has not run, and costs no attempt
		return &rivertype.JobSnoozeError{Duration: max(s.minDelay, time.Second+rand.N(time.Second))}
	}
	t.adjustLead(result.late)
	t.metrics.count(ctx, req, result)
	if result.granted {
		s.grant(ctx, t, result)
		return nil
	}
	if !req.snoozes {
		return t.cancelled(ctx, s, result)
	}
	return t.throttled(ctx, s, result)
}

// fail reports that a job fails because it cannot be throttled.
func (t *Throttler) fail(s *session, err error) error {
	t.events.Add(Event{Kind: EventJobFailed, Job: s.job.ID, JobKind: s.job.Kind, Err: err})
	return err
}

// asked returns what the job of a session needs.
func (t *Throttler) newRequest(s *session) (*request, error) {
	req := &request{job: s.job.ID, snoozes: true, lead: t.lead.Load(), handOver: t.o.HandOver.Microseconds(), handOverEnd: time.Now().Add(t.o.HandOver)}
	if s.job.AttemptedAt == nil {
		return nil, fmt.Errorf("%w: job %d was never attempted", ErrForeignJob, s.job.ID)
	}
	req.attempted, req.first = *s.job.AttemptedAt, len(s.job.AttemptedBy) == 1
	var action Action
	for _, p := range s.declared {
		req.strict = req.strict || p.strict
		if action == 0 {
			action = p.action
		}
		if s.minDelay == 0 {
			s.minDelay = p.minDelay
		}
		for _, u := range p.limits {
			n, err := u.need(s.job)
			if err != nil {
				return nil, err
			}
			if err := req.add(n); err != nil {
				return nil, err
			}
		}
	}
	if action == 0 {
		action = t.o.Action
	}
	if s.minDelay == 0 {
		s.minDelay = t.o.MinDelay
	}
	req.snoozes, req.minDelay = action == Snooze, s.minDelay.Microseconds()
	return req, nil
}

func (u parsedLimit) need(job *rivertype.JobRow) (n need, err error) {
	n = need{ref: u.ref, mode: u.mode, deadline: u.deadline.Microseconds()}
	if n.ref.Key, err = u.key.fill(job); err != nil {
		return n, fmt.Errorf("%v: %w", u.ref, err)
	}
	owner, err := u.owner.fill(job)
	if err != nil {
		return n, fmt.Errorf("owner of %v: %w", u.ref, err)
	}
	n.owner, n.named = ownerOf(job.ID, owner), owner != ""
	return n, nil
}

// Owners are written so that a job and an owner with a name of its own are never the same.
const jobOwner, namedOwner = "job ", "owner "

func ownerOf(job int64, name string) string {
	if name == "" {
		return fmt.Sprint(jobOwner, job)
	}
	return namedOwner + name
}

// add adds a need. What a job has twice, by its worker and a configuration, counts once.
func (req *request) add(n need) error {
	for _, other := range req.needs {
		if other.ref != n.ref {
			continue
		}
		if other.owner == n.owner && other.mode == n.mode {
			return nil
		}
		return optionsError(fmt.Errorf("job %d needs %v twice, with different owners or modes", req.job, n.ref))
	}
	req.needs = append(req.needs, n)
	return nil
}

// adjustLead follows how late River brings jobs back: quickly up, slowly down.
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
