package jobs

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/jobs/internal/jobstest"
)

var onOrders = limits(Limit{Mutex: "orders", Key: "{order}"})

type orderArgs struct {
	Order int `json:"order"`
}

func TestMutex(t *testing.T) {
	w, th := newThrottler(t)
	first, other := w.begin(th, orderArgs{1}, onOrders), w.begin(th, orderArgs{2}, onOrders)
	second := w.refused(th, orderArgs{1}, onOrders)
	info := must(th.Inspect(t.Context(), Ref{Mutex, "orders", "1"}))
	assert.Equal(t, 1, info.Used)
	assert.Equal(t, first.ID, info.Holders[0].Job)
	assert.Equal(t, second.ID, info.Waiters[0].Job)

	require.NoError(t, first.end(nil))
	th.flush()
	again := start(th, w.rerun(second.JobRow), onOrders).running(t)
	fence, ok := Fence(again.ctx)
	assert.True(t, ok)
	before, _ := Fence(first.ctx)
	assert.Greater(t, fence, before)
	require.NoError(t, again.end(nil))
	require.NoError(t, other.end(nil))
	th.flush()
	assert.Zero(t, w.Int(`select (select count(*) from "weir".jobs_holders) + (select count(*) from "weir".jobs_waiters)`))
}

// Each key has the count of the semaphore. If it is lowered, jobs that hold the semaphore keep it, and others wait until fewer do.
func TestSemaphore(t *testing.T) {
	w, th := newThrottler(t)
	require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "s", MaxCount: 2}))
	d := limits(Limit{Semaphore: "s", Key: "{order}"})
	defer w.begin(th, orderArgs{2}, d).end(nil)
	running := []*started{w.begin(th, orderArgs{1}, d), w.begin(th, orderArgs{1}, d)}
	waits := w.refused(th, orderArgs{1}, d)
	assert.Equal(t, []string{"1", "2"}, must(th.Keys(t.Context(), Ref{Type: Semaphore, Name: "s"}, "", 10)))
	require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "s", MaxCount: 1}))
	for _, s := range running {
		start(th, w.rerun(waits.JobRow), d).throttled(t)
		require.NoError(t, s.running(t).end(nil))
		th.flush()
	}
	w.again(th, waits, d)
}

// wake returns when a throttled job comes back, in µs by the database's clock.
func (w *world) wake(s *started) int64 {
	w.t.Helper()
	s.throttled(w.t)
	return w.Int(`select (extract(epoch from wake) * 1000000)::bigint from "weir".jobs_waiters where job = $1`, s.ID)
}

func TestFixedWindow(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{})
	set := func(limit int) {
		require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "w", Limit: limit, Interval: 1000 * time.Hour}))
	}
	set(2)
	w.work(th, nil, onWindow)
	w.work(th, nil, onWindow)
	third, fourth, fifth := w.refused(th, nil, onWindow), w.refused(th, nil, onWindow), w.refused(th, nil, onWindow)
	const interval = 1000 * 3600 * second
	assert.Zero(t, w.wake(third)%interval)
	assert.Equal(t, w.wake(third), w.wake(fourth))
	assert.Equal(t, w.wake(third)+interval, w.wake(fifth))
	info := must(th.Inspect(t.Context(), Ref{Type: FixedWindow, Name: "w"}))
	assert.Equal(t, []int{2, 3, 3}, []int{info.Used, info.Reserved, len(info.Waiters)})
	assert.True(t, info.Waiters[0].Reserved)
	assert.Equal(t, w.wake(fifth), info.Next.UnixMicro())

	// A higher limit is in force at once, and the jobs that wait are brought back.
	w.Exec(`update RIVER set state = 'scheduled', scheduled_at = now() + interval '1 day' where id = any($1)`, []int64{third.ID, fourth.ID, fifth.ID})
	set(4)
	assert.EqualValues(t, 3, w.Int(`select count(*) from RIVER where state = 'available' and scheduled_at <= now()`))
	w.again(th, third, onWindow)
	w.again(th, fifth, onWindow)
	start(th, w.rerun(fourth.JobRow), onWindow).throttled(t)
	version := w.Int(`select version from "weir".jobs_limiters`)
	set(4) // nothing changes
	assert.Equal(t, version, w.Int(`select version from "weir".jobs_limiters`))
}

