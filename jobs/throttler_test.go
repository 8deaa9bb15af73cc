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

var onOrders = weir.Must(Declare(Throttle{Limits: []Limit{{Mutex: "orders", Key: "{order}"}}}))

type orderArgs struct {
	Order int `json:"order"`
}

func TestMutex(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	first := start(th, w.Job("a", orderArgs{1}), onOrders).running(t)
	other := start(th, w.Job("a", orderArgs{2}), onOrders).running(t)
	second := start(th, w.Job("b", orderArgs{1}), onOrders)
	second.throttled(t)

	info, err := th.Inspect(t.Context(), Ref{Mutex, "orders", "1"})
	require.NoError(t, err)
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
	assert.Zero(t, w.Int(`select count(*) from "weir".jobs_holders`))
	assert.Zero(t, w.Int(`select count(*) from "weir".jobs_waiters`))
}

// The example of the documentation: no exception when the limit is lowered, newcomers wait until fewer hold it.
func TestSemaphoreLowered(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "newsletter", MaxCount: 3}))
	d := weir.Must(Declare(Throttle{Limits: []Limit{{Semaphore: "newsletter"}}}))
	var running []*started
	for range 3 {
		running = append(running, start(th, w.Job("a", nil), d).running(t))
	}
	require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "newsletter", MaxCount: 1}))
	waiting := w.Job("b", nil)
	for i := range 3 {
		start(th, w.rerun(waiting), d).throttled(t)
		require.NoError(t, running[i].running(t).end(nil))
		th.flush()
	}
	require.NoError(t, start(th, w.rerun(waiting), d).running(t).end(nil))
}

func TestKeyedSemaphore(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "tenants", MaxCount: 2}))
	d := weir.Must(Declare(Throttle{Limits: []Limit{{Semaphore: "tenants", Key: "{order}"}}}))
	for tenant := range 3 {
		for range 2 {
			defer start(th, w.Job("a", orderArgs{tenant}), d).running(t).end(nil)
		}
		start(th, w.Job("a", orderArgs{tenant}), d).throttled(t)
	}
	keys, err := th.Keys(t.Context(), Ref{Type: Semaphore, Name: "tenants"}, "", 10)
	require.NoError(t, err)
	assert.Equal(t, []string{"0", "1", "2"}, keys)
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
	require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "github", Limit: 2, Interval: 1000 * time.Hour}))
	d := weir.Must(Declare(Throttle{Limits: []Limit{{FixedWindow: "github"}}}))
	require.NoError(t, start(th, w.Job("a", nil), d).running(t).end(nil))
	require.NoError(t, start(th, w.Job("a", nil), d).running(t).end(nil))
	third := start(th, w.Job("a", nil), d)
	fourth := start(th, w.Job("a", nil), d)
	fifth := start(th, w.Job("a", nil), d)
	const interval = 1000 * 3600 * second
	assert.Zero(t, w.wake(third)%interval)
	assert.Equal(t, w.wake(third), w.wake(fourth))
	assert.Equal(t, w.wake(third)+interval, w.wake(fifth))

	info, err := th.Inspect(t.Context(), Ref{Type: FixedWindow, Name: "github"})
	require.NoError(t, err)
	assert.Equal(t, 2, info.Used)
	assert.Equal(t, 3, info.Reserved)
	assert.Len(t, info.Waiters, 3)
	assert.True(t, info.Waiters[0].Reserved)
	assert.Equal(t, w.wake(fifth), info.Next.UnixMicro())

	// A higher limit is in force at once, and those who wait are brought back.
	w.Exec(`update RIVER set state = 'scheduled', scheduled_at = now() + interval '1 day' where id = any($1)`, []int64{third.ID, fourth.ID, fifth.ID})
	require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "github", Limit: 4, Interval: 1000 * time.Hour}))
	assert.EqualValues(t, 3, w.Int(`select count(*) from RIVER where state = 'available' and scheduled_at <= now()`))
	require.NoError(t, start(th, w.rerun(third.JobRow), d).running(t).end(nil))
	require.NoError(t, start(th, w.rerun(fifth.JobRow), d).running(t).end(nil))
	start(th, w.rerun(fourth.JobRow), d).throttled(t)
	// To set the same again does nothing.
	version := w.Int(`select version from "weir".jobs_limiters`)
	require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "github", Limit: 4, Interval: 1000 * time.Hour}))
	assert.Equal(t, version, w.Int(`select version from "weir".jobs_limiters`))
}

