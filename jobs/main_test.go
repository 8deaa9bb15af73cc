package jobs

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/jobs/internal/jobstest"
	"github.com/weir-go/weir/tools/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Runner(m)) }

// patience is how long a test waits for what must come at some time, on however slow a machine.
const patience = 3 * time.Minute

// A world is a database with River's tables and weir's, of the test's own.
type world struct {
	*jobstest.DB
	t testing.TB
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldAt(t, testserver.Postgres(t).URL)
}

func newWorldAt(t testing.TB, url string) *world {
	t.Helper()
	return &world{DB: jobstest.New(t, url, Migrate), t: t}
}

// in empties the tables for a subtest, which is cheaper than a world of its own.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	w.Exec(`truncate RIVER, "weir".jobs_limiters, "weir".jobs_keys, "weir".jobs_holders, "weir".jobs_waiters`)
	db := *w.DB
	db.T = t
	return &world{DB: &db, t: t}
}

func (w *world) throttler(o Options) *Throttler {
	w.t.Helper()
	return w.throttlerOn(w.Pool, o)
}

func (w *world) throttlerOn(pool *pgxpool.Pool, o Options) *Throttler {
	w.t.Helper()
	o.Schema, o.RiverSchema = w.Schema, w.River
	t, err := New(context.Background(), pool, &o)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { assert.NoError(w.t, t.Close()) })
	return t
}

// newThrottler returns a Throttler in a world of its own, without handing over in workers.
func newThrottler(t testing.TB) (*world, *Throttler) {
	t.Helper()
	w := newWorld(t)
	return w, w.throttler(Options{HandOver: -1})
}

// limits declares limits, and strict the same with slots that are held until the job is finalized.
func limits(l ...Limit) *Declaration { return weir.Must(Declare(Throttle{Limits: l})) }
func strict(l ...Limit) *Declaration { return weir.Must(Declare(Throttle{Strict: true, Limits: l})) }

var onMutex = limits(Limit{Mutex: "m"})

// begin runs a job that must get its limits.
func (w *world) begin(th *Throttler, args any, d *Declaration) *started {
	w.t.Helper()
	return start(th, w.Job("a", args), d).running(w.t)
}

// work runs a job that must get its limits to its end.
func (w *world) work(th *Throttler, args any, d *Declaration) *started {
	w.t.Helper()
	s := w.begin(th, args, d)
	require.NoError(w.t, s.end(nil))
	return s
}

// refused runs a job that must be throttled.
func (w *world) refused(th *Throttler, args any, d *Declaration) *started {
	w.t.Helper()
	s := start(th, w.Job("a", args), d)
	s.throttled(w.t)
	return s
}

// again runs a job again, which must get its limits, to its end.
func (w *world) again(th *Throttler, s *started, d *Declaration) {
	w.t.Helper()
	require.NoError(w.t, start(th, w.rerun(s.JobRow), d).running(w.t).end(nil))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// rerun makes River's row run again and returns the row of that run.
func (w *world) rerun(job *rivertype.JobRow) *rivertype.JobRow {
	w.t.Helper()
	again := *job
	again.AttemptedAt = new(time.Time)
	require.NoError(w.t, w.Pool.QueryRow(context.Background(), w.SQL(`update RIVER set state = 'running', finalized_at = null,
		attempted_at = greatest(clock_timestamp(), attempted_at + interval '1 microsecond') where id = $1 returning attempted_at`), job.ID).Scan(again.AttemptedAt))
	return &again
}

// state sets the state of a job as River does.
func (w *world) state(job *rivertype.JobRow, state rivertype.JobState) {
	w.t.Helper()
	w.Exec(fmt.Sprintf(`update RIVER set state = '%s', finalized_at = case when '%[1]s' in ('completed', 'cancelled', 'discarded') then now() end where id = $1`, state), job.ID)
}

// A started run has got what it needs and goes on until end is called.
type started struct {
	*rivertype.JobRow
	ctx  context.Context
	err  error         // what the attempt ended with; to be read after done
	done chan struct{} // closed at the end
	stop chan error
}

// start runs a job as a River client would whose worker has the declaration. It returns when the work has begun, or when
// the attempt has ended without.
func start(t *Throttler, job *rivertype.JobRow, d *Declaration) *started {
	s := &started{JobRow: job, done: make(chan struct{}), stop: make(chan error, 1)}
	p := t.Plugin().(*plugin)
	begun := make(chan struct{})
	go func() {
		defer close(s.done)
		s.err = p.Work(context.Background(), job, func(ctx context.Context) error {
			inner := func(ctx context.Context) error {
				if err := p.WorkBegin(ctx, job); err != nil {
					return err
				}
				if d != nil {
					if err := d.WorkBegin(ctx, job); err != nil {
						return err
					}
				}
				s.ctx = ctx
				close(begun)
				select {
				case err := <-s.stop:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if d == nil {
				return inner(ctx)
			}
			return d.Work(ctx, job, inner)
		})
	}()
	select {
	case <-begun:
	case <-s.done:
	}
	return s
}

// end ends the work with an error and waits until the attempt has ended.
func (s *started) end(err error) error {
	s.stop <- err
	<-s.done
	return s.err
}

// flush waits until everything that was released has been written.
func (t *Throttler) flush() {
	for {
		t.batcher.mu.Lock()
		idle := len(t.batcher.releases) == 0
		t.batcher.mu.Unlock()
		if idle {
			break
		}
		time.Sleep(time.Millisecond)
	}
	_, _ = t.batcher.decide(context.Background(), &request{}) // the transaction that has them, and one after it
}

// lost waits until the work has ended because its slot was lost.
func (s *started) lost(t testing.TB) {
	t.Helper()
	select {
	case <-s.done:
		require.ErrorIs(t, s.err, ErrLost)
	case <-time.After(patience):
		require.Fail(t, "the job goes on")
	}
}

func (s *started) throttled(t testing.TB) *river.JobSnoozeError {
	t.Helper()
	select {
	case <-s.done:
	default:
		require.Fail(t, "the job has started")
	}
	var snooze *river.JobSnoozeError
	require.ErrorAs(t, s.err, &snooze)
	return snooze
}

func (s *started) running(t testing.TB) *started {
	t.Helper()
	select {
	case <-s.done:
		require.NoError(t, s.err)
		require.Fail(t, "the job has not started")
	default:
	}
	return s
}

// Each statement has its template, and each template is a statement or a part of one.
func TestStatements(t *testing.T) {
	all, s := map[string]bool{}, newStatements("a", "b")
	for field, text := range reflect.ValueOf(s).Elem().Fields() {
		all[field.Name] = true
		assert.NotContains(t, text.String(), "<no value>", field.Name)
	}
	for _, part := range statementTemplates.Templates() {
		if c := part.Name()[0]; 'A' <= c && c <= 'Z' {
			assert.True(t, all[part.Name()], "%s is not used", part.Name())
		}
	}
	assert.Contains(t, s.RemoveDeadHolders, `"a".jobs_holders`)
	assert.Contains(t, s.RemoveDeadHolders, `"b".river_job`)
	assert.Contains(t, newStatements("a", "").RemoveDeadHolders, ` river_job`)
}