// What counts is an execution: a run that was throttled does not, a retry does.
func TestFixedWindow_CountsExecutions(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{})
	require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "w", Limit: 2, Interval: 1000 * time.Hour}))
	both := Throttle{MinDelay: time.Second, Limits: []Limit{{FixedWindow: "w"}, {Mutex: "m"}}}
	d := weir.Must(Declare(both))
	first := w.begin(th, nil, d)
	second := w.Job("b", nil)
	for range 5 { // by the mutex
		start(th, w.rerun(second), d).throttled(t)
	}
	require.Error(t, first.end(assert.AnError))
	th.flush()
	w.again(th, first, d) // the retry
	th.flush()
	start(th, w.rerun(second), d).throttled(t)
	assert.Equal(t, 2, must(th.Inspect(t.Context(), Ref{Type: FixedWindow, Name: "w"})).Used)
}

// Jobs that need the same limiters in different orders, on two Throttlers, neither deadlock nor hold one without the other.
func TestThrottler_SeveralLimitsConcurrentSafe(t *testing.T) {
	w := newWorld(t)
	names := []string{"a", "b", "c", "d"}
	var running sync.WaitGroup
	var held sync.Map
	for client := range 2 {
		pool := jobstest.Pool(t, w.Pool.Config().ConnString(), 5)
		th := w.throttlerOn(pool, Options{OnEvent: func(e Event) { t.Error(e) }})
		for i := range 8 {
			running.Go(func() {
				mine := []string{names[(i+client)%4], names[(i+client+1+i%3)%4]}
				if i%2 == 0 {
					mine[0], mine[1] = mine[1], mine[0]
				}
				d := limits(Limit{Mutex: mine[0]}, Limit{Mutex: mine[1]})
				job := w.Job("x", nil)
				for n := 0; n < 5; job = w.rerun(job) {
					s := start(th, job, d)
					select {
					case <-s.done:
						continue
					default:
					}
					n++
					for _, name := range mine {
						_, taken := held.LoadOrStore(name, job.ID)
						assert.False(t, taken)
					}
					for _, name := range mine {
						held.Delete(name)
					}
					assert.NoError(t, s.end(nil))
					th.flush()
				}
			})
		}
	}
	running.Wait()
}

func TestApply(t *testing.T) {
	w := newWorld(t)
	config := Config{
		Limiters:  []Definition{{Semaphore: "smtp", MaxCount: 1}},
		Throttles: []KindThrottle{{Kinds: []string{"newsletter_*", "receipt"}, Throttle: Throttle{Limits: []Limit{{Semaphore: "smtp"}}}}},
	}
	th := w.throttler(Options{Config: config, HandOver: -1})
	first := start(th, w.Job("newsletter_monthly", nil), nil).running(t)
	start(th, w.Job("receipt", nil), nil).throttled(t)
	require.NoError(t, start(th, w.Job("newsletter", nil), nil).running(t).end(nil)) // another kind
	// What the job declares comes on top, and what both declare counts once.
	d := limits(Limit{Mutex: "m"}, Limit{Semaphore: "smtp"})
	start(th, w.Job("receipt", nil), d).throttled(t)
	require.NoError(t, first.end(nil))
	th.flush()
	w.Exec(`delete from "weir".jobs_waiters`) // they do not come back
	second := start(th, w.Job("receipt", nil), d).running(t)
	start(th, w.Job("other", nil), onMutex).throttled(t)
	require.NoError(t, second.end(nil))

	// Applied again, it is in force for jobs that start from now on.
	wrong := Config{Throttles: []KindThrottle{{Kinds: []string{"*"}, Throttle: Throttle{Limits: []Limit{{Semaphore: "none"}}}}}}
	require.ErrorIs(t, th.Apply(t.Context(), wrong), ErrUnknownLimiter)
	require.NoError(t, th.Apply(t.Context(), Config{}))
	defer start(th, w.Job("receipt", nil), nil).running(t).end(nil)
	defer start(th, w.Job("receipt", nil), nil).running(t).end(nil)
}

