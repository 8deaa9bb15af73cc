package hooktest

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/strategies/weirfailsafe"
)

// between runs a strategy with rate limiters around and inside it, whose permits must not be lost.
func (x *scene) between(err error, s pipeline.Strategy) drill {
	return x.runs(x.pipeline(ratelimit.New(x.limiter(), nil), s, ratelimit.New(x.limiter(), nil)), err)
}

// full is a limiter without a permit.
func (x *scene) full() limiter.Limiter {
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	lease := must(l.TryAcquire(context.Background(), 1))
	x.then(func() { lease.Release(); _ = l.Close() })
	return l
}

// handles is a Handle that is the hook.
func (x *scene) handles(_ any, err error) bool { x.hit(); return err != nil }

// A userBudget is a budget of the program's.
type userBudget struct {
	x    *scene
	hook string
}

func (b userBudget) TryAcquire(ctx context.Context) bool {
	if b.hook == "TryAcquire" {
		b.x.hit(ctx)
	}
	return true
}

func (b userBudget) Count(ctx context.Context) {
	if b.hook == "Count" {
		b.x.hit(ctx)
	}
}

func (b userBudget) Refund(ctx context.Context) {
	if b.hook == "Refund" {
		b.x.hit(ctx)
	}
}

// broken is a breaker that is open, and whose break is over.
func (x *scene) broken(o circuitbreaker.Options) drill {
	o.ConsecutiveFailures, o.BreakDuration = 1, time.Second
	s := circuitbreaker.New(&o)
	x.fails(s).do()
	time.Sleep(time.Minute)
	return x.between(nil, s)
}

var always = chaos.Options{Enabled: true, Rate: 1}

// hedged has a slow callback, so that a second attempt begins, in a pipeline whose permits must not be lost.
func (x *scene) hedged(o *hedge.Options) drill {
	o.Delay = time.Second
	p := x.pipeline(ratelimit.New(x.limiter(), nil), hedge.New(o), ratelimit.New(x.limiter(), nil))
	return drill{do: func() {
		_, _ = pipeline.ExecuteValue(x.context(), p, func(ctx context.Context) (int, error) {
			if hedge.AttemptNumber(ctx) == 0 {
				time.Sleep(time.Minute)
			}
			return 1, nil
		})
	}}
}

// policy runs a failsafe-go policy that is made of a limiter.
func (x *scene) policy(l limiter.Limiter, o *weirfailsafe.FromLimiterOptions) drill {
	executor := failsafe.With(must(weirfailsafe.FromLimiter[any](l, o)))
	return drill{do: func() {
		_ = executor.WithContext(x.context()).Run(func() error { return nil })
	}}
}

