package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/jobs/internal/jobstest"
	"github.com/weir-go/weir/jobs/internal/window"
	"github.com/weir-go/weir/tools/testserver"
)

// lockKeys locks all keys, as a batch of another process does, until unlock is called.
func (w *world) lockKeys() (unlock func()) {
	w.t.Helper()
	tx, err := w.Pool.Begin(context.Background())
	require.NoError(w.t, err)
	rows, err := tx.Query(context.Background(), w.SQL(`select id from "weir".jobs_keys order by id for update`))
	require.NoError(w.t, err)
	_, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(w.t, err)
	return func() { require.NoError(w.t, tx.Rollback(context.Background())) }
}

// awaitLocked waits until so many backends wait for a lock of the test's tables.
func (w *world) awaitLocked(n int64) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return w.Int(`select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%"weir".%'`) == n
	}, patience, time.Millisecond)
}

// A pool may have another isolation level as its default, at which a transaction does not see what was written while it
// waited for the lock.
func TestMutex_DefaultIsolationLevel(t *testing.T) {
	w := newWorld(t)
	config, err := pgxpool.ParseConfig(w.Pool.Config().ConnString())
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	one, other := w.throttlerOn(pool, Options{HandOver: -1}), w.throttlerOn(pool, Options{HandOver: -1})
	w.work(one, nil, onMutex)
	one.flush()

	unlock := w.lockKeys()
	results := make(chan *started)
	for _, th := range []*Throttler{one, other} {
		job := w.Job("a", nil)
		go func() { results <- start(th, job, onMutex) }()
	}
	w.awaitLocked(2)
	unlock()
	begun := 0
	for range 2 {
		s := <-results
		select {
		case <-s.done:
		default:
			begun++
			defer func() { require.NoError(t, s.end(nil)) }()
		}
	}
	assert.Equal(t, 1, begun)
}

// The jobs that take and release a slot for an owner may be decided in one transaction.
func TestRelease_InTheTransactionOfAcquire(t *testing.T) {
	w, th := newThrottler(t)
	limit := func(mode Mode) *Declaration {
		return limits(Limit{Mutex: "m", Owner: "b", Mode: mode})
	}
	w.work(th, nil, onMutex)
	th.flush()
	unlock := w.lockKeys()
	results := make(chan *started)
	ask := func(mode Mode) {
		job := w.Job("a", nil)
		go func() { results <- start(th, job, limit(mode)) }()
	}
	ask(AcquireAndRelease) // its transaction waits, and the next one is for both others
	w.awaitLocked(1)
	ask(Acquire)
	ask(Release)
	require.Eventually(t, func() bool {
		th.batcher.mu.Lock()
		defer th.batcher.mu.Unlock()
		return len(th.batcher.requests) == 2
	}, patience, time.Millisecond)
	unlock()
	for range 3 {
		s := <-results
		require.NoError(t, s.running(t).end(nil))
	}
	th.flush()
	assert.Zero(t, w.Int(`select count(*) from "weir".jobs_holders`))
}

// A batch finds that cleanUp removes a key while the batch waits for its lock.
func TestDynamicWindow_KeyRemovedMeanwhile(t *testing.T) {
	w, th := newThrottler(t)
	require.NoError(t, th.Set(t.Context(), Definition{DynamicWindow: "d", Interval: time.Hour, Capacity: 1}))
	d := limits(Limit{DynamicWindow: "d", Key: "k"})
	w.work(th, nil, d)
	w.Exec(`update "weir".jobs_keys set state = '', expires = now() - interval '1 hour' where key = 'k'`)

	cleanUp, err := w.Pool.Begin(t.Context())
	require.NoError(t, err)
	ids, err := pgx.CollectRows(must(cleanUp.Query(t.Context(), th.sql.LockExpiredKeys, removedAtOnce)), pgx.RowTo[int64])
	require.NoError(t, err)
	results, job := make(chan *started), w.Job("a", nil)
	go func() { results <- start(th, job, d) }()
	w.awaitLocked(1)
	_, err = cleanUp.Exec(t.Context(), th.sql.RemoveExpiredKeys, ids)
	require.NoError(t, err)
	require.NoError(t, cleanUp.Commit(t.Context()))

	require.NoError(t, (<-results).running(t).end(nil))
	w.refused(th, nil, d)
}

