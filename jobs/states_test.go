package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table of docs/jobs.md: whether a slot is held in each state of the job that has taken it, no matter what has
// brought the job there. Only the row of the job is changed: its worker goes on.
func TestStates(t *testing.T) {
	w, th := newThrottler(t)
	to := func(states ...rivertype.JobState) func(*rivertype.JobRow) {
		return func(job *rivertype.JobRow) {
			for _, state := range states {
				w.state(job, state)
			}
		}
	}
	for i, cell := range []struct {
		name            string
		happens         func(*rivertype.JobRow)
		relaxed, strict bool // the slot is held
	}{
		{"available", to(rivertype.JobStateAvailable), false, true},
		{"running", to(), true, true},
		{"retryable", to(rivertype.JobStateRetryable), false, true},
		{"scheduled", to(rivertype.JobStateScheduled), false, true},
		{"pending", to(rivertype.JobStatePending), false, true},
		{"completed", to(rivertype.JobStateCompleted), false, false},
		{"cancelled", to(rivertype.JobStateCancelled), false, false},
		{"discarded", to(rivertype.JobStateDiscarded), false, false},
		{"row deleted", func(job *rivertype.JobRow) { w.Exec(`delete from RIVER where id = $1`, job.ID) }, false, false},
		{"discarded and retried by hand", to(rivertype.JobStateDiscarded, rivertype.JobStateAvailable), false, true},
		{"retried and running again", func(job *rivertype.JobRow) { w.rerun(job) }, false, true},
		{"worker killed, lease over", func(job *rivertype.JobRow) {
			w.Exec(`update "weir".jobs_holders set until = clock_timestamp() where job = $1`, job.ID)
		}, false, true},
	} {
		for mode, held := range map[string]bool{"relaxed": cell.relaxed, "strict": cell.strict} {
			t.Run(cell.name+", "+mode, func(t *testing.T) {
				d := limits(Limit{Mutex: mode, Key: "{order}"})
				if mode == "strict" {
					d = strict(Limit{Mutex: mode, Key: "{order}"})
				}
				first := w.begin(th, orderArgs{i}, d)
				cell.happens(first.JobRow)
				if held {
					w.refused(th, orderArgs{i}, d)
				} else {
					w.work(th, orderArgs{i}, d)
				}
				_ = first.end(nil)
			})
		}
	}
}

// In strict mode a job holds its slot between its attempts and is let in to it again. A discarded job that is retried by hand
// after another job has taken the slot waits for it.
func TestStrict(t *testing.T) {
	w, th := newThrottler(t)
	d := strict(Limit{Mutex: "m"})
	first := w.begin(th, nil, d)
	before, _ := Fence(first.ctx)
	require.Error(t, first.end(assert.AnError))
	w.state(first.JobRow, rivertype.JobStateRetryable)
	other := w.refused(th, nil, d)
	again := start(th, w.rerun(first.JobRow), d).running(t)
	after, _ := Fence(again.ctx)
	assert.Greater(t, after, before)
	require.NoError(t, again.end(nil))
	start(th, w.rerun(other.JobRow), d).throttled(t)
	w.state(first.JobRow, rivertype.JobStateDiscarded)
	w.again(th, other, d)
	start(th, w.rerun(first.JobRow), d).throttled(t)
	w.state(other.JobRow, rivertype.JobStateCompleted)
	w.again(th, first, d)
}

// In strict mode an attempt that names another key drops the one of before when it asks: two jobs that swap keys do not wait for each
// other.
func TestStrict_OtherKey(t *testing.T) {
	w, th := newThrottler(t)
	d := strict(Limit{Mutex: "m", Key: "{order}"})
	first, second := w.begin(th, orderArgs{1}, d), w.begin(th, orderArgs{2}, d)
	for _, s := range []*started{first, second} {
		require.Error(t, s.end(assert.AnError))
		w.state(s.JobRow, rivertype.JobStateRetryable)
	}
	first.EncodedArgs, second.EncodedArgs = second.EncodedArgs, first.EncodedArgs
	start(th, w.rerun(first.JobRow), d).throttled(t)
	w.again(th, second, d)
	w.again(th, first, d)
}