// What counts is an execution: a run that was throttled does not, a retry does.
func TestWindowsCountExecutions(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{})
	require.NoError(t, th.Set(t.Context(), Definition{FixedWindow: "api", Limit: 2, Interval: 1000 * time.Hour}))
	d := weir.Must(Declare(Throttle{Limits: []Limit{{FixedWindow: "api"}, {Mutex: "m"}}}))
	first := start(th, w.Job("a", nil), d).running(t)
	second := w.Job("b", nil)
	for range 5 { // by the mutex
		start(th, w.rerun(second), weir.Must(Declare(Throttle{MinDelay: time.Second, Limits: []Limit{{FixedWindow: "api"}, {Mutex: "m"}}}))).throttled(t)
	}
	require.Error(t, first.end(assert.AnError))
	th.flush()
	require.NoError(t, start(th, w.rerun(first.JobRow), d).running(t).end(nil)) // the retry
	th.flush()
	start(th, w.rerun(second), d).throttled(t)
	assert.Equal(t, 2, must(th.Inspect(t.Context(), Ref{Type: FixedWindow, Name: "api"})).Used)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Jobs that need the same limiters in different orders, on two Throttlers, neither deadlock nor hold one without the
// other.
func TestSeveralLimitsConcurrentSafe(t *testing.T) {
	w := newWorld(t)
	names := []string{"a", "b", "c", "d"}
	var running sync.WaitGroup
	var mu sync.Mutex
	held := map[string]int64{}
	for client := range 2 {
		th := w.throttlerOn(jobstest.Pool(t, w.Pool.Config().ConnString(), 5), Options{OnEvent: func(e Event) { t.Error(e) }})
		for i := range 8 {
			running.Go(func() {
				mine := []string{names[(i+client)%4], names[(i+client+1+i%3)%4]}
				if i%2 == 0 {
					mine[0], mine[1] = mine[1], mine[0]
				}
				d := weir.Must(Declare(Throttle{Limits: []Limit{{Mutex: mine[0]}, {Mutex: mine[1]}}}))
				job := w.Job("x", nil)
				for n := 0; n < 5; {
					s := start(th, job, d)
					select {
					case <-s.done:
					default:
						n++
						mu.Lock()
						for _, name := range mine {
							assert.Zero(t, held[name])
							held[name] = job.ID
						}
						mu.Unlock()
						mu.Lock()
						for _, name := range mine {
							held[name] = 0
						}
						mu.Unlock()
						assert.NoError(t, s.end(nil))
						th.flush()
					}
					job = w.rerun(job)
				}
			})
		}
	}
	running.Wait()
}

func TestSharedBetweenKindsAndDeclaredByConfiguration(t *testing.T) {
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
	d := weir.Must(Declare(Throttle{Limits: []Limit{{Mutex: "m"}, {Semaphore: "smtp"}}}))
	start(th, w.Job("receipt", nil), d).throttled(t)
	require.NoError(t, first.end(nil))
	th.flush()
	w.Exec(`delete from "weir".jobs_waiters`) // they do not come back
	second := start(th, w.Job("receipt", nil), d).running(t)
	start(th, w.Job("other", nil), weir.Must(Declare(Throttle{Limits: []Limit{{Mutex: "m"}}}))).throttled(t)
	require.NoError(t, second.end(nil))

	// Applied again, it is in force for jobs that start from now on.
	require.ErrorIs(t, th.Apply(t.Context(), Config{Throttles: []KindThrottle{{Kinds: []string{"*"}, Throttle: Throttle{Limits: []Limit{{Semaphore: "none"}}}}}}), ErrUnknownLimiter)
	require.NoError(t, th.Apply(t.Context(), Config{}))
	defer start(th, w.Job("receipt", nil), nil).running(t).end(nil)
	defer start(th, w.Job("receipt", nil), nil).running(t).end(nil)
}