// sentAway starts a job that is throttled, and sets its row as River does.
func (w *world) sentAway(th *Throttler, d *Declaration) *started {
	w.t.Helper()
	s := start(th, w.Job("a", nil), d)
	w.recordSnooze(s)
	return s
}

func (w *world) recordSnooze(s *started) {
	w.t.Helper()
	w.Exec(`update RIVER set state = 'scheduled', scheduled_at = now() + make_interval(secs => $2) where id = $1`, s.ID, s.throttled(w.t).Duration.Seconds())
}

// awaitBroughtBack waits until a job is brought back long before it would come by itself.
func (w *world) awaitBroughtBack(s *started) {
	w.t.Helper()
	require.Greater(w.t, s.throttled(w.t).Duration, 30*time.Second)
	require.Eventually(w.t, func() bool {
		return w.Int(`select count(*) from RIVER where id = $1 and state = 'available' and scheduled_at <= now()`, s.ID) == 1
	}, patience, 10*time.Millisecond)
}

// A job that waits is brought back when a slot is released much sooner than was expected.
func TestBringBack(t *testing.T) {
	w := newWorld(t)
	onStrict, onSemaphore := strict(Limit{Mutex: "m"}), limits(Limit{Semaphore: "s"})
	later := weir.Must(Declare(Throttle{MinDelay: time.Hour, Limits: []Limit{{Mutex: "m"}}}))
	for _, c := range []struct {
		name   string
		d      *Declaration
		before func(*world, *Throttler)           // what waits before the job
		ends   func(*world, *Throttler, *started) // what happens to the holder; nil: it ends
	}{
		{"jobs before it were cancelled", onMutex, func(w *world, th *Throttler) {
			for range 2 * maxBroughtBack {
				w.state(w.sentAway(th, onMutex).JobRow, rivertype.JobStateCancelled)
			}
		}, nil},
		{"a job before it has a least delay", onMutex, func(w *world, th *Throttler) { w.sentAway(th, later) }, nil},
		{"a job before it has failed meanwhile", onMutex, func(w *world, th *Throttler) {
			w.Exec(`update RIVER set state = 'retryable' where id = $1`, w.sentAway(th, onMutex).ID)
		}, nil},
		{"no job waited when the semaphore was granted", onSemaphore, nil, nil},
		{"strict", onStrict, nil, func(w *world, _ *Throttler, s *started) {
			require.NoError(w.t, s.end(nil))
			w.state(s.JobRow, rivertype.JobStateCompleted)
		}},
		{"the holder has died", onStrict, nil, func(w *world, th *Throttler, s *started) {
			w.state(s.JobRow, rivertype.JobStateDiscarded)
			require.NoError(w.t, th.janitor.lookAfterWaiters(w.t.Context()))
			w.t.Cleanup(func() { require.NoError(w.t, s.end(nil)) })
		}},
		{"River had not recorded the snooze yet", onMutex, nil, func(w *world, th *Throttler, s *started) {
			w.Exec(`update RIVER set state = 'running' where state = 'scheduled'`)
			require.NoError(w.t, s.end(nil))
			th.flush()
			w.Exec(`update RIVER set state = 'scheduled' where state = 'running' and scheduled_at > now()`)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			th := w.throttler(Options{HandOver: -1})
			require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "s", MaxCount: 1}))
			th.close() // no maintenance but that of the test
			first := w.begin(th, nil, c.d)
			w.Exec(`update "weir".jobs_keys set hold = 60000000`)
			if c.before != nil {
				c.before(w, th)
			}
			last := w.sentAway(th, c.d)
			if c.ends == nil {
				require.NoError(t, first.end(nil))
			} else {
				c.ends(w, th, first)
			}
			w.awaitBroughtBack(last)
		})
	}
}

var onWindow = limits(Limit{FixedWindow: "w"})

