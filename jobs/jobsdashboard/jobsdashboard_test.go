package jobsdashboard

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/jobs"
	"github.com/weir-go/weir/jobs/internal/jobstest"
	"github.com/weir-go/weir/tools/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Runner(m)) }

type importArgs struct {
	Tenant string `json:"tenant"`
	Batch  string `json:"batch"`
}

func (importArgs) Kind() string { return "import" }

// importer works until its context ends or the test does.
type importer struct {
	river.WorkerDefaults[importArgs]
	begun chan int64
	lost  chan error
}

func (w *importer) Work(ctx context.Context, job *river.Job[importArgs]) error {
	w.begun <- job.ID
	<-ctx.Done()
	w.lost <- context.Cause(ctx)
	return river.JobCancel(ctx.Err())
}

var importing = weir.Must(jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
	{Mutex: "tenants", Key: "{tenant}"},
	{Semaphore: "imports", Owner: "{batch}"},
	{FixedWindow: "starts"},
}}))

// A world is a River client that runs imports, on a server of the test's own.
type world struct {
	*importer
	throttler *jobs.Throttler
	client    *river.Client[pgx.Tx]
}

func newWorld(t *testing.T) *world {
	ctx := t.Context()
	db := jobstest.New(t, testserver.Postgres(t).URL, jobs.Migrate)

	w := &world{importer: &importer{begun: make(chan int64, 10), lost: make(chan error, 10)}}
	var err error
	w.throttler, err = jobs.New(ctx, db.Pool, &jobs.Options{
		Schema: db.Schema, RiverSchema: db.River, Lease: 8 * time.Second, // within a quarter of it, a job sees that it has lost its slot
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.throttler.Close()) })
	require.NoError(t, w.throttler.Set(ctx, jobs.Definition{Semaphore: "imports", MaxCount: 3}))
	require.NoError(t, w.throttler.Set(ctx, jobs.Definition{FixedWindow: "starts", Limit: 100, Interval: 90 * time.Second}))

	workers := river.NewWorkers()
	river.AddWorker(workers, jobs.Throttled(w.importer, importing))
	w.client, err = river.NewClient(riverpgxv5.New(db.Pool), &river.Config{
		Schema: db.River, Logger: slog.New(slog.DiscardHandler), Workers: workers, FetchPollInterval: 100 * time.Millisecond,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Plugins: []rivertype.Plugin{w.throttler.Plugin()},
	})
	require.NoError(t, err)
	require.NoError(t, w.client.Start(ctx))
	t.Cleanup(func() { require.NoError(t, w.client.StopAndCancel(context.Background())) })
	return w
}

// insert inserts a job and returns its number.
func (w *world) insert(t *testing.T, tenant, batch string) int64 {
	t.Helper()
	result, err := w.client.Insert(t.Context(), importArgs{Tenant: tenant, Batch: batch}, nil)
	require.NoError(t, err)
	return result.Job.ID
}

func TestJobs(t *testing.T) {
	ctx := t.Context()
	w := newWorld(t)
	all := New(w.throttler)
	first := w.insert(t, "acme", "spring")
	require.Equal(t, first, <-w.begun)
	second := w.insert(t, "acme", "summer")
	acme := dashboard.JobRef{Type: "mutex", Name: "tenants", Key: "acme"}
	var state dashboard.JobState
	require.Eventually(t, func() bool {
		var err error
		state, err = all.Inspect(ctx, acme)
		require.NoError(t, err)
		return len(state.Waiters) == 1
	}, 3*time.Minute, 20*time.Millisecond)

	t.Run("Inspect", func(t *testing.T) {
		assert.Equal(t, acme, state.JobRef)
		assert.Equal(t, []int{1, 1, 0, 1}, []int{state.Limit, state.Used, state.Reserved, state.Waiting})
		assert.False(t, state.Next.IsZero())
		require.Len(t, state.Holders, 1)
		assert.Equal(t, first, state.Holders[0].Job)
		assert.Empty(t, state.Holders[0].Owner)
		assert.False(t, state.Holders[0].Since.IsZero())
		assert.Equal(t, second, state.Waiters[0].Job)
		assert.False(t, state.Waiters[0].Since.IsZero())

		semaphore, err := all.Inspect(ctx, dashboard.JobRef{Type: "semaphore", Name: "imports"})
		require.NoError(t, err)
		assert.Equal(t, 3, semaphore.Limit)
		require.NotEmpty(t, semaphore.Holders)
		assert.Equal(t, "spring", semaphore.Holders[0].Owner)
		_, err = all.Inspect(ctx, dashboard.JobRef{Type: "semaphore", Name: "unknown"})
		assert.ErrorIs(t, err, jobs.ErrUnknownLimiter)
	})

	t.Run("Limiters", func(t *testing.T) {
		limiters, err := all.Limiters(ctx)
		require.NoError(t, err)
		texts := map[string]string{}
		for _, l := range limiters {
			texts[l.Type+"/"+l.Name] = l.Options
			if l.Name == "tenants" {
				assert.Equal(t, []int{1, 1, 1}, []int{l.Keys, l.Holders, l.Waiters})
			}
		}
		assert.Equal(t, map[string]string{
			"mutex/tenants": "", "semaphore/imports": "max_count 3", "fixed_window/starts": "interval 1m30s, limit 100",
		}, texts)
	})

	t.Run("Keys", func(t *testing.T) {
		for after, want := range map[string][]string{"": {"acme"}, "acme": {}} {
			keys, err := all.Keys(ctx, dashboard.JobRef{Type: "mutex", Name: "tenants"}, after, 10)
			require.NoError(t, err)
			assert.Equal(t, want, keys)
		}
	})

	t.Run("the database is away", func(t *testing.T) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := all.Limiters(ended)
		assert.ErrorIs(t, err, context.Canceled)
		_, err = all.Inspect(ended, acme)
		assert.ErrorIs(t, err, context.Canceled)
	})

	t.Run("Release", func(t *testing.T) {
		released, err := all.Release(ctx, acme, dashboard.JobHolder{Job: second})
		require.NoError(t, err)
		assert.False(t, released, "it holds nothing")
		released, err = all.Release(ctx, acme, state.Holders[0])
		require.NoError(t, err)
		assert.True(t, released)
		assert.ErrorIs(t, <-w.lost, jobs.ErrLost)
		assert.Equal(t, second, <-w.begun, "the next job has the slot")

		released, err = all.Release(ctx, dashboard.JobRef{Type: "semaphore", Name: "imports"}, dashboard.JobHolder{Job: second, Owner: "summer"})
		require.NoError(t, err)
		assert.True(t, released)
		assert.ErrorIs(t, <-w.lost, jobs.ErrLost)
	})
}

func TestNew_WithoutThrottler(t *testing.T) { assert.Nil(t, New(nil)) }

func TestOptionsText(t *testing.T) {
	for options, want := range map[string]string{
		`{}`: "", `{"max_count": 3}`: "max_count 3", `{"limit":5,"interval":60000000000,"buckets":3}`: "buckets 3, interval 1m0s, limit 5",
		`{"interval":"soon"}`: `interval "soon"`, `[1]`: `[1]`, ``: ``,
	} {
		assert.Equal(t, want, optionsText(json.RawMessage(options)), options)
	}
}