func TestErrorsOfJobs(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	var events []Event
	th := w.throttler(Options{OnEvent: func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}})
	require.NoError(t, th.Set(t.Context(), Definition{DynamicWindow: "d", Limit: 1, Interval: time.Second}))
	require.NoError(t, th.Remove(t.Context(), Ref{Type: DynamicWindow, Name: "d"}))
	type args map[string]any
	for _, c := range []struct {
		name  string
		limit Limit
		args  args
		is    error
		says  string
	}{
		{"unknown", Limit{Semaphore: "none"}, nil, ErrUnknownLimiter, `semaphore "none"`},
		{"removed", Limit{DynamicWindow: "d", Key: "k"}, nil, ErrUnknownLimiter, `dynamic window "d"`},
		{"missing field", Limit{Mutex: "m", Key: "{x}"}, args{"y": 1}, ErrKey, "field {x}"},
		{"owner", Limit{Mutex: "m", Owner: "{metadata:batch}"}, nil, ErrKey, "{metadata:batch}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := w.Job("a", c.args)
			s := start(th, job, weir.Must(Declare(Throttle{Limits: []Limit{c.limit}})))
			<-s.done
			require.ErrorIs(t, s.err, c.is)
			require.ErrorContains(t, s.err, c.says)
			var snooze *river.JobSnoozeError
			require.NotErrorAs(t, s.err, &snooze)
			assert.Eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(events) > 0 && events[len(events)-1].Job == job.ID && events[len(events)-1].Kind == EventJobFailed
			}, patience, time.Millisecond)
		})
	}
	t.Run("foreign", func(t *testing.T) {
		job := w.Job("a", nil)
		job.ID += 1000
		s := start(th, job, onMutex)
		<-s.done
		require.ErrorIs(t, s.err, ErrForeignJob)
	})
	t.Run("not installed", func(t *testing.T) {
		job := w.Job("a", nil)
		require.ErrorIs(t, onMutex.WorkBegin(t.Context(), job), ErrNotInstalled)
		worker := Throttled(river.WorkFunc(func(context.Context, *river.Job[noteArgs]) error { panic("unthrottled") }), onMutex)
		require.ErrorIs(t, worker.Work(t.Context(), &river.Job[noteArgs]{JobRow: job}), ErrNotInstalled)
	})
	t.Run("check", func(t *testing.T) {
		require.NoError(t, th.Check(t.Context(), onMutex, onOrders))
		require.ErrorIs(t, th.Check(t.Context(), onMutex, weir.Must(Declare(Throttle{Limits: []Limit{{FixedWindow: "none"}}}))), ErrUnknownLimiter)
	})
}

var onMutex = weir.Must(Declare(Throttle{Limits: []Limit{{Mutex: "m"}}}))

func TestRemove(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	ctx := t.Context()
	ref := Ref{Type: Semaphore, Name: "s"}
	require.NoError(t, th.Remove(ctx, ref))
	require.NoError(t, th.Set(ctx, Definition{Semaphore: "s", MaxCount: 1}))
	d := weir.Must(Declare(Throttle{Limits: []Limit{{Semaphore: "s"}}}))
	first := start(th, w.Job("a", nil), d).running(t)
	second := start(th, w.Job("a", nil), d)
	second.throttled(t)
	w.state(second.JobRow, rivertype.JobStateScheduled)
	var used *InUseError
	err := th.Remove(ctx, ref)
	require.ErrorAs(t, err, &used)
	assert.Equal(t, []int64{first.ID}, used.Holders)
	assert.Equal(t, []int64{second.ID}, used.Waiters)
	require.EqualError(t, err, `jobs: limiter in use: semaphore "s": jobs that hold it: 1, jobs that wait for it: 1`)
	require.NoError(t, first.end(nil))
	th.flush()
	require.ErrorAs(t, th.Remove(ctx, ref), &used)
	w.state(second.JobRow, rivertype.JobStateCancelled)
	require.NoError(t, th.Remove(ctx, ref))
	third := start(th, w.Job("a", nil), d)
	<-third.done
	require.ErrorIs(t, third.err, ErrUnknownLimiter)
	require.NoError(t, th.Set(ctx, Definition{Semaphore: "s", MaxCount: 1}))
	require.NoError(t, start(th, w.Job("a", nil), d).running(t).end(nil))
	require.ErrorIs(t, th.Remove(ctx, Ref{Semaphore, "s", "k"}), weir.ErrInvalidOptions)
}