// usedUp returns a Throttler with a fixed window of 24 hours that has room for no other job.
func (w *world) usedUp() *Throttler {
	w.t.Helper()
	th := w.throttler(Options{HandOver: -1})
	require.NoError(w.t, th.Set(w.t.Context(), Definition{FixedWindow: "w", Limit: 1, Interval: 24 * time.Hour}))
	w.work(th, nil, onWindow)
	return th
}

// halfOver returns an interval of about an hour whose present window is half over.
func (w *world) halfOver() time.Duration {
	now := w.Int(`select extract(epoch from now())::bigint`)
	for seconds := int64(3600); ; seconds++ {
		if over := now % seconds; over > seconds*2/5 && over < seconds*3/5 {
			return time.Duration(seconds) * time.Second
		}
	}
}

// elapse makes all that the tables have of windows with one key older by some buckets.
func (w *world) elapse(bucket time.Duration, n int64) {
	w.t.Helper()
	rows, err := w.Pool.Query(context.Background(), w.SQL(`select id, state from "weir".jobs_keys where state <> ''`))
	require.NoError(w.t, err)
	var id int64
	var state string
	states := map[int64]string{}
	_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error { states[id] = state; return nil })
	require.NoError(w.t, err)
	for id, state := range states {
		window := mustRead(w.t, state, window.Rules{Bucket: bucket.Microseconds(), Buckets: 1000, Limit: 1}, w.Int(`select extract(epoch from now())::bigint * 1000000`))
		for i := range window.Filled {
			window.Filled[i].At -= n
		}
		w.Exec(`update "weir".jobs_keys set state = $2 where id = $1`, id, window.String())
	}
	us := n * bucket.Microseconds()
	w.Exec(`update "weir".jobs_waiters set bucket = bucket - $1, wake = wake - make_interval(secs => $1 / 1000000.0),
		earliest = earliest - make_interval(secs => $1 / 1000000.0)`, us)
	w.Exec(`update RIVER set scheduled_at = scheduled_at - make_interval(secs => $1::bigint / 1000000.0) where state in ('available', 'scheduled')`, us)
}

// come returns which of the jobs River runs now.
func (w *world) come(jobs ...*started) (now []bool) {
	w.t.Helper()
	for _, s := range jobs {
		now = append(now, w.Int(`select count(*) from RIVER where id = $1 and state = 'available' and scheduled_at <= now()`, s.ID) == 1)
	}
	return now
}

// For places of jobs that do not come, the next jobs come, in order.
func TestWindow_ReservedForJobsThatDoNotCome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	paused := func(w *world, s *started) { w.Exec(`update RIVER set queue = 'paused' where id = $1`, s.ID) }
	cancelled := func(w *world, s *started) { w.state(s.JobRow, rivertype.JobStateCancelled) }
	deleted := func(w *world, s *started) { w.Exec(`delete from RIVER where id = $1`, s.ID) }
	fixed, sliding, dynamic := Limit{FixedWindow: "w"}, Limit{SlidingWindow: "w"}, Limit{DynamicWindow: "w", Key: "k"}
	for _, c := range []struct {
		name   string
		limit  Limit
		absent func(*world, *started)
		far    bool // the others have no places, for they would have been too far ahead
	}{
		{"fixed, queue is paused", fixed, paused, false}, {"fixed, cancelled", fixed, cancelled, false}, {"fixed, deleted", fixed, deleted, false},
		{"fixed, the others have no places", fixed, paused, true}, {"dynamic, queue is paused", dynamic, paused, false},
		{"dynamic, cancelled", dynamic, cancelled, false}, {"sliding, queue is paused", sliding, paused, false}, {"sliding, deleted", sliding, deleted, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			th, bucket, d := w.throttler(Options{HandOver: -1}), w.halfOver(), limits(c.limit)
			require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "w", Limit: 2, Interval: bucket},
				Definition{SlidingWindow: "w", Limit: 2, Interval: 2 * bucket, Buckets: 2}, Definition{DynamicWindow: "w", Capacity: 2, Interval: bucket}))
			w.work(th, nil, d)
			w.work(th, nil, d)
			th.close()    // no maintenance but that of the test
			for range 4 { // in two windows
				c.absent(w, w.sentAway(th, d))
			}
			others := []*started{w.sentAway(th, d), w.sentAway(th, d), w.sentAway(th, d)}
			if c.far {
				w.Exec(`update "weir".jobs_waiters set bucket = null where job >= $1`, others[0].ID)
			}
			buckets := int64(1)
			if c.limit == sliding {
				buckets = 2
			}
			w.elapse(bucket, buckets)
			for range 2 { // the second time there is nothing to do
				require.NoError(t, th.janitor.lookAfterWaiters(t.Context()))
				assert.Equal(t, []bool{true, true, false}, w.come(others...))
			}
			for _, s := range others[:2] {
				w.again(th, s, d)
			}
			start(th, w.rerun(others[2].JobRow), d).throttled(t)
		})
	}
}

