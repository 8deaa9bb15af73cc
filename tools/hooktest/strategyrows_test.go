package hooktest

import (
	"context"
	"slices"
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

// What hooks do once they have been hit.
func failed(_ any, err error) bool           { return err != nil }
func one(context.Context) int                { return 1 }
func inSecond(context.Context) time.Duration { return time.Second }

// A userBudget is a budget of the program's.
type userBudget struct {
	x    *scene
	hook string
}

func (b userBudget) at(ctx context.Context, method string) {
	if b.hook == method {
		b.x.hit(ctx)
	}
}

func (b userBudget) TryAcquire(ctx context.Context) bool { b.at(ctx, "TryAcquire"); return true }
func (b userBudget) Count(ctx context.Context)           { b.at(ctx, "Count") }
func (b userBudget) Refund(ctx context.Context)          { b.at(ctx, "Refund") }

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

var strategyRows = slices.Concat(
	fields(caller, "Permits", ratelimit.Options{Permits: one}, func(x *scene, o *ratelimit.Options) drill {
		return x.between(nil, ratelimit.New(x.limiter(), o))
	}),
	fields(caller, "OnRejected", ratelimit.Options{}, func(x *scene, o *ratelimit.Options) drill {
		return x.between(nil, ratelimit.New(x.full(), o))
	}),
	fields(caller, "Permits", adaptive.Options{Permits: one}, func(x *scene, o *adaptive.Options) drill {
		return x.between(nil, adaptive.New(adaptiveLimiter(x), o))
	}),
	fields(caller, "Handle", adaptive.Options{Handle: failed}, func(x *scene, o *adaptive.Options) drill {
		return x.between(errBoom, adaptive.New(x.user(""), o))
	}),
	fields(caller, "OnRejected", adaptive.Options{}, func(x *scene, o *adaptive.Options) drill {
		return x.between(nil, adaptive.New(x.full(), o))
	}),
	fields(caller, "OnLimitChanged", adaptive.LimiterOptions{
		MinLimit: 1, InitialLimit: 10, MaxLimit: 100, MinWindow: time.Millisecond, MaxWindow: time.Millisecond, MinSamples: 1,
	}, limitChanges),
	fields(caller, "Handle DelayFunc OnRetry", retry.Options{Handle: failed}, func(x *scene, o *retry.Options) drill {
		return x.between(errBoom, retry.New(o))
	}),
	fields(caller, "Func", timeout.Options{Func: inSecond}, func(x *scene, o *timeout.Options) drill {
		return x.between(nil, timeout.New(0, o))
	}),
	fields(caller, "OnTimeout", timeout.Options{}, func(x *scene, o *timeout.Options) drill {
		p := x.pipeline(ratelimit.New(x.limiter(), nil), timeout.New(time.Second, o), ratelimit.New(x.limiter(), nil))
		return drill{do: func() {
			_ = p.Execute(x.context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		}}
	}),
	fields(caller, "Handle", circuitbreaker.Options{Handle: failed}, func(x *scene, o *circuitbreaker.Options) drill {
		return x.between(nil, circuitbreaker.New(o))
	}),
	fields(caller, "BreakDurationFunc OnOpened", circuitbreaker.Options{
		ConsecutiveFailures: 1,
		BreakDurationFunc:   func(context.Context, circuitbreaker.Transition) time.Duration { return time.Second },
	}, func(x *scene, o *circuitbreaker.Options) drill { return x.between(errBoom, circuitbreaker.New(o)) }),
	fields(caller, "OnHalfOpened OnClosed", circuitbreaker.Options{ConsecutiveFailures: 1, BreakDuration: time.Second},
		func(x *scene, o *circuitbreaker.Options) drill {
			s := circuitbreaker.New(o) // it is open, and its break is over
			x.fails(s).do()
			time.Sleep(time.Minute)
			return x.between(nil, s)
		}),
	fields(caller, "Handle OnFallback", fallback.Options{Handle: failed}, func(x *scene, o *fallback.Options) drill {
		return x.between(errBoom, fallback.New(fallback.Value[any](1), o))
	}),
	fields(caller, "Handle OnHedge DelayFunc", hedge.Options{
		Handle: failed, DelayFunc: func(context.Context, int) time.Duration { return time.Second },
	}, (*scene).hedged),
	fields(caller, "EnabledFunc RateFunc Rand OnInjected ErrFunc", chaos.FaultOptions{
		Options: chaos.Options{
			EnabledFunc: func(context.Context) bool { return true }, RateFunc: func(context.Context) float64 { return 0.5 },
			Rand: func() float64 { return 0 },
		},
		ErrFunc: func(context.Context) error { return errBoom },
	}, func(x *scene, o *chaos.FaultOptions) drill { return x.between(nil, chaos.NewFault(o)) }),
	fields(caller, "LatencyFunc", chaos.LatencyOptions{Options: always}, func(x *scene, o *chaos.LatencyOptions) drill {
		return x.between(nil, chaos.NewLatency(o))
	}),
	fields(caller, "ResultFunc", chaos.OutcomeOptions{
		Options: always, ResultFunc: func(context.Context) (chaos.Result, bool) { return chaos.Result{Err: errBoom}, true },
	}, func(x *scene, o *chaos.OutcomeOptions) drill { return x.between(nil, chaos.NewOutcome(o)) }),
	fields(caller, "Behavior", chaos.BehaviorOptions{Options: always}, func(x *scene, o *chaos.BehaviorOptions) drill {
		return x.between(nil, chaos.NewBehavior(o))
	}),
	fields(caller, "MapError", weirfailsafe.FromLimiterOptions{MapError: func(err error) error { return err }},
		func(x *scene, o *weirfailsafe.FromLimiterOptions) drill { return x.policy(x.full(), o) }),
	[]row{
		{"ratelimit.New(l)", caller, func(x *scene) drill { return x.between(nil, ratelimit.New(x.user("Acquire"), nil)) }},
		{"ratelimit.NewPartitioned(l)", caller, func(x *scene) drill {
			return x.between(nil, ratelimit.NewPartitioned[string](onlyUser{x.user("Release")}, pipeline.Operation, nil))
		}},
		{"ratelimit.NewPartitioned(resource)", caller, func(x *scene) drill {
			return x.between(nil, ratelimit.NewPartitioned[string](onlyUser{x.user("")}, hook(x, func(context.Context) string { return "a" }), nil))
		}},
		{"adaptive.New(l)", caller, func(x *scene) drill { return x.between(nil, adaptive.New(x.user("Acquire"), nil)) }},
		{"pipeline.HandleResult(handle)", caller, func(x *scene) drill {
			return x.between(errBoom, retry.New(&retry.Options{Handle: pipeline.HandleResult(hook(x, failed))}))
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
		{"fallback.New(action) fallback.Action fallback.Func(action)", caller, func(x *scene) drill {
			action := func(context.Context, any, error) (any, error) { return nil, nil }
			return x.between(errBoom, fallback.New(fallback.Func(hook(x, action)), nil))
		}},
		{"hedge.Options.Budget", caller, func(x *scene) drill { return x.hedged(&hedge.Options{Budget: userBudget{x, "TryAcquire"}}) }},
		{"hedge.Dispose(dispose) hedge.Options.Dispose", ours, func(x *scene) drill {
			return x.hedged(&hedge.Options{Dispose: hedge.Dispose(func(int) { x.hit() })})
		}},
		{"weirfailsafe.New(policies)", caller, func(x *scene) drill {
			policy := retrypolicy.NewBuilder[any]().OnRetry(func(failsafe.ExecutionEvent[any]) { x.hit() }).Build()
			return x.between(errBoom, weirfailsafe.New(nil, policy))
		}},
		{"weirfailsafe.FromLimiter(l)", caller, func(x *scene) drill { return x.policy(x.user("Acquire"), nil) }},
		{"weirfailsafe.FromLimiterOptions.Listener", caller, func(x *scene) drill {
			return x.policy(x.user(""), &weirfailsafe.FromLimiterOptions{Listener: listener{x, "OnMeasurement"}})
		}},
	},
)

// limitChanges uses an adaptive limiter so that its limit changes.
func limitChanges(x *scene, o *adaptive.LimiterOptions) drill {
	l := must(adaptive.NewLimiter(o))
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
}
