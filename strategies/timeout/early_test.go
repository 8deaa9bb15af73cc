package timeout_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// On its way from the timeout to the callback the context does not look at the clock as long as only limiters of
// package limiter see it. Everybody else must get one that does.

// slow passes two seconds without a look at its context, and then runs next.
func slow(ctx context.Context, next pipeline.Next) (any, error) {
	time.Sleep(2 * time.Second)
	return next.Run(ctx)
}

// sees asserts that ctx ends after a second, by the clock alone.
func sees(t *testing.T, ctx context.Context) {
	t.Helper()
	assert.NoError(t, ctx.Err())
	time.Sleep(time.Second)
	assert.Equal(t, context.DeadlineExceeded, ctx.Err())
}

func TestStrategy_CallbackDoesNotRunAfterTheDeadline(t *testing.T) {
	own := func(t *testing.T, permits int) *limiter.Concurrency {
		l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 5}))
		t.Cleanup(func() { _ = l.Close() })
		lease, err := l.TryAcquire(t.Context(), 1-permits)
		require.NoError(t, err)
		require.True(t, lease.Acquired())
		return l
	}
	sleepy := &ratelimit.Options{Permits: func(context.Context) int { time.Sleep(2 * time.Second); return 1 }}
	for name, between := range map[string]func(t *testing.T) []pipeline.Strategy{
		"a strategy that sleeps": func(*testing.T) []pipeline.Strategy {
			return []pipeline.Strategy{pipeline.StrategyFunc(slow)}
		},
		"a strategy that sleeps before a limiter": func(t *testing.T) []pipeline.Strategy {
			return []pipeline.Strategy{pipeline.StrategyFunc(slow), ratelimit.New(own(t, 1), nil)}
		},
		"a strategy that sleeps behind a limiter": func(t *testing.T) []pipeline.Strategy {
			return []pipeline.Strategy{ratelimit.New(own(t, 1), nil), pipeline.StrategyFunc(slow)}
		},
		"a limiter's queue": func(t *testing.T) []pipeline.Strategy {
			return []pipeline.Strategy{ratelimit.New(own(t, 0), nil)}
		},
		"a Permits that sleeps": func(t *testing.T) []pipeline.Strategy {
			return []pipeline.Strategy{ratelimit.New(own(t, 1), sleepy)}
		},
		"a limiter that sleeps": func(t *testing.T) []pipeline.Strategy {
			return []pipeline.Strategy{ratelimit.New(sleepyLimiter{own(t, 1)}, nil)}
		},
		"a strategy that embeds one of ours": func(t *testing.T) []pipeline.Strategy {
			return []pipeline.Strategy{sleepyStrategy{ratelimit.New(own(t, 1), nil)}, ratelimit.New(own(t, 1), nil)}
		},
		"an embedded pipeline": func(t *testing.T) []pipeline.Strategy {
			return []pipeline.Strategy{pipeline.Embed(weir.Must(pipeline.New("inner", ratelimit.New(own(t, 1), nil), pipeline.StrategyFunc(slow))))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				strategies := append([]pipeline.Strategy{timeout.New(time.Second, nil)}, between(t)...)
				err := weir.Must(pipeline.New("orders", strategies...)).Execute(t.Context(), func(context.Context) error {
					t.Error("the callback runs")
					return nil
				})
				assert.ErrorIs(t, err, pipeline.ErrRejected)
			})
		})
	}
}

type sleepyStrategy struct{ *ratelimit.Strategy }

func (s sleepyStrategy) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	return slow(ctx, next)
}

type sleepyLimiter struct{ limiter.Limiter }

func (l sleepyLimiter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	time.Sleep(2 * time.Second)
	return l.TryAcquire(context.WithoutCancel(ctx), n)
}

func TestStrategy_ContextReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := 0
		see := func(ctx context.Context) {
			seen++
			sees(t, ctx)
		}
		execute := func(l pipeline.Listener, strategies ...pipeline.Strategy) {
			strategies = append([]pipeline.Strategy{timeout.New(time.Second, nil)}, strategies...)
			p := weir.Must(pipeline.Config{Strategies: strategies, Listener: l}.Build())
			_ = p.Execute(t.Context(), func(ctx context.Context) error {
				see(ctx)
				return nil
			})
		}
		limit := func(o *ratelimit.Options, permits int) pipeline.Strategy {
			l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
			_, err := l.TryAcquire(t.Context(), 1-permits)
			require.NoError(t, err)
			return ratelimit.New(l, o)
		}
		execute(nil)
		execute(nil, limit(nil, 1))
		execute(nil, retry.New(nil), limit(nil, 1))
		execute(nil, pipeline.StrategyFunc(func(ctx context.Context, _ pipeline.Next) (any, error) { see(ctx); return nil, nil }))
		execute(nil, limit(nil, 1), pipeline.StrategyFunc(func(ctx context.Context, _ pipeline.Next) (any, error) { see(ctx); return nil, nil }))
		execute(nil, limit(&ratelimit.Options{Permits: func(ctx context.Context) int { see(ctx); return 0 }}, 1))
		execute(nil, limit(&ratelimit.Options{OnRejected: func(ctx context.Context, _ ratelimit.Rejection) error { see(ctx); return nil }}, 0))
		execute(pipeline.ListenerFunc(func(ctx context.Context, e pipeline.Event) {
			if e.Name == ratelimit.EventRejected {
				see(ctx)
			}
		}), limit(nil, 0))
		execute(seeing{see}, limit(nil, 1))
		assert.Equal(t, 9, seen)
	})
}

// seeing hands the context of a request for permits on.
type seeing struct{ see func(ctx context.Context) }

func (seeing) OnEvent(context.Context, pipeline.Event) {}

func (s seeing) OnMeasurement(ctx context.Context, e pipeline.Event) {
	if e.Name == ratelimit.MeasureRequest {
		s.see(ctx)
	}
}

// A callback may keep its context, and the next execution has another one.
func TestStrategy_ContextStaysWhatItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := weir.Must(pipeline.New("orders", timeout.New(time.Second, nil), ratelimit.New(nil, nil)))
		defer p.Close()
		var kept []context.Context
		for i := range 100 {
			ctx := context.WithValue(t.Context(), key{}, i)
			require.NoError(t, p.Execute(ctx, func(ctx context.Context) error { kept = append(kept, ctx); return nil }))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Hour)
		first, _ := kept[0].Deadline()
		for i, ctx := range kept {
			assert.Equal(t, i, ctx.Value(key{}))
			assert.Equal(t, context.Canceled, ctx.Err())
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, first.Add(time.Duration(i)*time.Millisecond), deadline)
		}
	})
}

func TestStrategy_UnderACallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := make1(time.Second, nil)
		for _, c := range []struct {
			callers time.Duration
			ours    bool
		}{{time.Second, false}, {time.Second + 1, true}, {time.Second - 1, false}} {
			ctx, cancel := context.WithTimeout(t.Context(), c.callers)
			_ = p.Execute(ctx, func(inner context.Context) error {
				assert.Equal(t, c.ours, inner != ctx, "%v", c.callers)
				return nil
			})
			cancel()
		}
	})
}