// A job that was throttled and has no limits any more waits for none, so that no free slot brings it back, and the limiter is not in
// use by it. If the database is away, it runs all the same.
func TestApply_LimitsThatAreGone(t *testing.T) {
	w := newWorld(t)
	throttles := []KindThrottle{{Kinds: []string{"a"}, Throttle: Throttle{Limits: []Limit{{Mutex: "m"}}}}}
	th := w.throttler(Options{HandOver: -1, Config: Config{Throttles: throttles}})
	first, second := start(th, w.Job("a", nil), nil).running(t), start(th, w.Job("a", nil), nil)
	second.throttled(t)
	second.Metadata = []byte(`{"snoozes": 1, "weir": {"until": "2026-11-22T13:00:00Z"}}`) // as River has it then
	require.NoError(t, th.Apply(t.Context(), Config{}))
	w.Exec(`alter table "weir".jobs_keys rename to gone`)
	w.Exec(`alter table "weir".jobs_waiters rename to gone_too`)
	w.again(th, second, nil)
	w.Exec(`alter table "weir".gone rename to jobs_keys`)
	w.Exec(`alter table "weir".gone_too rename to jobs_waiters`)
	again := start(th, w.rerun(second.JobRow), nil).running(t)
	assert.Zero(t, w.Int(`select count(*) from "weir".jobs_waiters`))
	require.NoError(t, first.end(nil))
	th.flush()
	require.NoError(t, th.Remove(t.Context(), Ref{Type: Mutex, Name: "m"}))
	require.NoError(t, again.end(nil))
}

func TestThrottler_JobsThatFail(t *testing.T) {
	w := newWorld(t)
	events := make(chan Event, 10)
	th := w.throttler(Options{OnEvent: func(e Event) { events <- e }})
	require.NoError(t, th.Set(t.Context(), Definition{DynamicWindow: "d", Capacity: 1, Interval: time.Second}))
	require.NoError(t, th.Remove(t.Context(), Ref{Type: DynamicWindow, Name: "d"}))
	foreign, rescued := w.Job("a", nil), w.Job("a", nil)
	foreign.ID += 1000
	w.state(rescued, rivertype.JobStateRetryable)
	for _, c := range []struct {
		limit Limit
		job   *rivertype.JobRow
		is    error
		says  string
	}{
		{Limit{Semaphore: "none"}, w.Job("a", nil), ErrUnknownLimiter, `semaphore "none"`},
		{Limit{DynamicWindow: "d", Key: "k"}, w.Job("a", nil), ErrUnknownLimiter, `dynamic window "d"`},
		{Limit{Mutex: "m", Key: "{x}"}, w.Job("a", map[string]any{"y": 1}), ErrKey, "field {x}"},
		{Limit{Mutex: "m", Owner: "{metadata:batch}"}, w.Job("a", nil), ErrKey, "{metadata:batch}"},
		{Limit{Mutex: "m"}, foreign, ErrForeignJob, "must lead to the database"},
		{Limit{Mutex: "m"}, rescued, ErrForeignJob, "this run of the job has been ended"},
	} {
		s := start(th, c.job, limits(c.limit))
		<-s.done
		require.ErrorIs(t, s.err, c.is)
		require.ErrorContains(t, s.err, c.says)
		require.NotErrorAs(t, s.err, new(*river.JobSnoozeError))
		e := <-events
		assert.Equal(t, Event{Kind: EventJobFailed, Job: c.job.ID, JobKind: "a", Err: s.err}, e)
	}
	require.NoError(t, th.Check(t.Context(), onMutex, onOrders))
	require.ErrorIs(t, th.Check(t.Context(), onMutex, limits(Limit{FixedWindow: "none"})), ErrUnknownLimiter)

	require.ErrorIs(t, onMutex.WorkBegin(t.Context(), foreign), ErrNotInstalled)
	worker := Throttled(river.WorkFunc(func(context.Context, *river.Job[noteArgs]) error { panic("unthrottled") }), onMutex)
	require.ErrorIs(t, worker.Work(t.Context(), &river.Job[noteArgs]{JobRow: foreign}), ErrNotInstalled)
}

