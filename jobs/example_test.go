package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/jobs"
)

type ShipArgs struct {
	Order int `json:"order"`
}

func (ShipArgs) Kind() string { return "ship" }

type ShipWorker struct {
	river.WorkerDefaults[ShipArgs]
	pool *pgxpool.Pool
}

func (*ShipWorker) Work(_ context.Context, job *river.Job[ShipArgs]) error {
	fmt.Println("shipping order", job.Args.Order)
	return nil
}

// Two jobs of one order never run at the same time, and at most 5000 begin in an hour.
var shipping = weir.Must(jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
	{Mutex: "orders", Key: "{order}"},
	{FixedWindow: "carrier"},
}}))

func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // River's migrations have been run there
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	if err := jobs.Migrate(ctx, pool, ""); err != nil {
		panic(err)
	}
	throttler, err := jobs.New(ctx, pool, nil)
	if err != nil {
		panic(err)
	}
	defer throttler.Close()
	err = errors.Join(
		throttler.Set(ctx, jobs.Definition{FixedWindow: "carrier", Limit: 5000, Interval: time.Hour}),
		throttler.Check(ctx, shipping),
	)
	if err != nil {
		panic(err)
	}

	workers := river.NewWorkers()
	river.AddWorker(workers, jobs.Throttled(&ShipWorker{pool: pool}, shipping))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers: workers,
		Plugins: []rivertype.Plugin{throttler.Plugin()},
	})
	if err != nil {
		panic(err)
	}
	if err := client.Start(ctx); err != nil {
		panic(err)
	}
	if _, err := client.Insert(ctx, ShipArgs{Order: 7}, nil); err != nil {
		panic(err)
	}
	<-client.Stopped() // after Ctrl-C
}

type MailArgs struct {
	Tenant string `json:"tenant"`
}

func (MailArgs) Kind() string { return "mail" }

var mailing = weir.Must(jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
	{Semaphore: "smtp"},
	{DynamicWindow: "newsletter", Key: "{tenant}"},
}}))

// Plugins throttles all jobs with these arguments, whatever worker they have.
func (MailArgs) Plugins() []rivertype.Plugin { return mailing.Plugins() }

func ExampleDeclaration_Plugins() {
	var args rivertype.JobArgs = MailArgs{Tenant: "acme"}
	_, throttled := args.(river.JobArgsWithPlugins)
	fmt.Println(throttled)
	// Output: true
}

func ExampleDeclare() {
	_, err := jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
		{DynamicWindow: "newsletter"},
		{Mutex: "orders", Key: "{tenant}{order}"},
	}})
	fmt.Println(errors.Is(err, weir.ErrInvalidOptions))
	// Output: true
}

// A batch holds a mutex from its first job to its last.
func ExampleLimit_acquire() {
	start := weir.Must(jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
		{Mutex: "import", Owner: "{batch}", Mode: jobs.Acquire, Deadline: 2 * time.Hour},
	}}))
	part := weir.Must(jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
		{Mutex: "import", Owner: "{batch}"},
	}}))
	end := weir.Must(jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
		{Mutex: "import", Owner: "{batch}", Mode: jobs.Release},
	}}))
	_, _, _ = start, part, end // each for the worker of such jobs
}

// A run that was thought dead and goes on cannot overwrite what a later one has written.
func ExampleFence() {
	work := func(ctx context.Context, pool *pgxpool.Pool, job *river.Job[ShipArgs]) error {
		fence, _ := jobs.Fence(ctx)
		result, err := pool.Exec(ctx, `update orders set state = 'shipped', fence = $1 where id = $2 and fence <= $1`, fence, job.Args.Order)
		if err == nil && result.RowsAffected() == 0 {
			err = errors.New("a later run has written this order")
		}
		return err
	}
	_ = work
}

func ExampleThrottler_Inspect() {
	var throttler *jobs.Throttler // of jobs.New
	show := func(ctx context.Context) error {
		info, err := throttler.Inspect(ctx, jobs.Ref{Type: jobs.Mutex, Name: "orders", Key: "7"})
		if err != nil {
			return err
		}
		for _, h := range info.Holders {
			fmt.Printf("job %d has held it since %v\n", h.Job, h.Since)
		}
		for _, w := range info.Waiters {
			fmt.Printf("job %d comes back at %v\n", w.Job, w.Wake)
		}
		return nil
	}
	_ = show
}

// A test of workers that declare throttles.
func ExampleUnthrottled() {
	config := &river.Config{Plugins: []rivertype.Plugin{jobs.Unthrottled()}}
	_ = config // for river.NewClient or rivertest.NewWorker
}