// A run learns that it has lost its slot: to a later run of the job, whose fence is greater, to an operator, or because its
// lease has ended, even if no other job has taken the slot yet. Otherwise a renewal and the request of another job at the
// same moment could both succeed.
func TestRenew_LostSlots(t *testing.T) {
	w := newWorld(t)
	for name, lose := range map[string]func(*world, *Throttler, *started, *Declaration){
		"rescued while it runs": func(w *world, th *Throttler, first *started, d *Declaration) {
			again := start(th, w.rerun(first.JobRow), d).running(w.t)
			older, _ := Fence(first.ctx)
			newer, _ := Fence(again.ctx)
			assert.Less(w.t, older, newer)
			w.t.Cleanup(func() { require.NoError(w.t, again.running(w.t).end(nil)) })
		},
		"lease over": func(w *world, _ *Throttler, _ *started, d *Declaration) {
			w.Exec(`update "weir".jobs_holders set until = clock_timestamp(), mode = 0`)
		},
		"operator": func(w *world, th *Throttler, first *started, d *Declaration) {
			assert.False(w.t, must(th.Release(w.t.Context(), Ref{Mutex, "m", "other"}, Holder{Job: first.ID})))
			assert.True(w.t, must(th.Release(w.t.Context(), Ref{Mutex, "m", "k"}, Holder{Job: first.ID})))
			other := w.begin(th, nil, d)
			assert.False(w.t, must(th.Release(w.t.Context(), Ref{Mutex, "m", "k"}, Holder{Job: first.ID})))
			require.NoError(w.t, other.end(nil))
		},
	} {
		for _, d := range []*Declaration{limits(Limit{Mutex: "m", Key: "k"}), strict(Limit{Mutex: "m", Key: "k"})} {
			t.Run(name, func(t *testing.T) {
				w := w.in(t)
				th := w.throttler(Options{HandOver: -1})
				first := w.begin(th, nil, d)
				th.leases.renew()
				first.running(t)
				lose(w, th, first, d)
				th.leases.renew()
				first.lost(t)
			})
		}
	}
}

// While the row of a lease that has ended is being renewed, another job waits for the outcome, and does not get the slot.
func TestRenew_LeaseThatIsBeingRenewed(t *testing.T) {
	w, th := newThrottler(t)
	first := w.begin(th, nil, onMutex)
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
	w.awaitLocked(1)
	require.NoError(t, tx.Commit(t.Context()))
	(<-second).throttled(t)
	require.NoError(t, first.running(t).end(nil))
}

// If the leases cannot be renewed, a job in relaxed mode loses its slots after half of the lease, and no other does.
func TestRenew_DatabaseIsAway(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1, Lease: time.Hour})
	relaxed, held := w.begin(th, nil, onMutex), w.begin(th, nil, strict(Limit{Mutex: "strict"}))
	w.Exec(`alter table "weir".jobs_holders rename to gone`)
	ago := func(d time.Duration) {
		th.leases.mu.Lock()
		defer th.leases.mu.Unlock()
		for s := range th.leases.sessions {
			s.renewed = time.Now().Add(-d)
		}
	}
	ago(25 * time.Minute)
	th.leases.renew()
	relaxed.running(t)
	ago(30 * time.Minute)
	th.leases.renew()
	relaxed.lost(t)
	w.Exec(`alter table "weir".gone rename to jobs_holders`)
	require.NoError(t, held.running(t).end(nil))
}

// A lease is as old as its transaction, however long that took. After a commit that takes three quarters of the lease the job does not
// begin, and holds nothing.
func TestLease_SlowCommit(t *testing.T) {
	w := newWorld(t)
	w.Exec(`create function "weir".slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.8); return null; end'`)
	w.Exec(`create constraint trigger slow after insert on "weir".jobs_holders deferrable initially deferred for each row execute function "weir".slow()`)
	th := w.throttler(Options{HandOver: -1, Lease: time.Hour})
	s := w.begin(th, nil, onMutex)
	th.leases.mu.Lock()
	for s := range th.leases.sessions {
		assert.GreaterOrEqual(t, time.Since(s.renewed), 700*time.Millisecond)
	}
	th.leases.mu.Unlock()
	require.NoError(t, s.end(nil))
	short := w.throttler(Options{HandOver: -1, Lease: time.Second})
	start(short, w.Job("a", nil), limits(Limit{Mutex: "other"}, Limit{Mutex: "kept", Owner: "o", Mode: Acquire})).throttled(t)
	short.flush()
	assert.Zero(t, w.Int(`select count(*) from "weir".jobs_holders where mode <> 0 or until > clock_timestamp()`))
}

// Leases are not renewed after Close, so a job that still runs then has lost its slots, unless it holds them in strict mode.
func TestClose_RunningJobs(t *testing.T) {
	w := newWorld(t)
	th := w.throttler(Options{HandOver: -1})
	relaxed, held := w.begin(th, nil, onMutex), w.begin(th, nil, strict(Limit{Mutex: "strict"}))
	require.NoError(t, th.Close())
	relaxed.lost(t)
	require.ErrorIs(t, relaxed.err, ErrClosed)
	require.NoError(t, held.running(t).end(nil))
}

// A run ends while its lease is being renewed: the slot is released after that.
func TestRelease_WhileLeaseIsBeingRenewed(t *testing.T) {
	w, th := newThrottler(t)
	s := w.begin(th, nil, onMutex)
	tx, err := w.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), w.SQL(`update "weir".jobs_holders set until = until`))
	require.NoError(t, err)
	require.NoError(t, s.end(nil))
	w.awaitLocked(1)
	require.NoError(t, tx.Commit(t.Context()))
	th.flush()
	w.work(th, nil, onMutex)
}