func TestRemove(t *testing.T) {
	w, th := newThrottler(t)
	ctx, ref, d := t.Context(), Ref{Type: Semaphore, Name: "s"}, limits(Limit{Semaphore: "s"})
	require.NoError(t, th.Remove(ctx, ref))
	require.NoError(t, th.Set(ctx, Definition{Semaphore: "s", MaxCount: 1}))
	first, second := w.begin(th, nil, d), w.refused(th, nil, d)
	w.state(second.JobRow, rivertype.JobStateScheduled)
	var used *InUseError
	require.ErrorAs(t, th.Remove(ctx, ref), &used)
	assert.Equal(t, []int64{first.ID}, used.Holders)
	assert.Equal(t, []int64{second.ID}, used.Waiters)
	require.EqualError(t, used, `jobs: limiter in use: semaphore "s": jobs that hold it: 1, jobs that wait for it: 1`)
	require.NoError(t, first.end(nil))
	th.flush()
	require.ErrorAs(t, th.Remove(ctx, ref), &used)
	w.state(second.JobRow, rivertype.JobStateCancelled)
	require.NoError(t, th.Remove(ctx, ref))
	third := start(th, w.Job("a", nil), d)
	<-third.done
	require.ErrorIs(t, third.err, ErrUnknownLimiter)
	require.NoError(t, th.Set(ctx, Definition{Semaphore: "s", MaxCount: 1}))
	w.work(th, nil, d)
	require.ErrorIs(t, th.Remove(ctx, Ref{Semaphore, "s", "k"}), weir.ErrInvalidOptions)
}

func TestThrottle_CancelAndMinDelay(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{MinDelay: time.Minute})
	first := w.begin(th, nil, onMutex)
	cancelled := start(th, w.Job("a", nil), weir.Must(Declare(Throttle{Cancel: true, Limits: []Limit{{Mutex: "m"}}})))
	<-cancelled.done
	require.ErrorAs(t, cancelled.err, new(*river.JobCancelError))
	var throttled *ThrottledError
	require.ErrorAs(t, cancelled.err, &throttled)
	assert.Equal(t, Ref{Type: Mutex, Name: "m"}, throttled.Limiter)
	assert.Zero(t, w.Int(`select count(*) from "weir".jobs_waiters`))
	for d, want := range map[*Declaration]time.Duration{
		onMutex: time.Minute,
		weir.Must(Declare(Throttle{MinDelay: time.Hour, Limits: []Limit{{Mutex: "m"}}})): time.Hour,
	} {
		s := w.refused(th, nil, d)
		// It was decided between the two times.
		assert.GreaterOrEqual(t, w.wake(s)-s.AttemptedAt.UnixMicro(), want.Microseconds())
		assert.LessOrEqual(t, w.wake(s)-w.Int(`select (extract(epoch from since) * 1000000)::bigint from "weir".jobs_waiters where job = $1`, s.ID), want.Microseconds())
	}
	require.NoError(t, first.end(nil))
}

