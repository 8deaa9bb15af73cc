package jobs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// lockKeys locks all keys, as a batch of another process does, until unlock is called.
func (w *world) lockKeys() (unlock func()) {
	w.t.Helper()
	tx, err := w.pool.Begin(context.Background())
	require.NoError(w.t, err)
	rows, err := tx.Query(context.Background(), w.sql(`select id from "weir".jobs_keys order by id for update`))
	require.NoError(w.t, err)
	_, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(w.t, err)
	return func() { require.NoError(w.t, tx.Rollback(context.Background())) }
}

// awaitLocked waits until so many backends wait for a lock of the test's tables.
func (w *world) awaitLocked(n int64) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return w.int(`select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%"weir".%'`) == n
	}, 10*time.Second, time.Millisecond)
}

// A pool may have another isolation level as its default, at which a transaction does not see what was written while it
// waited for the lock.
func TestMutex_DefaultIsolationLevel(t *testing.T) {
	w := newWorld(t)
	config, err := pgxpool.ParseConfig(w.pool.Config().ConnString())
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	one, other := w.throttlerOn(pool, Options{HandOver: -1}), w.throttlerOn(pool, Options{HandOver: -1})
	require.NoError(t, start(one, w.job("a", nil), onMutex).running(t).end(nil))
	one.flush()

	unlock := w.lockKeys()
	results := make(chan *started)
	for _, th := range []*Throttler{one, other} {
		job := w.job("a", nil)
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

// A semaphore with free slots does not look at all its holders. An owner whose deadline is over takes a slot again.
func TestAcquire_DeadlineOverInSemaphoreWithRoom(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	require.NoError(t, th.SetSemaphore(t.Context(), "s", SemaphoreOptions{MaxCount: 5}))
	d := weir.Must(Declare(Throttle{Limits: []Limit{{Semaphore: "s", Owner: "x", Mode: Acquire, Deadline: time.Hour}}}))
	require.NoError(t, start(th, w.job("a", nil), d).running(t).end(nil))
	w.exec(`update "weir".jobs_holders set until = now() - interval '1 minute'`)
	require.NoError(t, start(th, w.job("a", nil), d).running(t).end(nil))
	assert.EqualValues(t, 1, w.int(`select count(*) from "weir".jobs_holders where until > now() + interval '50 minutes'`))
}

// The jobs that take and release a slot for an owner may be decided in one transaction.
func TestRelease_InTheTransactionOfAcquire(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	limit := func(mode Mode) *Declaration {
		return weir.Must(Declare(Throttle{Limits: []Limit{{Mutex: "m", Owner: "b", Mode: mode}}}))
	}
	require.NoError(t, start(th, w.job("a", nil), onMutex).running(t).end(nil))
	th.flush()
	unlock := w.lockKeys()
	results := make(chan *started)
	ask := func(mode Mode) {
		job := w.job("a", nil)
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
	}, 10*time.Second, time.Millisecond)
	unlock()
	for range 3 {
		s := <-results
		require.NoError(t, s.running(t).end(nil))
	}
	th.flush()
	assert.Zero(t, w.int(`select count(*) from "weir".jobs_holders`))
}

// A batch finds that cleanUp removes a key while the batch waits for its lock.
func TestDynamicWindow_KeyRemovedMeanwhile(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	require.NoError(t, th.SetDynamicWindow(t.Context(), "d", DynamicWindowOptions{Interval: time.Hour, Limit: 1}))
	d := weir.Must(Declare(Throttle{Limits: []Limit{{DynamicWindow: "d", Key: "k"}}}))
	require.NoError(t, start(th, w.job("a", nil), d).running(t).end(nil))
	w.exec(`update "weir".jobs_keys set state = '', expires = now() - interval '1 hour' where key = 'k'`)

	cleanUp, err := w.pool.Begin(t.Context())
	require.NoError(t, err)
	ids, err := pgx.CollectRows(must(cleanUp.Query(t.Context(), th.sql.lockExpiredKeys)), pgx.RowTo[int64])
	require.NoError(t, err)
	results, job := make(chan *started), w.job("a", nil)
	go func() { results <- start(th, job, d) }()
	w.awaitLocked(1)
	_, err = cleanUp.Exec(t.Context(), th.sql.removeExpiredKeys, ids)
	require.NoError(t, err)
	require.NoError(t, cleanUp.Commit(t.Context()))

	require.NoError(t, (<-results).running(t).end(nil))
	start(th, w.job("a", nil), d).throttled(t)
}

// sentAway starts a job that is throttled, and sets its row as River does.
func (w *world) sentAway(th *Throttler, d *Declaration) *started {
	w.t.Helper()
	s := start(th, w.job("a", nil), d)
	w.recordSnooze(s)
	return s
}

func (w *world) recordSnooze(s *started) {
	w.t.Helper()
	w.exec(`update RIVER set state = 'scheduled', scheduled_at = now() + make_interval(secs => $2) where id = $1`, s.ID, s.throttled(w.t).Duration.Seconds())
}

// awaitBroughtBack waits until a job is brought back long before it would come by itself.
func (w *world) awaitBroughtBack(s *started) {
	w.t.Helper()
	require.Greater(w.t, s.throttled(w.t).Duration, 30*time.Second)
	require.Eventually(w.t, func() bool {
		return w.int(`select count(*) from RIVER where id = $1 and state = 'available' and scheduled_at <= now()`, s.ID) == 1
	}, 10*time.Second, 10*time.Millisecond)
}

// Who waits is brought back when a slot is released much sooner than was expected.
func TestBringBack(t *testing.T) {
	slow := `update "weir".jobs_keys set hold = 60000000`
	strict := weir.Must(Declare(Throttle{Strict: true, Limits: []Limit{{Mutex: "m"}}}))
	both := weir.Must(Declare(Throttle{Limits: []Limit{{Semaphore: "s"}}}))
	for name, test := range map[string]func(*world, *Throttler){
		"jobs before it were cancelled": func(w *world, th *Throttler) {
			first := start(th, w.job("a", nil), onMutex).running(w.t)
			w.exec(slow)
			for range 2 * maxBroughtBack {
				w.state(w.sentAway(th, onMutex).JobRow, rivertype.JobStateCancelled)
			}
			last := w.sentAway(th, onMutex)
			require.NoError(w.t, first.end(nil))
			w.awaitBroughtBack(last)
		},
		"a job before it has a least delay": func(w *world, th *Throttler) {
			first := start(th, w.job("a", nil), onMutex).running(w.t)
			w.exec(slow)
			w.sentAway(th, weir.Must(Declare(Throttle{MinDelay: time.Hour, Limits: []Limit{{Mutex: "m"}}})))
			last := w.sentAway(th, onMutex)
			require.NoError(w.t, first.end(nil))
			w.awaitBroughtBack(last)
		},
		"River had not recorded the snooze yet": func(w *world, th *Throttler) {
			first := start(th, w.job("a", nil), onMutex).running(w.t)
			w.exec(slow)
			last := start(th, w.job("a", nil), onMutex)
			last.throttled(w.t)
			require.NoError(w.t, first.end(nil))
			th.flush()
			w.recordSnooze(last)
			w.awaitBroughtBack(last)
		},
		"strict": func(w *world, th *Throttler) {
			first := start(th, w.job("a", nil), strict).running(w.t)
			w.exec(slow)
			last := w.sentAway(th, strict)
			require.NoError(w.t, first.end(nil))
			w.state(first.JobRow, rivertype.JobStateCompleted)
			w.awaitBroughtBack(last)
		},
		"no job waited when the semaphore was granted": func(w *world, th *Throttler) {
			require.NoError(w.t, th.SetSemaphore(w.t.Context(), "s", SemaphoreOptions{MaxCount: 1}))
			first := start(th, w.job("a", nil), both).running(w.t)
			w.exec(slow)
			last := w.sentAway(th, both)
			require.NoError(w.t, first.end(nil))
			w.awaitBroughtBack(last)
		},
		"a job before it has failed meanwhile": func(w *world, th *Throttler) {
			first := start(th, w.job("a", nil), onMutex).running(w.t)
			w.exec(slow)
			failed := w.sentAway(th, onMutex)
			w.exec(`update RIVER set state = 'retryable' where id = $1`, failed.ID)
			last := w.sentAway(th, onMutex)
			require.NoError(w.t, first.end(nil))
			w.awaitBroughtBack(last)
		},
		"the holder has died": func(w *world, th *Throttler) {
			first := start(th, w.job("a", nil), strict).running(w.t)
			w.exec(slow)
			last := w.sentAway(th, strict)
			w.state(first.JobRow, rivertype.JobStateDiscarded)
			require.NoError(w.t, th.lookAfterWaiters(w.t.Context()))
			w.awaitBroughtBack(last)
			require.NoError(w.t, first.end(nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test(w, w.throttler(Options{HandOver: -1}))
		})
	}
}

// halfOver returns an interval of about an hour whose present window is half over.
func (w *world) halfOver() time.Duration {
	now := w.int(`select extract(epoch from now())::bigint`)
	for seconds := int64(3600); ; seconds++ {
		if over := now % seconds; over > seconds*2/5 && over < seconds*3/5 {
			return time.Duration(seconds) * time.Second
		}
	}
}

// elapse makes all that the tables have of a fixed window older by one interval.
func (w *world) elapse(interval time.Duration) {
	w.t.Helper()
	rows, err := w.pool.Query(context.Background(), w.sql(`select id, state from "weir".jobs_keys where state <> ''`))
	require.NoError(w.t, err)
	var id int64
	var state string
	states := map[int64]string{}
	_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error { states[id] = state; return nil })
	require.NoError(w.t, err)
	for id, state := range states {
		window := mustRead(w.t, state, rulesOf(1, interval, 1), w.int(`select extract(epoch from now())::bigint * 1000000`))
		for i := range window.filled {
			window.filled[i].at--
		}
		w.exec(`update "weir".jobs_keys set state = $2 where id = $1`, id, window.String())
	}
	w.exec(`update "weir".jobs_waiters set bucket = bucket - $1::bigint, wake = wake - make_interval(secs => $1::bigint / 1000000.0)`, interval.Microseconds())
	w.exec(`update RIVER set scheduled_at = scheduled_at - make_interval(secs => $1::bigint / 1000000.0) where state = 'scheduled'`, interval.Microseconds())
}

// Places that are reserved for jobs that do not come are for others, who are brought back for them.
func TestWindow_ReservedForJobsThatDoNotCome(t *testing.T) {
	t.Parallel()
	for name, absent := range map[string]func(*world, *started){
		"queue is paused": func(w *world, s *started) {
			w.exec(`update RIVER set queue = 'paused' where id = $1`, s.ID)
		},
		"cancelled": func(w *world, s *started) { w.state(s.JobRow, rivertype.JobStateCancelled) },
		"deleted":   func(w *world, s *started) { w.exec(`delete from RIVER where id = $1`, s.ID) },
	} {
		for _, limiter := range []Type{FixedWindow, DynamicWindow} {
			t.Run(fmt.Sprint(name, ", ", limiter), func(t *testing.T) {
				w := newWorld(t)
				th, interval := w.throttler(Options{HandOver: -1}), w.halfOver()
				d := weir.Must(Declare(Throttle{Limits: []Limit{{FixedWindow: "w"}}}))
				if limiter == DynamicWindow {
					d = weir.Must(Declare(Throttle{Limits: []Limit{{DynamicWindow: "w", Key: "k"}}}))
				}
				require.NoError(t, th.SetFixedWindow(t.Context(), "w", FixedWindowOptions{Limit: 2, Interval: interval}))
				require.NoError(t, th.SetDynamicWindow(t.Context(), "w", DynamicWindowOptions{Limit: 2, Interval: interval}))
				for range 2 {
					require.NoError(t, start(th, w.job("a", nil), d).running(t).end(nil))
				}
				th.close() // no maintenance but that of the test
				var jobs []*started
				for range 6 { // in three windows
					jobs = append(jobs, w.sentAway(th, d))
				}
				for _, s := range jobs {
					absent(w, s)
				}
				first, second, third := w.sentAway(th, d), w.sentAway(th, d), w.sentAway(th, d)
				require.Greater(t, third.throttled(t).Duration, 4*interval)

				w.elapse(interval)
				require.NoError(t, th.lookAfterWaiters(t.Context()))
				assert.Zero(t, w.int(`select count(*) from RIVER where id = any($1) and scheduled_at > now() + interval '1 minute' and state = 'available'`,
					[]int64{first.ID, second.ID, third.ID}))
				assert.EqualValues(t, 2, w.int(`select count(*) from RIVER where id = any($1) and scheduled_at <= now() and state = 'available'`,
					[]int64{first.ID, second.ID, third.ID}), "as many as there are places")
				w.awaitBroughtBack(third)
				require.NoError(t, start(th, w.rerun(third.JobRow), d).running(t).end(nil))
				require.NoError(t, start(th, w.job("a", nil), d).running(t).end(nil), "a job that asks now")
				assert.LessOrEqual(t, start(th, w.job("a", nil), d).throttled(t).Duration, 5*interval)
				if name == "queue is paused" {
					start(th, w.rerun(jobs[0].JobRow), d).throttled(t) // it has lost its place, and takes a new one
				}
			})
		}
	}
}

// A job is snoozed just when its limiter changes: River records the snooze after that.
func TestSetLimiter_WhileJobsAreBeingSnoozed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	d := weir.Must(Declare(Throttle{Limits: []Limit{{FixedWindow: "w"}}}))
	require.NoError(t, th.SetFixedWindow(t.Context(), "w", FixedWindowOptions{Limit: 1, Interval: 24 * time.Hour}))
	require.NoError(t, start(th, w.job("a", nil), d).running(t).end(nil))
	before := w.sentAway(th, d)
	late := start(th, w.job("a", nil), d)
	late.throttled(t)
	require.NoError(t, th.SetFixedWindow(t.Context(), "w", FixedWindowOptions{Limit: 2, Interval: 24 * time.Hour}))
	w.awaitBroughtBack(before)
	w.recordSnooze(late)
	w.awaitBroughtBack(late)
	require.NoError(t, start(th, w.rerun(before.JobRow), d).running(t).end(nil))
	w.recordSnooze(start(th, w.rerun(late.JobRow), d)) // throttled by the options of now
	require.NoError(t, th.lookAfterWaiters(t.Context()))
	assert.EqualValues(t, 1, w.int(`select count(*) from RIVER where id = $1 and state = 'scheduled'`, late.ID))
}