func TestCancel(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{})
	first := start(th, w.Job("a", nil), onMutex).running(t)
	d := weir.Must(Declare(Throttle{Cancel: true, Limits: []Limit{{Mutex: "m"}}}))
	second := start(th, w.Job("a", nil), d)
	<-second.done
	var cancel *river.JobCancelError
	require.ErrorAs(t, second.err, &cancel)
	var throttled *ThrottledError
	require.ErrorAs(t, second.err, &throttled)
	assert.Equal(t, Ref{Type: Mutex, Name: "m"}, throttled.Limiter)
	assert.Zero(t, w.Int(`select count(*) from "weir".jobs_waiters`))
	require.NoError(t, first.end(nil))
}

func TestMinDelay(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{MinDelay: time.Minute})
	first := start(th, w.Job("a", nil), onMutex).running(t)
	for d, want := range map[*Declaration]time.Duration{
		onMutex: time.Minute,
		weir.Must(Declare(Throttle{MinDelay: time.Hour, Limits: []Limit{{Mutex: "m"}}})): time.Hour,
	} {
		s := start(th, w.Job("a", nil), d)
		// It was decided between the two times.
		assert.GreaterOrEqual(t, w.wake(s)-s.AttemptedAt.UnixMicro(), want.Microseconds())
		assert.LessOrEqual(t, w.wake(s)-w.Int(`select (extract(epoch from since) * 1000000)::bigint from "weir".jobs_waiters where job = $1`, s.ID), want.Microseconds())
	}
	require.NoError(t, first.end(nil))
}

// The batches of the documentation: a job that acquires, jobs in between, and one that releases; other batches wait.
func TestBatches(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "batches", MaxCount: 1}))
	type batchArgs struct {
		Batch string `json:"batch"`
	}
	limit := func(mode Mode, deadline time.Duration) *Declaration {
		return weir.Must(Declare(Throttle{Limits: []Limit{{Semaphore: "batches", Owner: "{batch}", Mode: mode, Deadline: deadline}}}))
	}
	ref := Ref{Type: Semaphore, Name: "batches"}
	begin, inside, end := limit(Acquire, 0), limit(AcquireAndRelease, 0), limit(Release, 0)
	first := start(th, w.Job("begin", batchArgs{"one"}), begin).running(t)
	_, ok := Fence(first.ctx)
	assert.True(t, ok)
	require.NoError(t, first.end(nil))
	w.state(first.JobRow, rivertype.JobStateCompleted)
	th.flush()
	waiting := start(th, w.Job("begin", batchArgs{"two"}), begin)
	waiting.throttled(t)
	require.NoError(t, start(th, w.rerun(first.JobRow), begin).running(t).end(nil)) // re-enters
	w.state(first.JobRow, rivertype.JobStateCompleted)
	a := start(th, w.Job("part", batchArgs{"one"}), inside).running(t)
	b := start(th, w.Job("part", batchArgs{"one"}), inside).running(t)
	require.NoError(t, a.end(nil))
	require.NoError(t, b.end(nil))
	th.flush()
	assert.Equal(t, "one", must(th.Inspect(t.Context(), ref)).Holders[0].Owner)
	last := start(th, w.Job("end", batchArgs{"one"}), end).running(t)
	start(th, w.rerun(waiting.JobRow), begin).throttled(t) // held until the last job has ended
	require.NoError(t, last.end(nil))
	th.flush()
	require.NoError(t, start(th, w.rerun(waiting.JobRow), begin).running(t).end(nil))

	// No job comes to release the slot: an operator does, or the deadline.
	released, err := th.Release(t.Context(), ref, Holder{Owner: "two"})
	require.NoError(t, err)
	assert.True(t, released)
	short := limit(Acquire, time.Hour)
	require.NoError(t, start(th, w.Job("begin", batchArgs{"three"}), short).running(t).end(nil))
	four := start(th, w.Job("begin", batchArgs{"four"}), short)
	four.throttled(t)
	assert.EqualValues(t, 3600, w.Int(`select round(extract(epoch from until - acquired)) from "weir".jobs_holders`))
	w.Exec(`update "weir".jobs_holders set until = clock_timestamp()`)
	require.NoError(t, start(th, w.rerun(four.JobRow), short).running(t).end(nil))

	// A release-only job whose owner holds nothing, or whose limiter is full, is not throttled.
	require.NoError(t, start(th, w.Job("end", batchArgs{"none"}), end).running(t).end(nil))
}

