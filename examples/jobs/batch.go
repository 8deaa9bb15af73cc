package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/jobs"
)

// A batch is a start job, parts that run side by side, and an end job.
type (
	startArgs struct {
		Batch string `json:"batch"`
		Parts int    `json:"parts"`
	}
	partArgs struct {
		Batch string `json:"batch"`
		Part  int    `json:"part"`
	}
	endArgs struct {
		Batch string `json:"batch"`
	}
)

func (startArgs) Kind() string { return "batch_start" }
func (partArgs) Kind() string  { return "batch_part" }
func (endArgs) Kind() string   { return "batch_end" }

// All three kinds name one mutex, whose owner is the batch and not the job.
var (
	// The start job takes the mutex, which stays taken when the job ends. While another
	// batch has the mutex, the start job waits. If a part is discarded, there is no end
	// job, and the mutex is released when the deadline is over.
	onStart = weir.Must(jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
		{Mutex: "import", Owner: "{batch}", Mode: jobs.Acquire, Deadline: time.Hour},
	}}))
	// Parts share the slot of their batch, so they never wait for each other.
	onPart = weir.Must(jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
		{Mutex: "import", Owner: "{batch}"},
	}}))
	// The end job releases the mutex when it ends.
	onEnd = weir.Must(jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
		{Mutex: "import", Owner: "{batch}", Mode: jobs.Release},
	}}))
)

// batches are inserted at once and run one after the other.
type batches struct {
	out   io.Writer
	names []string
	parts int           // of each
	work  time.Duration // of a part

	began time.Time
	ended chan string // a batch's name, sent by its end job

	mu  sync.Mutex
	log []string // the batch of each line that was printed
}

func (b *batches) workers(a *app) *river.Workers {
	workers := river.NewWorkers()
	river.AddWorker(workers, jobs.Throttled(river.WorkFunc(func(ctx context.Context, job *river.Job[startArgs]) error {
		return b.start(ctx, a, job)
	}), onStart))
	river.AddWorker(workers, jobs.Throttled(river.WorkFunc(func(ctx context.Context, job *river.Job[partArgs]) error {
		return b.part(ctx, a, job)
	}), onPart))
	river.AddWorker(workers, jobs.Throttled(river.WorkFunc(func(_ context.Context, job *river.Job[endArgs]) error {
		b.say(job.Args.Batch, "ends")
		b.ended <- job.Args.Batch
		return nil
	}), onEnd))
	return workers
}

// start inserts the parts of a batch and counts them. River completes the start job in
// the same transaction, so that parts are never inserted twice.
func (b *batches) start(ctx context.Context, a *app, job *river.Job[startArgs]) error {
	b.say(job.Args.Batch, "starts")
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		var parts []river.InsertManyParams
		for i := range job.Args.Parts {
			parts = append(parts, river.InsertManyParams{Args: partArgs{Batch: job.Args.Batch, Part: i + 1}})
		}
		if _, err := a.client.InsertManyTx(ctx, tx, parts); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into `+a.schema+`.batches values ($1, $2)`, job.Args.Batch, len(parts)); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

// part does a part's work and counts it down. The last part inserts the end job. One
// transaction counts and completes the job, so that a part that is retried counts once.
func (b *batches) part(ctx context.Context, a *app, job *river.Job[partArgs]) error {
	b.say(job.Args.Batch, fmt.Sprintf("  part %d", job.Args.Part))
	if err := sleep(ctx, b.work); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		var left int
		err := tx.QueryRow(ctx, `update `+a.schema+`.batches set parts_left = parts_left - 1 where batch = $1 returning parts_left`,
			job.Args.Batch).Scan(&left)
		if err != nil {
			return err
		}
		if left == 0 {
			if _, err := a.client.InsertTx(ctx, tx, endArgs{Batch: job.Args.Batch}, nil); err != nil {
				return err
			}
		}
		_, err = river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

func (b *batches) run(ctx context.Context, a *app) error {
	if _, err := a.pool.Exec(ctx, `create table `+a.schema+`.batches (batch text primary key, parts_left int not null)`); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "%d batches of %d parts through one mutex\n\n", len(b.names), b.parts)
	var starts []river.InsertManyParams
	for _, name := range b.names {
		starts = append(starts, river.InsertManyParams{Args: startArgs{Batch: name, Parts: b.parts}})
	}
	b.began, b.ended = time.Now(), make(chan string, len(b.names))
	if _, err := a.client.InsertMany(ctx, starts); err != nil {
		return err
	}
	for range b.names {
		select {
		case <-b.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return b.conclude()
}

func (b *batches) say(batch, what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, batch)
	fmt.Fprintf(b.out, "%5.1fs  %-8s %s\n", time.Since(b.began).Seconds(), batch, what)
}

// conclude checks that the batches were not mixed.
func (b *batches) conclude() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if changes := len(slices.Compact(slices.Clone(b.log))); changes != len(b.names) {
		return fmt.Errorf("the log changes from one batch to another %d times, and there are %d batches", changes-1, len(b.names))
	}
	_, _ = fmt.Fprint(b.out, `
The parts of a batch run side by side, and no two batches are mixed: the start job of
the next one waits until the end job of the one before has released the mutex.
`)
	return nil
}
