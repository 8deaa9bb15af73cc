package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A noteArgs job writes down when it begins and when it ends, by the database's clock, and sleeps in between.
type noteArgs struct {
	Key   string        `json:"key"`
	Sleep time.Duration `json:"sleep"`
	Fail  int           `json:"fail"` // how many attempts end with an error
}

func (noteArgs) Kind() string { return "note" }

type noteWorker struct {
	river.WorkerDefaults[noteArgs]
	pool  *pgxpool.Pool
	table string
}

func (w *noteWorker) Work(ctx context.Context, job *river.Job[noteArgs]) error {
	fence, _ := Fence(ctx)
	if _, err := w.pool.Exec(ctx, `insert into `+w.table+` (job, attempt, key, fence, begun) values ($1, $2, $3, $4, clock_timestamp())`,
		job.ID, job.Attempt, job.Args.Key, fence); err != nil {
		return err
	}
	select {
	case <-time.After(job.Args.Sleep):
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := w.pool.Exec(ctx, `update `+w.table+` set ended = clock_timestamp() where job = $1 and attempt = $2`, job.ID, job.Attempt); err != nil {
		return err
	}
	if job.Attempt <= job.Args.Fail {
		return fmt.Errorf("attempt %d", job.Attempt)
	}
	return nil
}

func (*noteWorker) NextRetry(*river.Job[noteArgs]) time.Time {
	return time.Now().Add(100 * time.Millisecond)
}

// A process is what a River client in a process of its own is started with.
type process struct {
	URL, Schema, River string
	ID                 string    // of the River client; empty: a random one
	Throttle           *Throttle // nil: the worker is not throttled and the client has no plugin
	NoPlugin           bool
	Workers            int
	Poll               time.Duration
	Clock              time.Duration // how far its clock is off
	Follower           bool          // it is never the one that moves scheduled jobs on, which goes by its own clock
}

// skewed is River's clock of a machine that is off.
type skewed struct{ by time.Duration }

func (s skewed) Now() time.Time       { return time.Now().Add(s.by) }
func (s skewed) NowOrNil() *time.Time { return nil }

// run works jobs until the context ends.
func (p process) run(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(p.URL)
	if err != nil {
		return err
	}
	config.MaxConns = 6 // a server has 100, for the processes of all tests that run at the same time
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, stop, err := p.client(ctx, pool)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	err = client.Stop(context.WithoutCancel(ctx))
	stop()
	return err
}

func (p process) client(ctx context.Context, pool *pgxpool.Pool) (*river.Client[pgx.Tx], func(), error) {
	workers := river.NewWorkers()
	worker := &noteWorker{pool: pool, table: notes(p.Schema)}
	config := &river.Config{
		ID: p.ID, Schema: p.River, Workers: workers, Queues: map[string]river.QueueConfig{"default": {MaxWorkers: p.Workers}},
		FetchPollInterval: p.Poll, FetchCooldown: min(p.Poll, 100*time.Millisecond), TestOnly: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	config.LeaderElectionDisabled = p.Follower
	if p.Clock != 0 {
		config.Test.Time = skewed{p.Clock}
	}
	if p.Throttle == nil {
		river.AddWorker(workers, worker)
		client, err := river.NewClient(riverpgxv5.New(pool), config)
		return client, func() {}, err
	}
	d, err := Declare(*p.Throttle)
	if err != nil {
		return nil, nil, err
	}
	river.AddWorker(workers, Throttled(worker, d))
	t, err := New(ctx, pool, &Options{Schema: p.Schema, RiverSchema: p.River, OnEvent: func(e Event) {
		fmt.Fprintln(os.Stderr, e.Kind, e.Job, e.Err)
	}})
	if err != nil {
		return nil, nil, err
	}
	if p.Clock != 0 {
		t.now = skewed{p.Clock}.Now
	}
	if !p.NoPlugin {
		config.Plugins = []rivertype.Plugin{t.Plugin()}
	}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	return client, func() { _ = t.Close() }, err
}

const processVariable = "WEIR_JOBS_PROCESS"

// TestProcess is another process: it works jobs until its standard input ends.
func TestProcess(t *testing.T) {
	text := os.Getenv(processVariable)
	if text == "" {
		t.Skip("it is run by other tests")
	}
	var p process
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	require.NoError(t, p.run(ctx))
}

// A child is a process that was started.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
}

func (w *world) process(p process) *child {
	w.t.Helper()
	p.URL, p.Schema, p.River = w.Pool.Config().ConnString(), w.Schema, w.River
	text, err := json.Marshal(p)
	require.NoError(w.t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestProcess$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), processVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, cmd.Start())
	c := &child{w.t, cmd, stdin}
	w.t.Cleanup(func() {
		_ = c.stdin.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

// stop lets the process end by itself.
func (c *child) stop() {
	c.t.Helper()
	require.NoError(c.t, c.stdin.Close())
	require.NoError(c.t, c.cmd.Wait())
}

// kill is kill -9.
func (c *child) kill() {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Kill())
	_ = c.cmd.Wait()
}

func notes(schema string) string { return `"` + schema + `".notes` }

func (w *world) notes() {
	w.Exec(`create table ` + notes(w.Schema) + ` (job bigint, attempt int, key text, fence bigint, begun timestamptz, ended timestamptz)`)
}

// insert inserts n jobs.
func (w *world) insert(n int, args func(i int) noteArgs) {
	w.t.Helper()
	client, err := river.NewClient(riverpgxv5.New(w.Pool), &river.Config{Schema: w.River})
	require.NoError(w.t, err)
	var params []river.InsertManyParams
	for i := range n {
		params = append(params, river.InsertManyParams{Args: args(i)})
	}
	_, err = client.InsertMany(context.Background(), params)
	require.NoError(w.t, err)
}

// await waits until so many jobs are completed.
func (w *world) await(n int64) {
	w.t.Helper()
	completed := int64(0)
	if !assert.Eventually(w.t, func() bool {
		completed = w.Int(`select count(*) from RIVER where state = 'completed'`)
		return completed >= n
	}, patience, 50*time.Millisecond) {
		w.noErrors()
		require.Failf(w.t, "timeout", "%d of %d jobs are completed", completed, n)
	}
}

// noErrors fails if an attempt of a job has failed.
func (w *world) noErrors() {
	w.t.Helper()
	var errs []string
	require.NoError(w.t, w.Pool.QueryRow(context.Background(), w.SQL(`select coalesce(array_agg(e->>'error'), '{}') from RIVER, unnest(errors) e`)).Scan(&errs))
	require.Empty(w.t, errs)
}

// runs is how many times a job was run on average, with those runs that were throttled.
func (w *world) runs() (mean float64) {
	w.t.Helper()
	require.NoError(w.t, w.Pool.QueryRow(context.Background(), w.SQL(`select avg(attempt + coalesce((metadata->>'snoozes')::int, 0)) from RIVER`)).Scan(&mean))
	return mean
}

// makespan is from the first beginning to the last end.
func (w *world) makespan() (d time.Duration) {
	w.t.Helper()
	return time.Duration(w.Int(`select (extract(epoch from max(ended) - min(begun)) * 1000000)::bigint from `+notes(w.Schema))) * time.Microsecond
}

// most is how many jobs with the same key were at work at the same moment, at most.
func (w *world) most() int64 {
	w.t.Helper()
	return w.Int(`select coalesce(max(n), 0) from (select sum(d) over (partition by key order by at, d) as n from (
		select key, begun as at, 1 as d from NOTES union all select key, coalesce(ended, 'infinity'), -1 from NOTES) q) q`)
}
