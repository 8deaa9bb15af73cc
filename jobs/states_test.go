package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// The table of docs/jobs.md: whether a slot is held in each state of the job that has taken it, no matter what has
// brought the job there. Only the row of the job is changed: its worker goes on.
func TestStatesAndModes(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	to := func(state rivertype.JobState) func(*rivertype.JobRow) {
		return func(job *rivertype.JobRow) { w.state(job, state) }
	}
	for i, cell := range []struct {
		name            string
		happens         func(*rivertype.JobRow)
		relaxed, strict bool // the slot is held
	}{
		{"available", to(rivertype.JobStateAvailable), false, true},
		{"running", func(*rivertype.JobRow) {}, true, true},
		{"retryable", to(rivertype.JobStateRetryable), false, true},
		{"scheduled", to(rivertype.JobStateScheduled), false, true},
		{"pending", to(rivertype.JobStatePending), false, true},
		{"completed", to(rivertype.JobStateCompleted), false, false},
		{"cancelled", to(rivertype.JobStateCancelled), false, false},
		{"discarded", to(rivertype.JobStateDiscarded), false, false},
		{"row deleted", func(job *rivertype.JobRow) { w.Exec(`delete from RIVER where id = $1`, job.ID) }, false, false},
		{"discarded and retried by hand", func(job *rivertype.JobRow) {
			w.state(job, rivertype.JobStateDiscarded)
			w.state(job, rivertype.JobStateAvailable)
		}, false, true},
		{"retried and running again", func(job *rivertype.JobRow) {
			w.state(job, rivertype.JobStateRetryable)
			w.rerun(job)
		}, false, true},
		{"worker killed, lease not over", func(job *rivertype.JobRow) {}, true, true},
		{"worker killed, lease over", func(job *rivertype.JobRow) {
			w.Exec(`update "weir".jobs_holders set until = clock_timestamp() where job = $1`, job.ID)
		}, false, true},
	} {
		for _, strict := range []bool{false, true} {
			held, mode := cell.relaxed, "relaxed"
			if strict {
				held, mode = cell.strict, "strict"
			}
			t.Run(cell.name+", "+mode, func(t *testing.T) {
				d := weir.Must(Declare(Throttle{Strict: strict, Limits: []Limit{{Mutex: mode, Key: "{order}"}}}))
				first := start(th, w.Job("a", orderArgs{i}), d).running(t)
				cell.happens(first.JobRow)
				second := start(th, w.Job("b", orderArgs{i}), d)
				if held {
					second.throttled(t)
				} else {
					require.NoError(t, second.running(t).end(nil))
				}
				_ = first.end(nil)
			})
		}
	}
}

// A discarded job that is retried by hand after another job has taken the slot waits for it.
func TestRetriedByHandTooLate(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	d := weir.Must(Declare(Throttle{Strict: true, Limits: []Limit{{Mutex: "m"}}}))
	first := start(th, w.Job("a", nil), d).running(t)
	require.NoError(t, first.end(nil))
	w.state(first.JobRow, rivertype.JobStateDiscarded)
	second := start(th, w.Job("a", nil), d).running(t)
	start(th, w.rerun(first.JobRow), d).throttled(t)
	require.NoError(t, second.end(nil))
	w.state(second.JobRow, rivertype.JobStateCompleted)
	require.NoError(t, start(th, w.rerun(first.JobRow), d).running(t).end(nil))
}

// In strict mode a job holds its slot between its attempts and is let in to it again.
func TestStrictReentry(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	d := weir.Must(Declare(Throttle{Strict: true, Limits: []Limit{{Mutex: "m"}}}))
	first := start(th, w.Job("a", nil), d).running(t)
	before, _ := Fence(first.ctx)
	require.Error(t, first.end(assert.AnError))
	w.state(first.JobRow, rivertype.JobStateRetryable)
	other := start(th, w.Job("b", nil), d)
	other.throttled(t)
	again := start(th, w.rerun(first.JobRow), d).running(t)
	after, _ := Fence(again.ctx)
	assert.Greater(t, after, before)
	require.NoError(t, again.end(nil))
	start(th, w.rerun(other.JobRow), d).throttled(t)
	w.state(first.JobRow, rivertype.JobStateCompleted)
	require.NoError(t, start(th, w.rerun(other.JobRow), d).running(t).end(nil))
}

// A run learns that another run of the same job has taken its place, and its fence is smaller.
func TestRescuedWhileRunning(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w := newWorld(t)
		th := w.throttler(Options{HandOver: -1})
		d := weir.Must(Declare(Throttle{Strict: strict, Limits: []Limit{{Mutex: "m"}}}))
		first := start(th, w.Job("a", nil), d).running(t)
		again := start(th, w.rerun(first.JobRow), d).running(t) // River has rescued it
		th.renew()
		<-first.done
		require.ErrorIs(t, first.err, ErrLost)
		older, _ := Fence(first.ctx)
		newer, _ := Fence(again.ctx)
		assert.Less(t, older, newer)
		th.renew()
		require.NoError(t, again.running(t).end(nil))
		th.flush()
	}
}

// A lease that has ended is lost, even if no other job has taken the slot yet. Otherwise a renewal and the request of
// another job at the same moment could both succeed.
func TestLeaseThatHasEndedIsNotRenewed(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	job := start(th, w.Job("a", nil), onMutex).running(t)
	th.renew()
	job.running(t)
	w.Exec(`update "weir".jobs_holders set until = clock_timestamp()`)
	th.renew()
	<-job.done
	require.ErrorIs(t, job.err, ErrLost)
	require.NoError(t, start(th, w.Job("b", nil), onMutex).running(t).end(nil))
}

// While the row of a lease that has ended is being renewed, another job waits for the outcome, and does not get the slot.
func TestLeaseThatIsBeingRenewed(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	first := start(th, w.Job("a", nil), onMutex).running(t)
	// A renewal has found the lease alive; the lease ends, and the renewal is not committed yet.
	tx, err := w.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	w.Exec(`update "weir".jobs_holders set until = clock_timestamp()`)
	_, err = tx.Exec(t.Context(), w.SQL(`update "weir".jobs_holders set until = clock_timestamp() + interval '1 minute'`))
	require.NoError(t, err)
	second := make(chan *started)
	job := w.Job("b", nil)
	go func() { second <- start(th, job, onMutex) }()
	require.Eventually(t, func() bool {
		return w.Int(`select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%jobs_holders%'`) == 1
	}, patience, time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	(<-second).throttled(t)
	require.NoError(t, first.running(t).end(nil))
}

func TestOperatorReleases(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	require.NoError(t, th.Set(t.Context(), Definition{Semaphore: "s", MaxCount: 1}))
	d := weir.Must(Declare(Throttle{Limits: []Limit{{Semaphore: "s", Key: "k{order}"}}}))
	job := start(th, w.Job("a", orderArgs{1}), d).running(t)
	ref := Ref{Semaphore, "s", "k1"}
	released, err := th.Release(t.Context(), Ref{Semaphore, "s", "other"}, Holder{Job: job.ID})
	require.NoError(t, err)
	assert.False(t, released)
	released, err = th.Release(t.Context(), ref, Holder{Job: job.ID})
	require.NoError(t, err)
	assert.True(t, released)
	other := start(th, w.Job("a", orderArgs{1}), d).running(t)
	th.renew()
	<-job.done
	require.ErrorIs(t, job.err, ErrLost)
	require.NoError(t, other.end(nil))
	released, err = th.Release(t.Context(), ref, Holder{Job: job.ID})
	require.NoError(t, err)
	assert.False(t, released)
}