// A program that knows version 1 of the tables throttles a job without the version of the limiter's options.
func TestLookAfterWaiters_VersionNotKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	d := weir.Must(Declare(Throttle{Limits: []Limit{{FixedWindow: "w"}}}))
	require.NoError(t, th.SetFixedWindow(t.Context(), "w", FixedWindowOptions{Limit: 1, Interval: 24 * time.Hour}))
	require.NoError(t, start(th, w.job("a", nil), d).running(t).end(nil))
	th.close() // no maintenance but that of the test
	s := start(th, w.job("a", nil), d)
	s.throttled(t)
	w.exec(`update "weir".jobs_waiters set version = default`)
	w.recordSnooze(s)
	require.NoError(t, th.lookAfterWaiters(t.Context()))
	assert.EqualValues(t, 1, w.int(`select count(*) from RIVER where id = $1 and state = 'scheduled'`, s.ID))
}

// River's leader makes scheduled jobs available by its own clock, which is behind.
func TestLookAfterWaiters_LeaderIsBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	require.NoError(t, th.SetFixedWindow(t.Context(), "w", FixedWindowOptions{Limit: 1, Interval: 24 * time.Hour}))
	d := weir.Must(Declare(Throttle{Limits: []Limit{{FixedWindow: "w"}}}))
	require.NoError(t, start(th, w.job("a", nil), d).running(t).end(nil))
	due, early := w.sentAway(th, d), w.sentAway(th, d)
	w.exec(`update "weir".jobs_waiters set wake = now() - interval '1 second' where job = $1`, due.ID)
	w.exec(`update RIVER set scheduled_at = now() - interval '1 second' where id = $1`, due.ID)
	w.awaitBroughtBack(due)
	assert.EqualValues(t, 1, w.int(`select count(*) from RIVER where id = $1 and state = 'scheduled'`, early.ID))
}

