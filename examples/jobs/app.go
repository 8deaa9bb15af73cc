package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/weir-go/weir/jobs"
)

// A program is one of the two examples.
type program interface {
	workers(*app) *river.Workers
	run(context.Context, *app) error
}

// An app has what a program runs on: a Throttler, and a River client with its plugin.
type app struct {
	pool      *pgxpool.Pool
	schema    string // with the tables of River and weir; dropped at the end
	throttler *jobs.Throttler
	client    *river.Client[pgx.Tx]
}

// start runs a program. At the end, the client stops first, then the Throttler, and then
// the pool.
func start(ctx context.Context, url string, p program) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	a := &app{pool: pool, schema: fmt.Sprintf("weir_example_%08x", rand.Uint32())}
	if _, err := pool.Exec(ctx, "create schema "+a.schema); err != nil {
		return err
	}
	defer a.dropSchema()

	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: a.schema, Logger: log})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	if err := jobs.Migrate(ctx, pool, a.schema); err != nil {
		return err
	}

	a.throttler, err = jobs.New(ctx, pool, &jobs.Options{Schema: a.schema, RiverSchema: a.schema})
	if err != nil {
		return err
	}
	defer a.throttler.Close()
	a.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema:            a.schema,
		Workers:           p.workers(a),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 30}},
		Plugins:           []rivertype.Plugin{a.throttler.Plugin()},
		FetchPollInterval: 100 * time.Millisecond, // the precision with which jobs come back
		Logger:            log,
	})
	if err != nil {
		return err
	}
	if err := a.client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	defer a.stopClient()
	return p.run(ctx, a)
}

func (a *app) stopClient() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := a.client.StopAndCancel(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the River client:", err)
	}
}

func (a *app) dropSchema() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := a.pool.Exec(ctx, "drop schema "+a.schema+" cascade"); err != nil {
		fmt.Fprintf(os.Stderr, "dropping the schema %s: %v\n", a.schema, err)
	}
}

// sleep waits, or returns why the context has ended.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