// For how long an owner has held a slot is what counts for those who wait, not how long its last job took.
func TestHoldOfABatchIsLearned(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	limit := func(mode Mode) *Declaration {
		return weir.Must(Declare(Throttle{Limits: []Limit{{Mutex: "m", Owner: "b", Mode: mode}}}))
	}
	require.NoError(t, start(th, w.Job("begin", nil), limit(Acquire)).running(t).end(nil))
	w.Exec(`update "weir".jobs_holders set acquired = acquired - interval '1 hour'`)
	require.NoError(t, start(th, w.Job("part", nil), limit(AcquireAndRelease)).running(t).end(nil))
	th.flush()
	require.NoError(t, start(th, w.Job("end", nil), limit(Release)).running(t).end(nil))
	th.flush()
	info, err := th.Inspect(t.Context(), Ref{Type: Mutex, Name: "m"})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, info.MeanHold, time.Hour)
}

// The worker of a release-only job in strict mode holds the slot until the job is finalized.
func TestReleaseStrict(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	limit := func(mode Mode) *Declaration {
		return weir.Must(Declare(Throttle{Strict: true, Limits: []Limit{{Mutex: "m", Owner: "b", Mode: mode}}}))
	}
	require.NoError(t, start(th, w.Job("begin", nil), limit(Acquire)).running(t).end(nil))
	last := start(th, w.Job("end", nil), limit(Release)).running(t)
	require.Error(t, last.end(assert.AnError))
	w.state(last.JobRow, rivertype.JobStateRetryable)
	other := weir.Must(Declare(Throttle{Limits: []Limit{{Mutex: "m"}}}))
	waits := start(th, w.Job("other", nil), other)
	waits.throttled(t)
	again := start(th, w.rerun(last.JobRow), limit(Release)).running(t)
	require.NoError(t, again.end(nil))
	w.state(last.JobRow, rivertype.JobStateCompleted)
	require.NoError(t, start(th, w.rerun(waits.JobRow), other).running(t).end(nil))
}

func TestHandOver(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: time.Minute, HandOverWorkers: 1})
	first := start(th, w.Job("a", nil), onMutex).running(t)
	waits := make(chan *started)
	job := w.Job("a", nil)
	go func() { waits <- start(th, job, onMutex) }()
	require.Eventually(t, func() bool {
		return w.Int(`select count(*) from "weir".jobs_waiters where in_worker`) == 1
	}, patience, time.Millisecond)
	start(th, w.Job("a", nil), onMutex).throttled(t) // there is one place only
	require.NoError(t, first.end(nil))
	second := <-waits
	require.NoError(t, second.running(t).end(nil))
}

func TestDatabaseLost(t *testing.T) {
	w := newWorld(t)
	pool := jobstest.Pool(t, w.Pool.Config().ConnString(), 5)
	var mu sync.Mutex
	var events []EventKind
	th := w.throttlerOn(pool, Options{OnEvent: func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e.Kind)
	}})
	w.Exec(`alter table "weir".jobs_keys rename to gone`)
	snooze := start(th, w.Job("a", nil), onMutex).throttled(t)
	assert.GreaterOrEqual(t, snooze.Duration, time.Second)
	w.Exec(`alter table "weir".gone rename to jobs_keys`)
	require.NoError(t, start(th, w.Job("a", nil), onMutex).running(t).end(nil))
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(events) == 2 && events[0] == EventDatabaseLost && events[1] == EventDatabaseRecovered
	}, patience, time.Millisecond)
	th.Close()
	start(th, w.Job("a", nil), onMutex).throttled(t)
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
}

func TestNewWithoutTables(t *testing.T) {
	w := newWorld(t)
	_, err := New(t.Context(), w.Pool, &Options{Schema: "nowhere", RiverSchema: w.River})
	require.ErrorContains(t, err, "jobs.Migrate")
	_, err = New(t.Context(), w.Pool, &Options{Schema: w.Schema, RiverSchema: "nowhere"})
	require.ErrorContains(t, err, "River's migrations")
	require.NoError(t, Migrate(t.Context(), w.Pool, w.Schema)) // again
	_, err = New(t.Context(), nil, nil)
	require.ErrorContains(t, err, "the pool is nil")
}