// The batches of docs/jobs.md: a job that acquires, jobs in between, and one that releases; other batches wait.
func TestAcquireAndRelease(t *testing.T) {
	w, th := newThrottler(t)
	require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "batches", MaxCount: 1}))
	type batch struct {
		Batch string `json:"batch"`
	}
	limit := func(mode Mode, deadline time.Duration) *Declaration {
		return limits(Limit{Semaphore: "batches", Owner: "{batch}", Mode: mode, Deadline: deadline})
	}
	ref := Ref{Type: Semaphore, Name: "batches"}
	begin, inside, end := limit(Acquire, time.Hour), limit(AcquireAndRelease, 0), limit(Release, 0)
	first := w.work(th, batch{"one"}, begin)
	_, ok := Fence(first.ctx)
	assert.True(t, ok)
	w.state(first.JobRow, rivertype.JobStateCompleted)
	waiting := w.refused(th, batch{"two"}, begin)
	w.Exec(`update "weir".jobs_holders set acquired = acquired - interval '30 minutes', until = until - interval '30 minutes'`)
	w.again(th, first, begin) // the deadline stays what it was
	assert.EqualValues(t, 3600, w.Int(`select round(extract(epoch from until - acquired)) from "weir".jobs_holders`))
	w.state(first.JobRow, rivertype.JobStateCompleted)
	a, b := w.begin(th, batch{"one"}, inside), w.begin(th, batch{"one"}, inside)
	require.NoError(t, a.end(nil))
	require.NoError(t, b.end(nil))
	th.flush()
	assert.Equal(t, "one", must(th.Inspect(t.Context(), ref)).Holders[0].Owner)
	last := w.begin(th, batch{"one"}, end)
	start(th, w.rerun(waiting.JobRow), begin).throttled(t) // held until the last job has ended
	require.NoError(t, last.end(nil))
	th.flush()
	assert.Greater(t, must(th.Inspect(t.Context(), ref)).MeanHold, 3*time.Minute, "for how long the owner has held it, not how long its last job took")
	w.again(th, waiting, begin)

	// No job comes to release the slot: an operator does, or the deadline.
	assert.True(t, must(th.Release(t.Context(), ref, Holder{Owner: "two"})))
	w.work(th, batch{"three"}, begin)
	four := w.refused(th, batch{"four"}, begin)
	w.Exec(`update "weir".jobs_holders set until = clock_timestamp()`)
	w.again(th, four, begin)
	w.work(th, batch{"none"}, end) // it is not throttled, although its owner holds nothing and the limiter is full

	// A semaphore with free slots does not look at all its holders. An owner whose deadline is over takes a slot again.
	require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "batches", MaxCount: 5}))
	w.Exec(`update "weir".jobs_holders set until = now() - interval '1 minute'`)
	w.work(th, batch{"four"}, begin)
	assert.EqualValues(t, 1, w.Int(`select count(*) from "weir".jobs_holders where until > now() + interval '50 minutes'`))
}

// A job with mode Release in strict mode holds the slot until it is finalized.
func TestRelease_Strict(t *testing.T) {
	w, th := newThrottler(t)
	limit := func(mode Mode) *Declaration { return strict(Limit{Mutex: "m", Owner: "b", Mode: mode}) }
	w.work(th, nil, limit(Acquire))
	last := w.begin(th, nil, limit(Release))
	require.Error(t, last.end(assert.AnError))
	w.state(last.JobRow, rivertype.JobStateRetryable)
	waits := w.refused(th, nil, onMutex)
	w.again(th, last, limit(Release))
	w.state(last.JobRow, rivertype.JobStateCompleted)
	w.again(th, waits, onMutex)
}