// Jobs that are not absent keep their places, and jobs that would not come or must not come yet are not brought back.
func TestWindow_PlacesThatAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const pause = `update RIVER set queue = 'paused' where id = $1`
	for name, change := range map[string]func(w *world, first, other *started){
		"River has been late for a second": func(w *world, first, _ *started) {
			w.Exec(`update RIVER set scheduled_at = now() - interval '1 second', queue = 'paused' where id = $1`, first.ID)
		},
		"it runs": func(w *world, first, _ *started) {
			w.Exec(`update RIVER set state = 'running' where id = $1`, first.ID)
		},
		"the other is in the same queue": func(*world, *started, *started) {},
		"the other must not come yet": func(w *world, first, other *started) {
			w.Exec(pause, first.ID)
			w.Exec(`update "weir".jobs_waiters set earliest = now() + interval '1 minute' where job = $1`, other.ID)
		},
		"another limit makes the other wait": func(w *world, first, other *started) {
			w.Exec(pause, first.ID)
			w.Exec(`update "weir".jobs_waiters set wake = wake + interval '1 minute' where job = $1`, other.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			th, bucket := w.throttler(Options{HandOver: -1}), w.halfOver()
			require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "w", Limit: 1, Interval: bucket}))
			w.work(th, nil, onWindow)
			th.close() // no maintenance but that of the test
			first, other := w.sentAway(th, onWindow), w.sentAway(th, onWindow)
			w.elapse(bucket, 1)
			change(w, first, other)
			require.NoError(t, th.janitor.lookAfterWaiters(t.Context()))
			assert.Equal(t, []bool{false}, w.come(other))
		})
	}
}

// A job is snoozed just when its limiter changes: River records the snooze after that.
func TestSetLimiter_WhileJobsAreBeingSnoozed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	th := w.usedUp()
	before := w.sentAway(th, onWindow)
	late := start(th, w.Job("a", nil), onWindow)
	late.throttled(t)
	require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "w", Limit: 2, Interval: 24 * time.Hour}))
	w.awaitBroughtBack(before)
	w.recordSnooze(late)
	w.awaitBroughtBack(late)
	w.again(th, before, onWindow)
	w.recordSnooze(start(th, w.rerun(late.JobRow), onWindow)) // throttled by the options of now
	require.NoError(t, th.janitor.lookAfterWaiters(t.Context()))
	assert.EqualValues(t, 1, w.Int(`select count(*) from RIVER where id = $1 and state = 'scheduled'`, late.ID))
}

// A program that knows version 1 of the tables throttles a job without the version of the limiter's options, or leaves the
// version that a newer one has written. The job is brought back once for a change, or not at all, and not each time.
func TestLookAfterWaiters_OlderPrograms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	th := w.usedUp()
	th.close() // no maintenance but that of the test
	s := w.sentAway(th, onWindow)
	version := w.Int(`select version from "weir".jobs_waiters`)
	require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "w", Limit: 1, Interval: 48 * time.Hour}))
	again := start(th, w.rerun(s.JobRow), onWindow)
	w.Exec(`update "weir".jobs_waiters set version = $1`, version)
	for _, brought := range []int64{1, 0, 0} {
		w.recordSnooze(again)
		require.NoError(t, th.janitor.lookAfterWaiters(t.Context()))
		assert.Equal(t, brought, w.Int(`select count(*) from RIVER where id = $1 and state = 'available'`, s.ID))
		if brought == 0 {
			w.Exec(`update "weir".jobs_waiters set version = default`)
		}
	}
}

