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

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// patience is a timeout that no benchmark reaches.
const patience = time.Minute

func weirBucket(tokens int, period time.Duration) *limiter.TokenBucket {
	return limiter.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: tokens, TokensPerPeriod: tokens, ReplenishmentPeriod: period,
	}))
}

// What a pipeline adds to a callback that does nothing and succeeds.
func BenchmarkPipeline(b *testing.B) {
	weir := func(strategies func() []pipeline.Strategy) func(*testing.B) func() bool {
		return func(*testing.B) func() bool {
			p := pipeline.Must(pipeline.New("bench", strategies()...))
			succeed := func(context.Context) error { return nil }
			return func() bool { return p.Execute(ctx, succeed) == nil }
		}
	}
	peer := func(policies func() []failsafe.Policy[any]) func(*testing.B) func() bool {
		return func(*testing.B) func() bool {
			e := failsafe.With(policies()...)
			succeed := func() error { return nil }
			return func() bool { return e.Run(succeed) == nil }
		}
	}
	weirLimit := func() pipeline.Strategy { return ratelimit.New(weirBucket(plenty, time.Second), nil) }
	peerLimit := func() failsafe.Policy[any] { return ratelimiter.NewBursty[any](plenty, time.Second) }

	for _, stack := range []struct {
		name string
		weir func() []pipeline.Strategy
		peer func() []failsafe.Policy[any]
	}{
		{
			"none",
			func() []pipeline.Strategy { return nil },
			func() []failsafe.Policy[any] { return nil },
		},
		{
			"retry",
			func() []pipeline.Strategy { return []pipeline.Strategy{retry.New(nil)} },
			func() []failsafe.Policy[any] { return []failsafe.Policy[any]{retrypolicy.NewWithDefaults[any]()} },
		},
		{
			"timeout",
			func() []pipeline.Strategy { return []pipeline.Strategy{timeout.New(patience, nil)} },
			func() []failsafe.Policy[any] { return []failsafe.Policy[any]{fstimeout.New[any](patience)} },
		},
		{
			"ratelimit",
			func() []pipeline.Strategy { return []pipeline.Strategy{weirLimit()} },
			func() []failsafe.Policy[any] { return []failsafe.Policy[any]{peerLimit()} },
		},
		{
			"retry+timeout+ratelimit",
			func() []pipeline.Strategy {
				return []pipeline.Strategy{retry.New(nil), timeout.New(patience, nil), weirLimit()}
			},
			func() []failsafe.Policy[any] {
				return []failsafe.Policy[any]{retrypolicy.NewWithDefaults[any](), fstimeout.New[any](patience), peerLimit()}
			},
		},
	} {
		b.Run("strategies="+stack.name, func(b *testing.B) {
			compare(b, []contender{{"weir", weir(stack.weir)}, {"failsafe", peer(stack.peer)}})
		})
	}
}

// A pipeline whose limiter has nothing left: the path that is hot when a system is overloaded.
func BenchmarkPipelineRejected(b *testing.B) {
	compare(b, []contender{
		{"weir", func(b *testing.B) func() bool {
			l := weirBucket(1, time.Hour)
			drained(b, l)
			p := pipeline.Must(pipeline.New("bench", ratelimit.New(l, nil)))
			succeed := func(context.Context) error { return nil }
			return func() bool { return errors.Is(p.Execute(ctx, succeed), pipeline.ErrRejected) }
		}},
		{"failsafe", func(b *testing.B) func() bool {
			l := ratelimiter.NewBursty[any](1, time.Hour)
			drainedPeer(b, l.TryAcquirePermit)
			e := failsafe.With[any](l)
			succeed := func() error { return nil }
			return func() bool { return errors.Is(e.Run(succeed), ratelimiter.ErrExceeded) }
		}},
	})
}