// A job waits in its worker until the slot is released, or the client stops, which costs no attempt.
func TestHandOver(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: time.Minute, HandOverWorkers: 1})
	first := w.begin(th, nil, onMutex)
	inWorker := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool {
			th.batcher.mu.Lock()
			pending := len(th.batcher.requests)
			th.batcher.mu.Unlock()
			return pending == 0 && w.Int(`select count(*) from "weir".jobs_waiters where in_worker`) == n
		}, patience, time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	job, p, stopped := w.Job("a", nil), th.Plugin().(*plugin), make(chan error)
	go func() {
		stopped <- p.Work(ctx, job, func(ctx context.Context) error {
			return onMutex.Work(ctx, job, func(ctx context.Context) error { return p.WorkBegin(ctx, job) })
		})
	}()
	inWorker(1)
	w.refused(th, nil, onMutex) // there is one place only
	cancel()
	require.ErrorAs(t, <-stopped, new(*river.JobSnoozeError))
	waits := make(chan *started)
	job = w.rerun(job)
	go func() { waits <- start(th, job, onMutex) }()
	inWorker(1)
	require.NoError(t, first.end(nil))
	require.NoError(t, (<-waits).running(t).end(nil))
}

func TestThrottler_DatabaseLost(t *testing.T) {
	w := newWorld(t)
	events := make(chan EventKind, 10)
	th := w.throttlerOn(jobstest.Pool(t, w.Pool.Config().ConnString(), 5), Options{MinDelay: time.Hour, OnEvent: func(e Event) { events <- e.Kind }})
	w.Exec(`alter table "weir".jobs_keys rename to gone`)
	soon := func() {
		t.Helper()
		d := start(th, w.Job("a", nil), onMutex).throttled(t).Duration
		assert.True(t, time.Second <= d && d <= 2*time.Second, "%v: nothing has throttled it", d)
	}
	soon()
	w.Exec(`alter table "weir".gone rename to jobs_keys`)
	w.work(th, nil, onMutex)
	assert.Equal(t, []EventKind{EventDatabaseLost, EventDatabaseRecovered}, []EventKind{<-events, <-events})
	th.Close()
	soon()
}

func TestUnthrottled(t *testing.T) {
	p := Unthrottled().(*plugin)
	job := &rivertype.JobRow{ID: 1, Kind: "a"}
	ran := false
	require.NoError(t, p.Work(t.Context(), job, func(ctx context.Context) error {
		require.NoError(t, p.WorkBegin(ctx, job))
		ran = true
		return onMutex.WorkBegin(ctx, job)
	}))
	assert.True(t, ran)
	require.ErrorIs(t, p.Work(t.Context(), job, func(ctx context.Context) error {
		return Unthrottled().(*plugin).Work(ctx, job, nil)
	}), weir.ErrInvalidOptions, "two plugins")
}

func TestNew_Tables(t *testing.T) {
	w := newWorld(t)
	fails := func(pool *world, o Options, says string) {
		t.Helper()
		_, err := New(t.Context(), pool.Pool, &o)
		require.ErrorContains(t, err, says)
	}
	right := Options{Schema: w.Schema, RiverSchema: w.River}
	fails(w, Options{Schema: "nowhere", RiverSchema: w.River}, "jobs.Migrate")
	fails(w, Options{Schema: w.Schema, RiverSchema: "nowhere"}, "River's migrations")
	fails(&world{DB: &jobstest.DB{}}, right, "the pool is nil")
	require.NoError(t, Migrate(t.Context(), w.Pool, w.Schema)) // again

	events := make(chan Event, 1)
	w.Exec(`insert into "weir".jobs_migrations (version) values (999)`)
	w.throttler(Options{OnEvent: func(e Event) { events <- e }})
	e := <-events
	assert.Equal(t, EventNewerSchema, e.Kind)
	assert.EqualError(t, e.Err, "the tables for throttling have version 999, and this program knows version 2")
	w.Exec(`delete from "weir".jobs_migrations where version > 1`)
	fails(w, right, "the tables for throttling have version 1, and this program needs version 2: call jobs.Migrate first")
}