// A job comes back no earlier than after its MinDelay, also if its limiter changes.
func TestSetLimiter_MinDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	th := w.usedUp()
	d := weir.Must(Declare(Throttle{MinDelay: time.Minute, Limits: []Limit{{FixedWindow: "w"}}}))
	th.close() // no maintenance but that of the test
	s := w.sentAway(th, d)
	require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "w", Limit: 2, Interval: 24 * time.Hour}))
	brought := `select count(*) from RIVER where id = $1 and state = 'available'`
	assert.Zero(t, w.Int(brought, s.ID))
	w.Exec(`update "weir".jobs_waiters set earliest = earliest - interval '1 minute'`)
	require.NoError(t, th.janitor.lookAfterWaiters(t.Context()))
	assert.EqualValues(t, 1, w.Int(brought, s.ID))
}

// Behind PgBouncer in transaction mode, with each of the modes of pgx that docs/jobs.md names.
func TestThrottler_PgBouncer(t *testing.T) {
	t.Parallel()
	w, bouncer := newWorld(t), testserver.NewPgBouncer(t, testserver.Postgres(t))
	for _, mode := range []string{"exec", "simple_protocol", "cache_describe"} {
		t.Run(mode, func(t *testing.T) {
			w := w.in(t)
			th := w.throttlerOn(jobstest.Pool(t, bouncer.URL+"&default_query_exec_mode="+mode, 4), Options{HandOver: -1})
			th.close() // no maintenance but that of the test
			bucket := w.halfOver()
			require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "w", Limit: 1, Interval: bucket}))
			d := limits(Limit{FixedWindow: "w"})
			w.work(th, nil, d)
			absent, other := w.sentAway(th, d), w.sentAway(th, d)
			w.Exec(`update RIVER set queue = 'paused' where id = $1`, absent.ID)
			w.elapse(bucket, 1)
			require.NoError(t, th.janitor.lookAfterWaiters(t.Context()))
			assert.Equal(t, []bool{true}, w.come(other))

			first := w.begin(th, nil, onMutex)
			second := w.sentAway(th, onMutex)
			th.leases.renew()
			require.NoError(t, first.running(t).end(nil))
			th.flush()
			w.again(th, second, onMutex)
			require.NoError(t, th.janitor.cleanUp(t.Context()))
			assert.Equal(t, 2, must(th.Inspect(t.Context(), Ref{Type: FixedWindow, Name: "w"})).Waiting)
			require.ErrorContains(t, th.Remove(t.Context(), Ref{Type: FixedWindow, Name: "w"}), "jobs: limiter in use")
		})
	}
}

// River's leader makes scheduled jobs available by its own clock, which is behind.
func TestLookAfterWaiters_LeaderIsBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	th := w.usedUp()
	due, early := w.sentAway(th, onWindow), w.sentAway(th, onWindow)
	w.Exec(`update "weir".jobs_waiters set wake = now() - interval '1 second' where job = $1`, due.ID)
	w.Exec(`update RIVER set scheduled_at = now() - interval '1 second' where id = $1`, due.ID)
	w.awaitBroughtBack(due)
	assert.EqualValues(t, 1, w.Int(`select count(*) from RIVER where id = $1 and state = 'scheduled'`, early.ID))
}

// The state of a mutex that no job has named yet, and how many jobs wait for windows, which is counted, not kept in step.
func TestInspect(t *testing.T) {
	w, th := newThrottler(t)
	info := must(th.Inspect(t.Context(), Ref{Type: Mutex, Name: "m"}))
	assert.Equal(t, KeyInfo{Ref: info.Ref, Limit: 1, Next: info.Now, Now: info.Now, Holders: []Holder{}, Waiters: []Waiter{}}, info)

	require.NoError(t, th.Set(t.Context(), Definition{DynamicWindow: "d", Capacity: 1, Interval: time.Hour}))
	d := limits(Limit{DynamicWindow: "d", Key: "k"})
	w.work(th, nil, d)
	for range 3 {
		w.sentAway(th, d)
	}
	assert.Equal(t, 3, must(th.Limiters(t.Context()))[0].Waiters)
	for _, key := range []string{"k", ""} {
		assert.Equal(t, 3, must(th.Inspect(t.Context(), Ref{DynamicWindow, "d", key})).Waiting)
	}

	defer w.begin(th, nil, onMutex).end(nil)
	w.Exec(`update "weir".jobs_holders set mode = 7, until = null`)
	assert.Equal(t, "7", must(th.Inspect(t.Context(), Ref{Type: Mutex, Name: "m"})).Holders[0].Mode, "of a newer program")
}