func TestInspect_MutexThatNoJobHasNamed(t *testing.T) {
	w := newWorld(t)
	info, err := w.throttler(Options{}).Inspect(t.Context(), Ref{Type: Mutex, Name: "m"})
	require.NoError(t, err)
	assert.Equal(t, 1, info.Limit)
	assert.Zero(t, info.Used)
	assert.Empty(t, info.Holders)
	assert.WithinRange(t, info.Next, info.Now, info.Now)
}

// How many jobs wait for windows is counted, not kept in step.
func TestInspect_WaitersOfWindows(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	require.NoError(t, th.SetDynamicWindow(t.Context(), "d", DynamicWindowOptions{Limit: 1, Interval: time.Hour}))
	d := weir.Must(Declare(Throttle{Limits: []Limit{{DynamicWindow: "d", Key: "k"}}}))
	require.NoError(t, start(th, w.job("a", nil), d).running(t).end(nil))
	for range 3 {
		w.sentAway(th, d)
	}
	assert.Equal(t, 3, must(th.Limiters(t.Context()))[0].Waiters)
	assert.Equal(t, 3, must(th.Inspect(t.Context(), Ref{Type: DynamicWindow, Name: "d", Key: "k"})).Waiting)
	assert.Equal(t, 3, must(th.Inspect(t.Context(), Ref{Type: DynamicWindow, Name: "d"})).Waiting)
}

