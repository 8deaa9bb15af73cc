package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	fstimeout "github.com/failsafe-go/failsafe-go/timeout"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// patience is a timeout that no benchmark reaches.
const patience = time.Minute

func weirBucket(tokens int, period time.Duration) *limiter.TokenBucket {
	return weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: tokens, TokensPerPeriod: tokens, ReplenishmentPeriod: period,
	}))
}

// noResult is the type of result of failsafe-go's policies. With any it would take more memory and time.
type noResult = struct{}

// BenchmarkPipeline measures what a pipeline adds to a callback that does nothing and succeeds.
func BenchmarkPipeline(b *testing.B) {
	ours := func(strategies func() []pipeline.Strategy) func(*testing.B) func() bool {
		return func(*testing.B) func() bool {
			p := weir.Must(pipeline.New("bench", strategies()...))
			succeed := func(context.Context) error { return nil }
			return func() bool { return p.Execute(ctx, succeed) == nil }
		}
	}
	peer := func(policies func() []failsafe.Policy[noResult]) func(*testing.B) func() bool {
		return func(*testing.B) func() bool {
			e := failsafe.With(policies()...)
			succeed := func() error { return nil }
			return func() bool { return e.Run(succeed) == nil }
		}
	}
	weirLimit := func() pipeline.Strategy { return ratelimit.New(weirBucket(plenty, time.Second), nil) }
	peerLimit := func() failsafe.Policy[noResult] { return ratelimiter.NewBursty[noResult](plenty, time.Second) }

	for _, stack := range []struct {
		name string
		weir func() []pipeline.Strategy
		peer func() []failsafe.Policy[noResult]
	}{
		{
			"none",
			func() []pipeline.Strategy { return nil },
			func() []failsafe.Policy[noResult] { return nil },
		},
		{
			"retry",
			func() []pipeline.Strategy { return []pipeline.Strategy{retry.New(nil)} },
			func() []failsafe.Policy[noResult] {
				return []failsafe.Policy[noResult]{retrypolicy.NewWithDefaults[noResult]()}
			},
		},
		{
			"timeout",
			func() []pipeline.Strategy { return []pipeline.Strategy{timeout.New(patience, nil)} },
			func() []failsafe.Policy[noResult] {
				return []failsafe.Policy[noResult]{fstimeout.New[noResult](patience)}
			},
		},
		{
			"ratelimit",
			func() []pipeline.Strategy { return []pipeline.Strategy{weirLimit()} },
			func() []failsafe.Policy[noResult] { return []failsafe.Policy[noResult]{peerLimit()} },
		},
		{
			"retry+timeout+ratelimit",
			func() []pipeline.Strategy {
				return []pipeline.Strategy{retry.New(nil), timeout.New(patience, nil), weirLimit()}
			},
			func() []failsafe.Policy[noResult] {
				return []failsafe.Policy[noResult]{retrypolicy.NewWithDefaults[noResult](), fstimeout.New[noResult](patience), peerLimit()}
			},
		},
	} {
		b.Run("strategies="+stack.name, func(b *testing.B) {
			compare(b, []contender{{"weir", ours(stack.weir)}, {"failsafe", peer(stack.peer)}})
		})
	}
}

// BenchmarkPipelineRejected executes a pipeline whose limiter has no permit left, which is what an overloaded system
// does most.
func BenchmarkPipelineRejected(b *testing.B) {
	compare(b, []contender{
		{"weir", func(b *testing.B) func() bool {
			l := weirBucket(1, time.Hour)
			drained(b, l)
			p := weir.Must(pipeline.New("bench", ratelimit.New(l, nil)))
			succeed := func(context.Context) error { return nil }
			return func() bool { return errors.Is(p.Execute(ctx, succeed), pipeline.ErrRejected) }
		}},
		{"failsafe", func(b *testing.B) func() bool {
			l := ratelimiter.NewBursty[noResult](1, time.Hour)
			drainedPeer(b, l.TryAcquirePermit)
			e := failsafe.With[noResult](l)
			succeed := func() error { return nil }
			return func() bool { return errors.Is(e.Run(succeed), ratelimiter.ErrExceeded) }
		}},
	})
}