// database returns what runs the batches of a Throttler, to run some with given requests.
func (w *world) database(th *Throttler) *database {
	return &database{pool: w.Pool, sql: th.sql, lease: defaultLease, ids: map[Ref]int64{}, definitions: map[int64]rules{},
		recheckLater: func([]int64, time.Duration) {}}
}

// ask returns a request of a new job for what it needs.
func (w *world) ask(refs ...Ref) *request {
	w.t.Helper()
	job := w.Job("a", nil)
	req := &request{job: job.ID, attempted: *job.AttemptedAt, snoozes: true}
	for _, ref := range refs {
		req.needs = append(req.needs, need{ref: ref, owner: ownerOf(job.ID, "")})
	}
	return req
}

// Jobs that end while they wait for a slot, as when an operator cancels them, hold up no others, however many they are.
func TestBringBack_ManyFinished(t *testing.T) {
	w, th := newThrottler(t)
	d := w.database(th)
	ref := Ref{Type: Mutex, Name: "m"}
	holder := w.ask(ref)
	require.NoError(t, d.run(t.Context(), []*request{holder}, nil, 0))
	key := holder.needs[0].id
	const many = 2000
	for range many / 500 {
		var asks []*request
		for range 500 {
			asks = append(asks, w.ask(ref))
		}
		require.NoError(t, d.run(t.Context(), asks, nil, 0))
	}
	w.Exec(`update RIVER set state = 'cancelled', finalized_at = now() where id <> $1`, holder.job)
	last := w.ask(ref)
	require.NoError(t, d.run(t.Context(), []*request{last}, nil, 0))
	w.Exec(`update "weir".jobs_keys set hold = 2000000`)
	w.Exec(`update "weir".jobs_waiters set wake = now() + interval '1 hour'`)
	w.Exec(`update RIVER set state = 'scheduled', scheduled_at = now() + interval '1 hour' where id = $1`, last.job)
	require.NoError(t, d.run(t.Context(), nil, []release{holder.newRelease(holder.decision)}, 0))
	for range many / maxWaiters {
		require.NoError(t, d.run(t.Context(), nil, []release{{contended: []int64{key}}}, 0))
	}
	assert.EqualValues(t, 1, w.Int(`select count(*) from RIVER where id = $1 and state = 'available'`, last.job))
	assert.EqualValues(t, 1, w.Int(`select waiting from "weir".jobs_keys`))
	assert.EqualValues(t, 1, w.Int(`select count(*) from "weir".jobs_waiters`))
}

// A batch that forgets the IDs of all keys, because there are too many, has the ones for its own keys.
func TestDatabase_ForgetsIDs(t *testing.T) {
	w, th := newThrottler(t)
	d := w.database(th)
	known := Ref{Type: Mutex, Name: "m"}
	require.NoError(t, d.run(t.Context(), []*request{w.ask(known)}, nil, 0))
	for i := len(d.ids); i < maxIDs; i++ {
		d.ids[Ref{Type: Semaphore, Key: fmt.Sprint(i)}] = -1
	}
	reqs := []*request{w.ask(known), w.ask(Ref{Type: Mutex, Name: "other"})}
	require.NoError(t, d.run(t.Context(), reqs, nil, 0))
	for _, req := range reqs {
		require.NoError(t, req.decision.err)
	}
	assert.False(t, reqs[0].decision.granted, "the first job holds the mutex")
	assert.True(t, reqs[1].decision.granted)
	assert.Len(t, d.ids, 2)
}

