package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

type noopArgs struct {
	Key int `json:"key"`
}

func (noopArgs) Kind() string { return "noop" }

// noop is a middleware that does nothing.
type noop struct{ river.MiddlewareDefaults }

func (*noop) Work(ctx context.Context, _ *rivertype.JobRow, work func(context.Context) error) error {
	return work(ctx)
}

// BenchmarkCost measures how many jobs that do nothing one River client works in a second, not throttled and throttled by
// limits that let all of them through. The variants take turns in rounds, and each figure is the median of its rounds:
//
//	go test -run '^$' -bench Cost -benchtime 1x ./jobs
func BenchmarkCost(b *testing.B) {
	jobs, rounds := 20_000, 5
	if testing.Short() {
		jobs, rounds = 200, 1
	}
	w := newWorld(b)
	const most = 1_000_000_000
	variants := []struct {
		name     string
		throttle *Throttle
		noop     bool
	}{
		{name: "none"},
		{name: "no-op middleware", noop: true},
		{name: "dynamic window, 1000 keys", throttle: &Throttle{Limits: []Limit{{DynamicWindow: "keys", Key: "{key}"}}}},
		{name: "fixed window, 1000 keys", throttle: &Throttle{Limits: []Limit{{FixedWindow: "w", Key: "{key}"}}}},
		{name: "fixed window, one key", throttle: &Throttle{Limits: []Limit{{FixedWindow: "w"}}}},
		{name: "semaphore", throttle: &Throttle{Limits: []Limit{{Semaphore: "s"}}}},
		{name: "semaphore, strict", throttle: &Throttle{Strict: true, Limits: []Limit{{Semaphore: "s"}}}},
	}
	setter := w.throttler(Options{})
	require.NoError(b, setter.Set(b.Context(), Definition{Semaphore: "s", MaxCount: most}))
	require.NoError(b, setter.Set(b.Context(), Definition{FixedWindow: "w", Limit: most, Interval: time.Minute}))
	require.NoError(b, setter.Set(b.Context(), Definition{DynamicWindow: "keys", Capacity: most, Interval: time.Minute}))
	for range b.N {
		rates := make([][]float64, len(variants))
		for range rounds {
			for i, v := range variants {
				rates[i] = append(rates[i], float64(jobs)/w.drain(jobs, v.throttle, v.noop).Seconds())
			}
		}
		medians := make([]float64, len(variants))
		for i, v := range variants {
			slices.Sort(rates[i])
			medians[i] = rates[i][rounds/2]
			b.Logf("%-26s %6.0f jobs/s, %.2f of none", v.name, medians[i], medians[i]/medians[0])
		}
		for i, v := range variants[2:] {
			b.ReportMetric(medians[i+2]/medians[0], strconv.Quote(v.name)[1:4]+fmt.Sprint(i)+"/none")
		}
	}
}

// drain inserts jobs and works them, and returns how long the work took.
func (w *world) drain(jobs int, throttle *Throttle, withNoop bool) time.Duration {
	w.t.Helper()
	ctx := context.Background()
	w.Exec(`truncate RIVER`)
	w.Exec(`truncate "weir".jobs_keys cascade`)
	workers := river.NewWorkers()
	worker := river.WorkFunc(func(context.Context, *river.Job[noopArgs]) error { return nil })
	config := &river.Config{
		Schema: w.River, Workers: workers, Queues: map[string]river.QueueConfig{"default": {MaxWorkers: 2000}},
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, TestOnly: true, Logger: slog.New(slog.DiscardHandler),
	}
	if withNoop {
		config.Middleware = []rivertype.Middleware{&noop{}}
	}
	if throttle != nil {
		t, err := New(ctx, w.Pool, &Options{Schema: w.Schema, RiverSchema: w.River})
		require.NoError(w.t, err)
		defer t.Close()
		config.Plugins = []rivertype.Plugin{t.Plugin()}
		worker = Throttled(worker, weir.Must(Declare(*throttle)))
	}
	river.AddWorker(workers, worker)
	client, err := river.NewClient(riverpgxv5.New(w.Pool), config)
	require.NoError(w.t, err)
	params := make([]river.InsertManyParams, jobs)
	for i := range params {
		params[i].Args = noopArgs{Key: i % 1000}
	}
	_, err = client.InsertManyFast(ctx, params)
	require.NoError(w.t, err)
	w.Exec(`vacuum analyze RIVER`)
	done, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: jobs, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer cancel()
	begun := time.Now()
	require.NoError(w.t, client.Start(ctx))
	for range jobs {
		<-done
	}
	took := time.Since(begun)
	require.NoError(w.t, client.Stop(ctx))
	return took
}