// What a batch takes does not grow with the square of the jobs that ask.
func BenchmarkDecide_GrantsWhatWasReserved(b *testing.B) {
	for range b.N {
		batch := newBatch(1_000_000)
		batch.rows[1] = &keyRow{id: 1, rules: rules{bucket: 1_000_000, buckets: 1, limit: 100_000}, window: &window{width: 1_000_000, buckets: 1, now: 1}}
		var reqs []*request
		for job := range int64(maxBatch) {
			reqs = append(reqs, &request{job: job, snoozes: true, needs: []need{{id: 1}}})
			batch.waiters[waiterID{1, job}] = waiterRow{bucket: 1}
		}
		batch.decide(reqs, 1)
	}
}

// If the reservation of a job is due and a mutex refuses the job, the job keeps its reservation.
func TestDecide_KeepsReservation(t *testing.T) {
	const hour = 3600 * 1000 * ms
	const onMutex, onWindow = 1, 2
	stored := map[waiterID]waiterRow{}
	w := &window{width: hour, buckets: 1, now: 100}
	decide := func(now int64, held bool, jobs ...int64) (granted []int64) {
		b := newBatch(now * hour)
		s := &slots{max: 1, owners: map[string]int64{}}
		if held {
			s.owners["another"] = b.now
		}
		w.now = now
		w.prune()
		b.rows[onMutex] = &keyRow{id: onMutex, ref: Ref{Type: Mutex}, slots: s, keptOwners: map[string]bool{}}
		b.rows[onWindow] = &keyRow{id: onWindow, rules: rules{bucket: hour, buckets: 1, limit: 1}, window: w}
		b.waiters = stored
		var reqs []*request
		for _, job := range jobs {
			req := &request{job: job, snoozes: true, needs: []need{{id: onWindow}}}
			if job == 1 {
				req.needs = append(req.needs, need{id: onMutex, ref: Ref{Type: Mutex}, owner: "one"})
			}
			reqs = append(reqs, req)
		}
		b.decide(reqs, 1)
		for _, req := range reqs {
			if req.decision.granted {
				granted = append(granted, req.job)
			}
		}
		return granted
	}
	require.Equal(t, []int64{9}, decide(100, false, 9))
	require.Empty(t, decide(100, false, 1, 2, 3, 4))
	require.Equal(t, []int64{10}, decide(101, true, 1, 10)) // the place of job 1 is for another
	require.Equal(t, []int64{1}, decide(102, false, 1))
	require.Empty(t, decide(102, false, 2))
	require.Len(t, w.filled, 4) // 102, and the places of 2, 3 and 4
}
