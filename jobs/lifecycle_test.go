package jobs

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// declaredArgs declares its throttle on the type.
type declaredArgs struct {
	Key  string `json:"key"`
	Hold bool   `json:"hold"` // until the context ends
}

func (declaredArgs) Kind() string                { return "declared" }
func (declaredArgs) Plugins() []rivertype.Plugin { return onKey.Plugins() }

var onKey = weir.Must(Declare(Throttle{Limits: []Limit{{Mutex: "declared", Key: "{key}"}}}))

type cancelArgs struct {
	Key string `json:"key"`
}

func (cancelArgs) Kind() string { return "cancelled" }

type failArgs struct{}

func (failArgs) Kind() string { return "fails" }

type failWorker struct{ river.WorkerDefaults[failArgs] }

func (*failWorker) Work(_ context.Context, job *river.Job[failArgs]) error {
	if job.Attempt < 3 {
		return assert.AnError
	}
	return nil
}
func (*failWorker) NextRetry(*river.Job[failArgs]) time.Time { return time.Now() }

// Jobs on a real River client: what their rows look like in each case.
func TestLifeCycle(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	th := w.throttler(Options{HandOver: -1})
	require.NoError(t, th.Set(ctx, Definition{FixedWindow: "api", Limit: 100, Interval: 1000 * time.Hour}))
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[declaredArgs]) error {
		if job.Args.Hold {
			<-ctx.Done()
		}
		return ctx.Err()
	}))
	river.AddWorker(workers, Throttled(river.WorkFunc(func(context.Context, *river.Job[cancelArgs]) error { return nil }),
		weir.Must(Declare(Throttle{Cancel: true, Limits: []Limit{{Mutex: "declared", Key: "{key}"}}}))))
	river.AddWorker(workers, Throttled(&failWorker{}, weir.Must(Declare(Throttle{Limits: []Limit{{FixedWindow: "api"}}}))))
	client, err := river.NewClient(riverpgxv5.New(w.Pool), &river.Config{
		Schema: w.River, Workers: workers, Queues: map[string]river.QueueConfig{"default": {MaxWorkers: 10}}, TestOnly: true,
		FetchPollInterval: 20 * time.Millisecond, FetchCooldown: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Plugins: []rivertype.Plugin{th.Plugin()},
	})
	require.NoError(t, err)
	require.NoError(t, client.Start(context.Background()))
	t.Cleanup(func() { assert.NoError(t, client.Stop(context.Background())) })
	insert := func(args river.JobArgs) int64 {
		return must(client.Insert(ctx, args, nil)).Job.ID
	}
	await := func(id int64, what func(*rivertype.JobRow) bool) *rivertype.JobRow {
		t.Helper()
		var row *rivertype.JobRow
		require.Eventually(t, func() bool {
			row = must(client.JobGet(ctx, id))
			return what(row)
		}, patience, 10*time.Millisecond)
		return row
	}
	in := func(state rivertype.JobState) func(*rivertype.JobRow) bool {
		return func(row *rivertype.JobRow) bool { return row.State == state }
	}
	holds := func(id int64) bool {
		return w.Int(`select count(*) from "weir".jobs_holders where job = $1`, id) > 0
	}

	first := insert(declaredArgs{Key: "k", Hold: true})
	require.Eventually(t, func() bool { return holds(first) }, patience, 10*time.Millisecond)

	cancelled := await(insert(cancelArgs{Key: "k"}), in(rivertype.JobStateCancelled))
	assert.Equal(t, `JobCancelError: jobs: throttled by mutex "declared" key "k"`, cancelled.Errors[0].Error)
	assert.Contains(t, string(cancelled.Metadata), `"throttled_by"`)

	second := insert(declaredArgs{Key: "k"})
	waiting := await(second, func(row *rivertype.JobRow) bool { return len(row.Metadata) > len(`{"weir": null}`) })
	assert.Contains(t, string(waiting.Metadata), `"name": "declared"`)

	_, err = client.JobCancel(ctx, first) // releases, and the second one gets it
	require.NoError(t, err)
	await(first, in(rivertype.JobStateCancelled))
	done := await(second, in(rivertype.JobStateCompleted))
	assert.Contains(t, string(done.Metadata), `"weir": null`)
	assert.Equal(t, 1, done.Attempt)

	// Three attempts are three executions.
	assert.Equal(t, 3, await(insert(failArgs{}), in(rivertype.JobStateCompleted)).Attempt)
	assert.Equal(t, 3, must(th.Inspect(ctx, Ref{Type: FixedWindow, Name: "api"})).Used)
}