// What a newer program has written and this one cannot read is an error for jobs that need it, and for no others.
func TestDatabase_UnreadableRows(t *testing.T) {
	w, events := newWorld(t), make(chan Event, 2)
	th := w.throttler(Options{OnEvent: func(e Event) { events <- e }})
	require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "w", Limit: 1, Interval: time.Hour}, Definition{DynamicWindow: "d", Capacity: 1, Interval: time.Hour}))
	mutex, fixed, dynamic := Ref{Type: Mutex, Name: "m"}, Ref{Type: FixedWindow, Name: "w"}, Ref{DynamicWindow, "d", "k"}
	for _, spoil := range []string{
		`update "weir".jobs_limiters set options = '{"interval": 0}' where type <> 'mutex'`,
		`update "weir".jobs_keys set state = 'a newer format' where limiter in (select id from "weir".jobs_limiters where type <> 'mutex')`,
	} {
		w.Exec(`update "weir".jobs_limiters set options = '{"interval": 3600000000000, "limit": 1}' where type = 'fixed_window'`)
		w.Exec(`update "weir".jobs_limiters set options = '{"interval": 3600000000000, "capacity": 1}' where type = 'dynamic_window'`)
		w.Exec(`delete from "weir".jobs_holders`)
		d := w.database(th)
		require.NoError(t, d.resolve(t.Context(), []*request{w.ask(mutex, fixed, dynamic)}))
		w.Exec(spoil)
		reqs := []*request{w.ask(mutex), w.ask(fixed), w.ask(dynamic), w.ask(fixed, mutex)}
		require.NoError(t, d.run(t.Context(), reqs, nil, 0))
		assert.True(t, reqs[0].decision.granted)
		for _, req := range reqs[1:] {
			require.ErrorContains(t, req.decision.err, "read", req.needs)
			assert.False(t, req.decision.granted)
		}
		assert.EqualValues(t, 1, w.Int(`select count(*) from "weir".jobs_holders`))
		w.refused(th, nil, onWindow)
		assert.Equal(t, EventJobFailed, (<-events).Kind)
	}
}

// A statement that fails holds up no others. The first failure and the recovery are in the log.
func TestMaintain_Fails(t *testing.T) {
	w := newWorld(t)
	th := w.usedUp()
	th.close() // no maintenance but that of the test
	th.maintained.Wait()
	th.janitor.closed = t.Context()
	var log strings.Builder
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	s := w.sentAway(th, onWindow)
	w.Exec(`create function "weir".fails() returns trigger language plpgsql as $$begin raise exception 'broken'; end$$`)
	w.Exec(`create trigger fails before update of version on "weir".jobs_waiters execute function "weir".fails()`)
	w.Exec(`update "weir".jobs_waiters set wake = now() - interval '1 second'`)
	w.Exec(`update RIVER set scheduled_at = now() - interval '1 second' where id = $1`, s.ID)
	w.Exec(`update "weir".jobs_limiters set version = version + 1`)
	for range 2 {
		th.janitor.maintain()
		assert.Equal(t, []bool{true}, w.come(s))
	}
	w.Exec(`drop trigger fails on "weir".jobs_waiters`)
	th.janitor.maintain()
	assert.Equal(t, 1, strings.Count(log.String(), "broken"), log.String())
	assert.Equal(t, 1, strings.Count(log.String(), "jobs: maintenance succeeds again"), log.String())
}

// A slot that several jobs of one owner share is taken once: a job that waits for the other slot is brought back.
func TestLookAfterWaiters_SharedSlot(t *testing.T) {
	w, th := newThrottler(t)
	th.close() // no maintenance but that of the test
	require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "s", MaxCount: 2}))
	shared := limits(Limit{Semaphore: "s", Owner: "o"})
	defer w.begin(th, nil, shared).end(nil)
	defer w.begin(th, nil, shared).end(nil)
	last := w.begin(th, nil, limits(Limit{Semaphore: "s"}))
	w.Exec(`update "weir".jobs_keys set hold = 60000000`)
	waits := w.sentAway(th, limits(Limit{Semaphore: "s"}))
	w.Exec(`delete from "weir".jobs_holders where job = $1`, last.ID)
	require.NoError(t, th.janitor.lookAfterWaiters(t.Context()))
	w.awaitBroughtBack(waits)
	require.NoError(t, last.end(nil))
}