// Jobs that use up the pool keep their slots, and other jobs are granted.
func TestThrottler_PoolUsedUp(t *testing.T) {
	w := newWorld(t)
	pool := jobstest.Pool(t, w.Pool.Config().ConnString(), 1)
	th := w.throttlerOn(pool, Options{})
	s := w.begin(th, nil, onMutex)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	const until = `select (extract(epoch from until) * 1000000)::bigint from "weir".jobs_holders`
	before := w.Int(until)
	th.leases.renew()
	assert.Greater(t, w.Int(until), before)
	require.NoError(t, s.end(nil))
	w.work(th, nil, onMutex)
}

func TestCleanUp(t *testing.T) {
	w, th := newThrottler(t)
	first := w.begin(th, orderArgs{1}, onOrders)
	gone := w.refused(th, orderArgs{1}, onOrders)
	w.work(th, orderArgs{2}, onOrders)
	th.flush()
	w.state(gone.JobRow, rivertype.JobStateCancelled)
	w.Exec(`update "weir".jobs_keys set expires = now() - interval '1 day'`)
	w.Exec(`update "weir".jobs_waiters set wake = now() - interval '1 day'`)
	require.NoError(t, th.janitor.cleanUp(t.Context()))
	assert.Zero(t, w.Int(`select count(*) from "weir".jobs_waiters`))
	assert.EqualValues(t, 1, w.Int(`select count(*) from "weir".jobs_keys`)) // the one that is held
	w.refused(th, orderArgs{1}, onOrders)
	w.work(th, orderArgs{2}, onOrders) // made again
	require.NoError(t, first.end(nil))
}

// Rows that no longer have an effect are removed however many there are, and rows in use hold up no others.
func TestCleanUp_Many(t *testing.T) {
	w, th := newThrottler(t)
	w.work(th, orderArgs{0}, onOrders)
	th.flush()
	w.Exec(`insert into "weir".jobs_keys (limiter, key, expires) select l.id, n, now() from "weir".jobs_limiters l, generate_series(1, 2500) n`)
	w.Exec(`insert into "weir".jobs_waiters (key, job, wake, earliest, since, in_worker)
		select k.id, 1000000, now(), now(), now(), false from "weir".jobs_keys k order by k.id limit 1200`)
	w.Exec(`update "weir".jobs_keys set expires = now() - interval '1 day'`)
	require.NoError(t, th.janitor.cleanUp(t.Context()))
	assert.EqualValues(t, 1200, w.Int(`select count(*) from "weir".jobs_keys`), "those for which jobs wait")
	w.Exec(`update "weir".jobs_waiters set wake = now() - interval '1 day'`)
	require.NoError(t, th.janitor.cleanUp(t.Context()))
	assert.Zero(t, w.Int(`select (select count(*) from "weir".jobs_keys) + (select count(*) from "weir".jobs_waiters)`))
}

// Batches lock keys of several limiters by their IDs, so Set or Remove can be the victim of a deadlock, and goes on.
func TestSet_Deadlock(t *testing.T) {
	w, th := newThrottler(t)
	w.Exec(`create sequence "weir".calls`)
	w.Exec(`create function "weir".victim() returns trigger language plpgsql as
		$$begin if nextval('"weir".calls') % 2 = 1 then raise exception 'deadlock' using errcode = '40P01'; end if; return null; end$$`)
	w.Exec(`create trigger victim after insert or delete on "weir".jobs_limiters for each statement execute function "weir".victim()`)
	require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "w", Limit: 1, Interval: time.Hour}))
	require.NoError(t, th.Remove(t.Context(), Ref{Type: FixedWindow, Name: "w"}))
	assert.Zero(t, w.Int(`select count(*) from "weir".jobs_limiters`))
}

