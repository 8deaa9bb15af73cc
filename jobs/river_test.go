package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"
)

// sleepArgs is a job that notes when it began and ended by the database's clock.
type sleepArgs struct {
	Key   string        `json:"key"`
	Sleep time.Duration `json:"sleep"`
}

func (sleepArgs) Kind() string { return "sleep" }

type sleepWorker struct {
	river.WorkerDefaults[sleepArgs]
	pool        *pgxpool.Pool
	table       string
	declaration *Declaration
}

func (w *sleepWorker) Work(ctx context.Context, job *river.Job[sleepArgs]) error {
	if _, err := w.pool.Exec(ctx, `insert into `+w.table+` (job, key, begun) values ($1, $2, clock_timestamp())`, job.ID, job.Args.Key); err != nil {
		return err
	}
	select {
	case <-time.After(job.Args.Sleep):
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := w.pool.Exec(ctx, `update `+w.table+` set ended = clock_timestamp() where job = $1`, job.ID)
	return err
}

func (w *world) notes() string {
	table := fmt.Sprintf(`"%s".notes`, w.schema)
	w.exec(`create table ` + table + ` (job bigint, key text, begun timestamptz, ended timestamptz)`)
	return table
}

// client starts a River client whose sleep jobs are declared to be throttled.
func (w *world) client(th *Throttler, worker *sleepWorker, workers int, poll time.Duration) *river.Client[pgx.Tx] {
	w.t.Helper()
	all := river.NewWorkers()
	if worker.declaration != nil {
		river.AddWorker(all, Throttled(worker, worker.declaration))
	} else {
		river.AddWorker(all, worker)
	}
	level := slog.LevelError
	if os.Getenv("RIVER_DEBUG") != "" {
		level = slog.LevelDebug
	}
	config := &river.Config{
		Schema: w.river, Workers: all, Queues: map[string]river.QueueConfig{"default": {MaxWorkers: workers}},
		FetchPollInterval: poll, FetchCooldown: min(poll, 100*time.Millisecond), TestOnly: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}
	if th != nil {
		config.Plugins = []rivertype.Plugin{th.Plugin()}
	}
	client, err := river.NewClient(riverpgxv5.New(w.pool), config)
	require.NoError(w.t, err)
	return client
}

func (w *world) await(state string, n int64, timeout time.Duration) {
	w.t.Helper()
	deadline := time.Now().Add(timeout)
	last := time.Now()
	for w.int(`select count(*) from RIVER where state = '`+state+`'`) < n {
		if time.Now().After(deadline) {
			require.Fail(w.t, "timeout")
		}
		time.Sleep(50 * time.Millisecond)
		if os.Getenv("PROGRESS") != "" && time.Since(last) > time.Second {
			last = time.Now()
			var states, key string
			_ = w.pool.QueryRow(context.Background(), w.sql(`select string_agg(state::text || '=' || n, ' ') from (select state, count(*) n from RIVER group by 1) q`)).Scan(&states)
			_ = w.pool.QueryRow(context.Background(), w.sql(`select hold || ' waiting ' || waiting || ' holders ' || (select count(*) from "weir".jobs_holders) || ' waiters ' || (select count(*) from "weir".jobs_waiters) || ' present ' || (select count(*) from "weir".jobs_waiters where present) || ' due ' || (select count(*) from "weir".jobs_waiters where wake<now()) || ' next ' || (select coalesce(min(wake)-now(),'0') from "weir".jobs_waiters) from "weir".jobs_keys`)).Scan(&key)
			fmt.Println(states, "| hold", key)
		}
	}
}

func TestThousandOnOneMutex(t *testing.T) {
	w := newWorld(t)
	table := w.notes()
	n, sleep, poll := 1000, 10*time.Millisecond, 100*time.Millisecond
	if s := os.Getenv("POLL"); s != "" {
		poll, _ = time.ParseDuration(s)
	}
	if s := os.Getenv("SLEEP"); s != "" {
		sleep, _ = time.ParseDuration(s)
	}
	d := MustDeclare(Throttle{Limits: []Limit{{Mutex: "m", Key: "{key}"}}})
	var clients []*river.Client[pgx.Tx]
	for range 2 {
		pool := newPool(t, w.pool.Config().ConnString(), 20)
		th := w.throttlerOn(pool, Options{OnEvent: func(e Event) {
			if e.Kind != JobThrottled {
				t.Log(e)
			}
		}})
		clients = append(clients, w.client(th, &sleepWorker{pool: pool, table: table, declaration: d}, 100, poll))
	}
	var params []river.InsertManyParams
	for range n {
		params = append(params, river.InsertManyParams{Args: sleepArgs{Key: "x", Sleep: sleep}})
	}
	_, err := clients[0].InsertMany(t.Context(), params)
	require.NoError(t, err)
	begun := time.Now()
	for _, c := range clients {
		require.NoError(t, c.Start(context.Background()))
	}
	w.await("completed", int64(n), 100*time.Second)
	took := time.Since(begun)
	for _, c := range clients {
		require.NoError(t, c.Stop(context.Background()))
	}
	t.Logf("%d jobs of %v took %v, %.2f runs a job", n, sleep, took, float64(w.int(`select count(*) + sum(coalesce((metadata->>'snoozes')::int, 0)) from RIVER`))/float64(n))
	var gaps string
	_ = w.pool.QueryRow(t.Context(), `select string_agg(g::int::text, ' ' order by g desc) from (select extract(epoch from begun - lag(ended) over (order by begun)) * 1000 as g from `+table+`) q where g > 50`).Scan(&gaps)
	t.Logf("gaps: %s", gaps)
	_ = w.pool.QueryRow(t.Context(), `select string_agg(g::int::text, ' ' order by g desc) from (select extract(epoch from ended - begun) * 1000 as g from `+table+`) q where g > 50`).Scan(&gaps)
	t.Logf("works: %s", gaps)
	t.Logf("overlaps: %d", w.int(`select count(*) from `+table+` a join `+table+` b on a.job <> b.job and a.begun < b.ended and b.begun < a.ended and a.key = b.key`))
	t.Logf("busy: %dms", w.int(`select sum(extract(epoch from ended - begun) * 1000)::bigint from `+table))
	t.Logf("inversions: %d", w.int(`select count(*) from (select job, lag(job) over (order by begun) as before from `+table+`) q where before > job`))
}
