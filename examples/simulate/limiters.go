package main

import (
	"context"
	"io"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/simulate"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// The limiters that are compared. Each lets through 100 requests a second in the long run.
var limiters = []struct {
	name string
	make func() (limiter.Limiter, error)
}{
	{"Token bucket: 100 a second, 40 at once", func() (limiter.Limiter, error) {
		return limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: 40, TokensPerPeriod: 5, ReplenishmentPeriod: 50 * time.Millisecond})
	}},
	{"Fixed window: 100 in each second", func() (limiter.Limiter, error) {
		return limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Second})
	}},
	// A segment more than a second: a window of one second can begin and end within a segment.
	{"Sliding window: 100 in any second", func() (limiter.Limiter, error) {
		return limiter.NewSlidingWindow(limiter.SlidingWindowOptions{PermitLimit: 100, Window: 1050 * time.Millisecond, SegmentsPerWindow: 21})
	}},
	{"Concurrency: 10 at a time", func() (limiter.Limiter, error) {
		return limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 10})
	}},
}

// drawLimiters draws what the limiters do under the same burst. A call takes 100 ms, so that ten at a time are 100 a second.
func drawLimiters(ctx context.Context, w io.Writer) error {
	var results []*simulate.Result
	for _, l := range limiters {
		r, err := simulate.Run(ctx, simulate.Scenario{
			Config: func(*simulate.Setup) (registry.Change, error) {
				return registry.Change{Define: map[string]registry.BuildFunc{"api": func(b *registry.Builder) error {
					made, err := l.make()
					if err != nil {
						return err
					}
					b.Add(ratelimit.New(made, nil))
					return nil
				}}}, nil
			},
			Load:     simulate.Load{For: 6 * time.Second, Open: &simulate.Open{Rate: burst}},
			Service:  simulate.Service{Latency: simulate.Fixed{Time: 100 * time.Millisecond}},
			Interval: 100 * time.Millisecond,
		})
		if err != nil {
			return err
		}
		r.Name = l.name
		results = append(results, r)
	}
	return simulate.WriteResultsSVG(w, "Four limiters under the same burst", results...)
}

// burst is 60 requests a second, and 300 a second for a second and a half.
var burst = simulate.Steps{Steps: []simulate.Step{
	{Rate: 60, For: 1500 * time.Millisecond},
	{Rate: 300, For: 1500 * time.Millisecond},
	{Rate: 60},
}}