var strategyRows = []row{
	{"ratelimit.Options.Permits", caller, func(x *scene) drill {
		return x.between(nil, ratelimit.New(x.limiter(), &ratelimit.Options{Permits: func(ctx context.Context) int { x.hit(ctx); return 1 }}))
	}},
	{"ratelimit.Options.OnRejected", caller, func(x *scene) drill {
		return x.between(nil, ratelimit.New(x.full(), &ratelimit.Options{OnRejected: func(ctx context.Context, _ ratelimit.Rejection) error {
			x.hit(ctx)
			return nil
		}}))
	}},
	{"ratelimit.New(l)", caller, func(x *scene) drill { return x.between(nil, ratelimit.New(x.user("Acquire"), nil)) }},
	{"ratelimit.NewPartitioned(l)", caller, func(x *scene) drill {
		return x.between(nil, ratelimit.NewPartitioned[string](onlyUser{x.user("Release")}, pipeline.Operation, nil))
	}},
	{"ratelimit.NewPartitioned(resource)", caller, func(x *scene) drill {
		return x.between(nil, ratelimit.NewPartitioned[string](onlyUser{x.user("")}, func(ctx context.Context) string { x.hit(ctx); return "a" }, nil))
	}},

	{"adaptive.New(l)", caller, func(x *scene) drill { return x.between(nil, adaptive.New(x.user("Acquire"), nil)) }},
	{"adaptive.Options.Permits", caller, func(x *scene) drill {
		return x.between(nil, adaptive.New(adaptiveLimiter(x), &adaptive.Options{Permits: func(ctx context.Context) int { x.hit(ctx); return 1 }}))
	}},
	{"adaptive.Options.Handle", caller, func(x *scene) drill {
		return x.between(errBoom, adaptive.New(x.user(""), &adaptive.Options{Handle: x.handles}))
	}},
	{"adaptive.Options.OnRejected", caller, func(x *scene) drill {
		return x.between(nil, adaptive.New(x.full(), &adaptive.Options{OnRejected: func(ctx context.Context, _ ratelimit.Rejection) error {
			x.hit(ctx)
			return nil
		}}))
	}},
	{"adaptive.LimiterOptions.OnLimitChanged", caller, func(x *scene) drill {
		l := must(adaptive.NewLimiter(&adaptive.LimiterOptions{
			MinLimit: 1, InitialLimit: 10, MaxLimit: 100, MinWindow: time.Millisecond, MaxWindow: time.Millisecond, MinSamples: 1,
			OnLimitChanged: func(ctx context.Context, _ adaptive.LimitChange) { x.hit(ctx) },
		}))
		x.then(func() {
			if n := l.Statistics(); n.AvailablePermits != int64(l.Limit()) {
				x.Errorf("permits are lost: %+v of %d", n, l.Limit())
			}
			_ = l.Close()
		})
		return drill{do: func() {
			for n := range 40 {
				lease, _ := l.Acquire(context.Background(), 1)
				time.Sleep(time.Duration(n%7+1) * 10 * time.Millisecond)
				func() {
					defer lease.Release()
					if n%10 == 9 {
						adaptive.Fail(lease)
					}
				}()
			}
		}}
	}},

	{"retry.Options.Handle", caller, func(x *scene) drill {
		return x.between(errBoom, retry.New(&retry.Options{Handle: x.handles}))
	}},
	{"pipeline.HandleResult(handle)", caller, func(x *scene) drill {
		return x.between(errBoom, retry.New(&retry.Options{Handle: pipeline.HandleResult(func(_ any, err error) bool { x.hit(); return err != nil })}))
	}},
	{"retry.Options.DelayFunc", caller, func(x *scene) drill {
		return x.between(errBoom, retry.New(&retry.Options{DelayFunc: func(ctx context.Context, _ int, _ any, _ error) (time.Duration, bool) {
			x.hit(ctx)
			return 0, false
		}}))
	}},
	{"retry.Options.OnRetry", caller, func(x *scene) drill {
		return x.between(errBoom, retry.New(&retry.Options{OnRetry: func(ctx context.Context, _ pipeline.Event) { x.hit(ctx) }}))
	}},
	{"retry.Options.Budget budget.Budget.TryAcquire", caller, func(x *scene) drill {
		return x.between(errBoom, retry.New(&retry.Options{Budget: userBudget{x, "TryAcquire"}}))
	}},
	{"budget.Budget.Count", caller, func(x *scene) drill {
		return x.between(errBoom, retry.New(&retry.Options{Budget: userBudget{x, "Count"}}))
	}},
	{"budget.Refunder.Refund", caller, func(x *scene) drill {
		p := x.pipeline(ratelimit.New(x.limiter(), nil), retry.New(&retry.Options{Budget: userBudget{x, "Refund"}}))
		return drill{do: func() {
			ctx, cancel := context.WithCancel(x.context())
			defer time.AfterFunc(time.Second, cancel).Stop() // while the retry waits
			_ = p.Execute(ctx, func(context.Context) error { return errBoom })
		}}
	}},

	{"timeout.Options.Func", caller, func(x *scene) drill {
		return x.between(nil, timeout.New(0, &timeout.Options{Func: func(ctx context.Context) time.Duration { x.hit(ctx); return time.Second }}))
	}},
	{"timeout.Options.OnTimeout", caller, func(x *scene) drill {
		p := x.pipeline(ratelimit.New(x.limiter(), nil),
			timeout.New(time.Second, &timeout.Options{OnTimeout: func(ctx context.Context, _ pipeline.Event) { x.hit(ctx) }}), ratelimit.New(x.limiter(), nil))
		return drill{do: func() {
			_ = p.Execute(x.context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		}}
	}},

	{"circuitbreaker.Options.Handle", caller, func(x *scene) drill {
		return x.between(nil, circuitbreaker.New(&circuitbreaker.Options{Handle: x.handles}))
	}},
	{"circuitbreaker.Options.BreakDurationFunc", caller, func(x *scene) drill {
		return x.between(errBoom, circuitbreaker.New(&circuitbreaker.Options{ConsecutiveFailures: 1,
			BreakDurationFunc: func(ctx context.Context, _ circuitbreaker.Transition) time.Duration { x.hit(ctx); return time.Second }}))
	}},
	{"circuitbreaker.Options.OnOpened", caller, func(x *scene) drill {
		return x.between(errBoom, circuitbreaker.New(&circuitbreaker.Options{ConsecutiveFailures: 1,
			OnOpened: func(ctx context.Context, _ circuitbreaker.Transition) { x.hit(ctx) }}))
	}},
	{"circuitbreaker.Options.OnHalfOpened", caller, func(x *scene) drill {
		return x.broken(circuitbreaker.Options{OnHalfOpened: func(ctx context.Context, _ circuitbreaker.Transition) { x.hit(ctx) }})
	}},
	{"circuitbreaker.Options.OnClosed", caller, func(x *scene) drill {
		return x.broken(circuitbreaker.Options{OnClosed: func(ctx context.Context, _ circuitbreaker.Transition) { x.hit(ctx) }})
	}},

	{"fallback.New(action) fallback.Action", caller, func(x *scene) drill {
		return x.between(errBoom, fallback.New(func(ctx context.Context, _ any, _ error) (any, error) { x.hit(ctx); return nil, nil }, nil))
	}},
	{"fallback.Func(action)", caller, func(x *scene) drill {
		return x.between(errBoom, fallback.New(fallback.Func(func(ctx context.Context, _ any, _ error) (any, error) { x.hit(ctx); return nil, nil }), nil))
	}},
	{"fallback.Options.Handle", caller, func(x *scene) drill {
		return x.between(errBoom, fallback.New(fallback.Value[any](1), &fallback.Options{Handle: x.handles}))
	}},
	{"fallback.Options.OnFallback", caller, func(x *scene) drill {
		return x.between(errBoom, fallback.New(fallback.Value[any](1), &fallback.Options{OnFallback: func(ctx context.Context, _ pipeline.Event) { x.hit(ctx) }}))
	}},

	{"hedge.Options.Handle", caller, func(x *scene) drill { return x.hedged(&hedge.Options{Handle: x.handles}) }},
	{"hedge.Options.OnHedge", caller, func(x *scene) drill {
		return x.hedged(&hedge.Options{OnHedge: func(ctx context.Context, _ pipeline.Event) { x.hit(ctx) }})
	}},
	{"hedge.Options.DelayFunc", caller, func(x *scene) drill {
		return x.hedged(&hedge.Options{DelayFunc: func(ctx context.Context, _ int) time.Duration { x.hit(ctx); return time.Second }})
	}},
	{"hedge.Options.Budget", caller, func(x *scene) drill { return x.hedged(&hedge.Options{Budget: userBudget{x, "TryAcquire"}}) }},
	{"hedge.Options.Dispose", ours, func(x *scene) drill { return x.hedged(&hedge.Options{Dispose: func(any, error) { x.hit() }}) }},
	{"hedge.Dispose(dispose)", ours, func(x *scene) drill {
		return x.hedged(&hedge.Options{Dispose: hedge.Dispose(func(int) { x.hit() })})
	}},

	{"chaos.Options.EnabledFunc", caller, func(x *scene) drill {
		return x.between(nil, chaos.NewFault(&chaos.FaultOptions{Options: chaos.Options{Rate: 1, EnabledFunc: func(ctx context.Context) bool { x.hit(ctx); return true }}}))
	}},
	{"chaos.Options.RateFunc", caller, func(x *scene) drill {
		return x.between(nil, chaos.NewFault(&chaos.FaultOptions{Options: chaos.Options{Enabled: true, RateFunc: func(ctx context.Context) float64 { x.hit(ctx); return 1 }}}))
	}},
	{"chaos.Options.Rand", caller, func(x *scene) drill {
		return x.between(nil, chaos.NewFault(&chaos.FaultOptions{Options: chaos.Options{Enabled: true, Rate: 0.5, Rand: func() float64 { x.hit(); return 0 }}}))
	}},
	{"chaos.Options.OnInjected", caller, func(x *scene) drill {
		return x.between(nil, chaos.NewFault(&chaos.FaultOptions{Options: chaos.Options{Enabled: true, Rate: 1, OnInjected: func(ctx context.Context, _ pipeline.Event) { x.hit(ctx) }}}))
	}},
	{"chaos.FaultOptions.ErrFunc", caller, func(x *scene) drill {
		return x.between(nil, chaos.NewFault(&chaos.FaultOptions{Options: always, ErrFunc: func(ctx context.Context) error { x.hit(ctx); return errBoom }}))
	}},
	{"chaos.LatencyOptions.LatencyFunc", caller, func(x *scene) drill {
		return x.between(nil, chaos.NewLatency(&chaos.LatencyOptions{Options: always, LatencyFunc: func(ctx context.Context) time.Duration { x.hit(ctx); return 1 }}))
	}},
	{"chaos.OutcomeOptions.ResultFunc", caller, func(x *scene) drill {
		return x.between(nil, chaos.NewOutcome(&chaos.OutcomeOptions{Options: always, ResultFunc: func(ctx context.Context) (chaos.Result, bool) {
			x.hit(ctx)
			return chaos.Result{Err: errBoom}, true
		}}))
	}},
	{"chaos.BehaviorOptions.Behavior", caller, func(x *scene) drill {
		return x.between(nil, chaos.NewBehavior(&chaos.BehaviorOptions{Options: always, Behavior: func(ctx context.Context) error { x.hit(ctx); return nil }}))
	}},

	{"weirfailsafe.New(policies)", caller, func(x *scene) drill {
		policy := retrypolicy.NewBuilder[any]().OnRetry(func(failsafe.ExecutionEvent[any]) { x.hit() }).Build()
		return x.between(errBoom, weirfailsafe.New(nil, policy))
	}},
	{"weirfailsafe.FromLimiter(l)", caller, func(x *scene) drill { return x.policy(x.user("Acquire"), nil) }},
	{"weirfailsafe.FromLimiterOptions.Listener", caller, func(x *scene) drill {
		return x.policy(x.user(""), &weirfailsafe.FromLimiterOptions{Listener: listener{x, "OnMeasurement"}})
	}},
	{"weirfailsafe.FromLimiterOptions.MapError", caller, func(x *scene) drill {
		return x.policy(x.full(), &weirfailsafe.FromLimiterOptions{MapError: func(err error) error { x.hit(); return err }})
	}},
}
