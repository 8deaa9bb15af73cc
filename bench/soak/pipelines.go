package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/telemetry"
)

// configuration returns a valid file. It always has the same limiters of the same kinds; their limits and everything
// else vary.
func configuration() string {
	return fmt.Sprintf(`limiters:
  slots:
    concurrency: {permit_limit: %d, queue_limit: %d}
  rate:
    token_bucket: {token_limit: %d, tokens_per_period: 1, replenishment_period: 1ms, queue_limit: 20}
budgets:
  extra: {ratio: 0.5}
pipelines:
  main:
    strategies:
      - timeout: {timeout: %dms}
      - retry: {max_retries: 2, delay: 1ms, jitter: true, budget: extra}
      - circuit_breaker: {failure_ratio: 0.9, break_duration: 10ms}
      - rate_limiter: {name: Rate, limiter: rate}
      - hedging: {delay: %dms}
      - rate_limiter: {limiter: slots}
%s`, 1+rand.IntN(20), rand.IntN(20), 1+rand.IntN(50), 5+rand.IntN(50), 1+rand.IntN(10), []string{"", `  inner:
    strategies:
      - retry: {max_retries: 1, delay: 1ms}
      - pipeline: {name: main}
`}[rand.IntN(2)])
}

// corrupted returns a file as an editor, a full disk or an attacker may leave it.
func corrupted(good string) string {
	switch rand.IntN(4) {
	case 0:
		return good[:rand.IntN(len(good))]
	case 1:
		return strings.Replace(good, []string{"permit_limit", "  main:"}[rand.IntN(2)], "  renamed:", 1)
	case 2:
		return strings.Repeat("[", 100_000)
	default:
		b := []byte(good)
		for range 20 {
			b[rand.IntN(len(b))] = byte(rand.IntN(256))
		}
		return string(b)
	}
}

// pipelines executes pipelines of a file that is always being replaced.
func pipelines(ctx context.Context, s *soak) error {
	dir, err := os.MkdirTemp("", "weir-soak-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(file, []byte(configuration()), 0o600); err != nil {
		return err
	}
	tel := weir.Must(telemetry.New(&telemetry.Options{Logger: slog.New(slog.DiscardHandler)}))
	listener := pipeline.Listeners(tel, pipeline.ListenerFunc(func(context.Context, pipeline.Event) { misbehave(20_000) }))
	r := registry.New(&registry.Options{Listener: listener, DrainTimeout: time.Second, ObserveLimiter: tel.ObserveLimiter})
	watcher, err := reload.Start(ctx, r, file, &reload.Options{
		Interval: 20 * time.Millisecond, Settle: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Require: []string{"main"},
	})
	if err != nil {
		return err
	}

	held, through := s.heldCheck("slots of the file", 20), s.count("executions that came through")
	var wg sync.WaitGroup
	for i := range 12 {
		name := "main"
		if i%4 == 0 {
			name = "inner"
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				p, err := r.Get(name)
				if err != nil { // this version of the file has no inner
					pause(ctx, 5*time.Millisecond)
					continue
				}
				safely(func() { execute(ctx, p, held, through) })
				pause(ctx, time.Millisecond)
			}
		})
	}
	swaps := s.count("files swapped")
	for pause(ctx, 100*time.Millisecond) {
		content := configuration()
		if rand.IntN(3) == 0 {
			content = corrupted(content)
		}
		if err := swap(file, content); err != nil {
			return err
		}
		swaps.Add(1)
	}
	wg.Wait()
	s.count("files loaded").Store(int64(watcher.Status().Loads))
	watcher.Stop()
	for name, info := range r.Limiters() {
		slots, is := info.Limiter.(*limiter.Concurrency)
		if !is {
			continue
		}
		if st := slots.Statistics(); st.AvailablePermits != int64(slots.Limits().Permits) || st.QueuedPermits != 0 {
			s.violation("%s of the file: %+v once nothing runs, the limit is %d", name, st, slots.Limits().Permits)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return r.Close(ctx)
}

// swap replaces the content of the file in one of the ways in which files are changed: in place and in two steps, or by renaming.
func swap(file, content string) error {
	if rand.IntN(2) == 0 {
		half := rand.IntN(len(content) + 1)
		return errors.Join(os.WriteFile(file, []byte(content[:half]), 0o600), os.WriteFile(file, []byte(content), 0o600))
	}
	return errors.Join(os.WriteFile(file+".new", []byte(content), 0o600), os.Rename(file+".new", file))
}

// execute executes a callback that waits, fails, panics or ends its goroutine.
func execute(ctx context.Context, p *pipeline.Pipeline, held *heldCheck, through *atomic.Int64) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+rand.IntN(50))*time.Millisecond)
	defer cancel()
	_ = p.Execute(ctx, func(ctx context.Context) error {
		held.take(1)
		defer held.release(1)
		pause(ctx, 2*time.Millisecond)
		misbehave(300)
		if rand.IntN(5) == 0 {
			return errHook
		}
		through.Add(1)
		return ctx.Err()
	})
}