// Limiters change while two programs run jobs that need several of them: every call returns, and no grant after a Set has
// returned exceeds the limit that it has set.
// A change of a limiter with very many keys holds up jobs for as long as a thousand of them take. If executions count for longer, the
// keys are kept for longer.
func TestSet_ManyKeys(t *testing.T) {
	w, th := newThrottler(t)
	def := Definition{FixedWindow: "w", Limit: 2, Interval: time.Minute}
	require.NoError(t, th.Set(t.Context(), def))
	w.Exec(`insert into "weir".jobs_keys (limiter, key, expires) select id, g, now() from "weir".jobs_limiters, generate_series(1, 2500) g`)
	tx, err := w.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), w.SQL(`select from "weir".jobs_keys where key = '2500' for update`))
	require.NoError(t, err)
	def.Limit = 3
	set := make(chan error)
	go func() { set <- th.Set(t.Context(), def) }()
	w.awaitLocked(1)
	w.Exec(`select from "weir".jobs_keys where key <= '1500' and length(key) = 4 for update nowait`)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-set)
	def.Interval = time.Hour
	require.NoError(t, th.Set(t.Context(), def))
	assert.Zero(t, w.Int(`select count(*) from "weir".jobs_keys where expires < now() + interval '1 hour'`))
}

func TestSet_UnderLoadConcurrentSafe(t *testing.T) {
	w := newWorld(t)
	one, other := w.throttler(Options{HandOver: -1}), w.throttler(Options{HandOver: -1})
	d := limits(Limit{Semaphore: "s"}, Limit{FixedWindow: "w"}, Limit{DynamicWindow: "d", Key: "{n}"}, Limit{Mutex: "m", Key: "{n}"})
	set := func(th *Throttler, most int) {
		require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "s", MaxCount: most}, Definition{FixedWindow: "w", Limit: 1000 * most, Interval: time.Hour},
			Definition{DynamicWindow: "d", Capacity: 10_000 * most, Interval: time.Hour, MaxKeys: 10}))
	}
	set(one, 1)
	w.Exec(`create table "weir".grants (at timestamptz, held bigint)`)
	w.Exec(`create function "weir".granted() returns trigger language plpgsql as $$begin
		insert into "weir".grants select clock_timestamp(), count(*) from "weir".jobs_holders h join "weir".jobs_keys k on k.id = h.key
			join "weir".jobs_limiters l on l.id = k.limiter and l.type = 'semaphore';
		return null; end$$`)
	w.Exec(`create trigger granted after insert on "weir".jobs_holders for each row execute function "weir".granted()`)

	ended, setters := make(chan struct{}), sync.WaitGroup{}
	setters.Go(func() { // changes another limiter all the time, in transactions with those of the first
		for n := 1; ; n++ {
			select {
			case <-ended:
				return
			default:
				assert.NoError(t, other.Set(t.Context(), Definition{SlidingWindow: "a", Limit: n, Interval: time.Hour, Buckets: 60}, Definition{Semaphore: "z", MaxCount: n}))
			}
		}
	})
	var workers sync.WaitGroup
	for i := range 12 {
		workers.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if s := start([]*Throttler{one, other}[i%2], w.Job("a", map[string]int{"n": i}), d); s.ctx != nil {
					assert.NoError(t, s.end(nil))
				}
			}
		})
	}
	clock := func() int64 { return w.Int(`select (extract(epoch from clock_timestamp()) * 1000000)::bigint`) }
	for i := range 24 {
		most := []int{3, 1, 2, 1}[i%4]
		set([]*Throttler{one, other}[i/2%2], most)
		from := clock()
		time.Sleep(20 * time.Millisecond)
		to := clock()
		assert.LessOrEqual(t, w.Int(`select coalesce(max(held), 0) from "weir".grants where at > to_timestamp($1 / 1000000.0) and at < to_timestamp($2 / 1000000.0)`, from, to), int64(most))
	}
	close(ended)
	workers.Wait()
	setters.Wait()
	assert.Positive(t, w.Int(`select count(*) from "weir".grants where held > 1`))
}