func TestNew_VersionOfTables(t *testing.T) {
	w := newWorld(t)
	events := make(chan Event, 1)
	w.Exec(`insert into "weir".jobs_migrations (version) values (999)`)
	w.throttler(Options{OnEvent: func(e Event) { events <- e }})
	e := <-events
	assert.Equal(t, EventNewerSchema, e.Kind)
	assert.EqualError(t, e.Err, "the tables for throttling have version 999, and this program knows version 2")
	w.Exec(`delete from "weir".jobs_migrations where version > 1`)
	_, err := New(t.Context(), w.Pool, &Options{Schema: w.Schema, RiverSchema: w.River})
	require.ErrorContains(t, err, "the tables for throttling have version 1, and this program needs version 2: call jobs.Migrate first")
}

// Jobs that use up the pool keep their slots, and other jobs are granted.
func TestThrottler_PoolUsedUp(t *testing.T) {
	w := newWorld(t)
	pool := jobstest.Pool(t, w.Pool.Config().ConnString(), 1)
	th := w.throttlerOn(pool, Options{})
	s := start(th, w.Job("a", nil), onMutex).running(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	until := w.Int(`select (extract(epoch from until) * 1000000)::bigint from "weir".jobs_holders`)
	th.renew()
	assert.Greater(t, w.Int(`select (extract(epoch from until) * 1000000)::bigint from "weir".jobs_holders`), until)
	require.NoError(t, s.end(nil))
	require.NoError(t, start(th, w.Job("a", nil), onMutex).running(t).end(nil))
}

func TestCleanUp(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	first := start(th, w.Job("a", orderArgs{1}), onOrders).running(t)
	gone := start(th, w.Job("a", orderArgs{1}), onOrders)
	gone.throttled(t)
	require.NoError(t, start(th, w.Job("a", orderArgs{2}), onOrders).running(t).end(nil))
	th.flush()
	w.state(gone.JobRow, rivertype.JobStateCancelled)
	w.Exec(`update "weir".jobs_keys set expires = now() - interval '1 day'`)
	w.Exec(`update "weir".jobs_waiters set wake = now() - interval '1 day'`)
	require.NoError(t, th.cleanUp(t.Context()))
	assert.Zero(t, w.Int(`select count(*) from "weir".jobs_waiters`))
	assert.EqualValues(t, 1, w.Int(`select count(*) from "weir".jobs_keys`)) // the one that is held
	start(th, w.Job("a", orderArgs{1}), onOrders).throttled(t)
	require.NoError(t, start(th, w.Job("a", orderArgs{2}), onOrders).running(t).end(nil)) // made again
	require.NoError(t, first.end(nil))
}

func TestThrottler_PluginTwice(t *testing.T) {
	th := &Throttler{}
	th.throttles.Store(&kindThrottles{})
	job := &rivertype.JobRow{ID: 1, Kind: "a"}
	require.ErrorIs(t, th.Plugin().(*plugin).Work(t.Context(), job, func(ctx context.Context) error {
		return th.Plugin().(*plugin).Work(ctx, job, nil)
	}), weir.ErrInvalidOptions)
}

// A job that waits in its worker when the client stops costs no attempt.
func TestClientStops(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: time.Minute})
	first := start(th, w.Job("a", nil), onMutex).running(t)
	ctx, cancel := context.WithCancel(t.Context())
	job := w.Job("a", nil)
	p := th.Plugin().(*plugin)
	done := make(chan error)
	go func() {
		done <- p.Work(ctx, job, func(ctx context.Context) error {
			return onMutex.Work(ctx, job, func(ctx context.Context) error { return p.WorkBegin(ctx, job) })
		})
	}()
	require.Eventually(t, func() bool { return w.Int(`select count(*) from "weir".jobs_waiters where in_worker`) == 1 }, patience, time.Millisecond)
	cancel()
	var snooze *river.JobSnoozeError
	require.ErrorAs(t, <-done, &snooze)
	require.NoError(t, first.end(nil))
	th.flush()
	require.NoError(t, start(th, w.rerun(job), onMutex).running(t).end(nil))
}
