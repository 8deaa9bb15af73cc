package hooktest

import (
	"context"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/estimate"
)

// A userLimiter is a limiter of the program's own, of which one method is the hook.
type userLimiter struct {
	x     *scene
	hook  string
	inner *limiter.Concurrency
}

// user makes a limiter whose method of that name is the hook.
func (x *scene) user(hook string) *userLimiter { return &userLimiter{x, hook, x.limiter()} }

func (u *userLimiter) at(method string, ctx ...context.Context) {
	if u.hook == method || u.hook == "any" {
		u.x.hit(ctx...)
	}
}

func (u *userLimiter) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	u.at("TryAcquire", ctx)
	return u.grant(u.inner.TryAcquire(ctx, n))
}

func (u *userLimiter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	u.at("Acquire", ctx)
	return u.grant(u.inner.Acquire(ctx, n))
}

func (u *userLimiter) Peek(ctx context.Context, n int) (limiter.Lease, error) {
	u.at("Peek", ctx)
	return u.inner.Peek(ctx, n)
}

func (u *userLimiter) Charge(ctx context.Context, _ int) (limiter.Level, error) {
	u.at("Charge", ctx)
	return limiter.Level{}, nil
}

// grant wraps the lease, so that to give it back is a hook, too.
func (u *userLimiter) grant(inner limiter.Lease, err error) (limiter.Lease, error) {
	if err != nil || !inner.Acquired() {
		return inner, err
	}
	return custom.GrantedRefundable(inner.Permits(),
		func() { defer inner.Release(); u.at("Release") },
		func() { defer inner.Release(); u.at("Refund") }), nil
}

func (u *userLimiter) Statistics() limiter.Statistics {
	u.at("Statistics")
	return u.inner.Statistics()
}

func (u *userLimiter) IdleDuration() (time.Duration, bool) {
	u.at("IdleDuration")
	return u.inner.IdleDuration()
}

func (u *userLimiter) Close() error { u.at("Close"); return nil }

// takes acquires a permit of l and gives it back.
func (x *scene) takes(l limiter.Limiter) func() {
	return func() {
		lease, _ := l.Acquire(x.context(), 1)
		lease.Release()
	}
}

func (x *scene) tries(l limiter.Limiter) func() {
	return func() {
		lease, _ := l.TryAcquire(x.context(), 1)
		lease.Release()
	}
}

// keyed makes a limiter whose key "a" has l, and every other key a limiter of its own.
func (x *scene) keyed(l func() limiter.Limiter) (p *limiter.PartitionedLimiter[string, string], a, b func()) {
	p = must(limiter.NewPartitioned(func(key string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: key, New: func(key string) (limiter.Limiter, error) {
			if key == "a" {
				return l(), nil
			}
			return limiter.NewUnlimited(), nil
		}}
	}, &limiter.PartitionedOptions{IdleTimeout: time.Second}))
	x.then(func() { _ = p.Close() })
	return p, x.takesKey(p, "a"), x.takesKey(p, "b")
}

func (x *scene) takesKey(p limiter.Partitioned[string], key string) func() {
	return func() {
		lease, _ := p.Acquire(x.context(), key, 1)
		lease.Release()
	}
}

// partition is for a method of a limiter behind a key that housekeeping calls.
func partition(method string) func(x *scene) drill {
	return func(x *scene) drill {
		u := x.user(method)
		_, a, b := x.keyed(func() limiter.Limiter { return u })
		return drill{do: a, also: b}
	}
}

// An owner is a [custom.Owner] of the program's.
type owner struct {
	x    *scene
	hook string
}

func (o owner) at(method string) {
	if o.hook == method {
		o.x.hit()
	}
}

func (o owner) Release(int, int64) { o.at("Release") }
func (o owner) Refund(int, int64)  { o.at("Refund") }
func (o owner) Adjust(_ int, tag int64, _ int) (int64, bool) {
	o.at("Adjust")
	return tag, true
}

func (o owner) Succeeded(int, int64) { o.at("Succeeded") }

func (o owner) Remaining(int, int64) (int64, bool) {
	o.at("Remaining")
	return 1, true
}

func (o owner) Level(int, int64) (limiter.Level, bool) {
	o.at("Level")
	return limiter.Level{Remaining: 1}, true
}

// granted uses a lease of two permits.
func granted(method string, use func(limiter.Lease)) func(x *scene) drill {
	return func(x *scene) drill {
		return drill{do: func() { use(custom.GrantedBy(owner{x, method}, 2, 0)) }}
	}
}

// refunds has a chain undo the grant of its first limiter, which is u.
func (x *scene) refunds(u limiter.Limiter) func() {
	full := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	lease := must(full.TryAcquire(context.Background(), 1))
	x.then(func() { lease.Release(); _ = full.Close() })
	chain := must(limiter.Chain(u, full))
	return x.tries(chain)
}

var limiterRows = []row{
	{"limiter.Limiter.Acquire limiter.Chain(limiters)", caller, func(x *scene) drill {
		return drill{do: x.takes(must(limiter.Chain(x.limiter(), x.user("Acquire"), x.limiter())))}
	}},
	{"limiter.Limiter.TryAcquire", caller, func(x *scene) drill {
		return drill{do: x.tries(must(limiter.Chain(x.limiter(), x.user("TryAcquire"), x.limiter())))}
	}},
	{"limiter.AnyOf(limiters)", caller, func(x *scene) drill {
		return drill{do: x.takes(must(limiter.AnyOf(&limiter.PoolOptions{QueueLimit: 10}, x.user("TryAcquire"))))}
	}},
	{"estimate.Estimator.Reserve(l)", caller, func(x *scene) drill {
		e, l := must(estimate.New(nil)), x.user("Acquire")
		return drill{do: func() {
			if call, err := e.Reserve(x.context(), l, "key"); err == nil {
				call.Lease.Release()
			}
		}}
	}},
	{"custom.Granted(release)", caller, func(x *scene) drill {
		return drill{do: func() { l := custom.Granted(1, func() { x.hit() }); l.Release() }}
	}},
	{"custom.GrantedRefundable(release)", caller, func(x *scene) drill {
		return drill{do: x.takes(must(limiter.Chain(x.limiter(), x.user("Release"), x.limiter())))}
	}},
	{"custom.GrantedRefundable(refund)", caller, func(x *scene) drill {
		return drill{do: x.refunds(must(limiter.Chain(x.limiter(), x.user("Refund"), x.limiter())))}
	}},
	{"custom.Owner.Release custom.GrantedBy(by)", caller, granted("Release", limiter.Lease.Release)},
	{"custom.Owner.Refund", caller, func(x *scene) drill {
		return drill{do: x.refunds(must(limiter.Chain(x.limiter(), granter{x, "Refund"})))}
	}},
	{"custom.Adjuster.Adjust", caller, granted("Adjust", func(l limiter.Lease) { l, _ = l.Adjust(1); l.Release() })},
	{"custom.Learner.Succeeded", caller, granted("Succeeded", func(l limiter.Lease) { defer l.Release(); l.Succeeded() })},
	{"custom.Leveler.Level", caller, granted("Level", func(l limiter.Lease) { defer l.Release(); l.Level() })},
	{"custom.Counter.Remaining", caller, granted("Remaining", func(l limiter.Lease) { defer l.Release(); l.Remaining() })},

	{"limiter.NewPartitionedByKey(key) limiter.NewPartitioned(partition)", caller, func(x *scene) drill {
		key := func(s string) string { x.hit(); return s }
		p := must(limiter.NewPartitionedByKey(key, func(string) (limiter.Limiter, error) { return limiter.NewUnlimited(), nil }, nil))
		x.then(func() { _ = p.Close() })
		return drill{do: x.takesKey(p, "a")}
	}},
	{"limiter.NewPartitionedByKey(each)", caller, func(x *scene) drill {
		each := func(string) (limiter.Limiter, error) { x.hit(); return limiter.NewUnlimited(), nil }
		p := must(limiter.NewPartitionedByKey(func(s string) string { return s }, each, nil))
		x.then(func() { _ = p.Close() })
		return drill{do: func() { _, _ = p.PeekKey(x.context(), "a", 1) }, also: x.takesKey(p, "a")}
	}},
	{"limiter.Peeker.Peek", caller, func(x *scene) drill {
		u := x.user("Peek")
		p, a, _ := x.keyed(func() limiter.Limiter { return must(limiter.Chain(x.limiter(), u, x.limiter())) })
		a()
		return drill{do: func() { _, _ = p.Peek(x.context(), "a", 1) }, also: a}
	}},
	{"limiter.PartitionedPeeker.Peek", caller, func(x *scene) drill {
		p := limiter.Translate[string](onlyUser{x.user("Peek")}, func(s string) string { return s })
		return drill{do: func() { _, _ = p.(limiter.PartitionedPeeker[string]).Peek(x.context(), "a", 1) }}
	}},
	{"limiter.Charger.Charge", caller, func(x *scene) drill {
		u := x.user("Charge")
		p, a, _ := x.keyed(func() limiter.Limiter { return must(limiter.Chain(u)) })
		return drill{do: func() { _, _ = p.Charge(x.context(), "a", 1) }, also: a}
	}},
	{"limiter.PartitionedCharger.Charge", caller, func(x *scene) drill {
		p := limiter.Translate[string](onlyUser{x.user("Charge")}, func(s string) string { return s })
		return drill{do: func() { _, _ = p.(limiter.PartitionedCharger[string]).Charge(x.context(), "a", 1) }}
	}},
	{"limiter.Factory limiter.Partition.New", caller, func(x *scene) drill {
		l := x.limiter()
		_, a, b := x.keyed(func() limiter.Limiter { x.hit(); return l })
		return drill{do: a, also: b}
	}},
	{"limiter.Partitioned.Acquire limiter.Translate(p)", caller, func(x *scene) drill {
		return drill{do: x.takesKey(limiter.Translate[string](onlyUser{x.user("Acquire")}, func(s string) string { return s }), "a")}
	}},
	{"limiter.Partitioned.TryAcquire limiter.ChainPartitioned(limiters)", caller, func(x *scene) drill {
		p := must(limiter.ChainPartitioned[string](onlyUser{x.user("")}, onlyUser{x.user("TryAcquire")}, onlyUser{x.user("")}))
		return drill{do: func() {
			lease, _ := p.TryAcquire(x.context(), "a", 1)
			lease.Release()
		}}
	}},
	{"limiter.Translate(f)", caller, func(x *scene) drill {
		p := limiter.Translate[string](onlyUser{x.user("")}, func(s string) string { x.hit(); return s })
		return drill{do: x.takesKey(p, "a")}
	}},
	{"limiter.PartitionedLimiter.Apply(change)", caller, func(x *scene) drill {
		p, a, b := x.keyed(func() limiter.Limiter { return limiter.NewUnlimited() })
		a()
		return drill{do: func() {
			_ = p.Apply(func(key string, _ limiter.Limiter) error {
				if key == "a" {
					x.hit()
				}
				return nil
			})
		}, also: b}
	}},
	{"custom.Idler.IdleDuration", ours, partition("IdleDuration")},
	{"limiter.Limiter.Close", ours, partition("Close")},
	{"limiter.StatisticsProvider.Statistics", caller, func(x *scene) drill {
		c := must(limiter.Chain(x.user("Statistics")))
		return drill{do: func() { c.Statistics() }}
	}},
	{"limiter.Wait(l)", caller, func(x *scene) drill {
		u := x.user("Acquire")
		return drill{do: func() {
			lease, _ := limiter.Wait(x.context(), u, 1)
			lease.Release()
		}}
	}},
}

// granter is a limiter of the program's that owns its leases.
type granter owner

func (g granter) TryAcquire(_ context.Context, n int) (limiter.Lease, error) {
	return custom.GrantedBy(owner(g), n, 0), nil
}
func (g granter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return g.TryAcquire(ctx, n)
}

// onlyUser is a partitioned limiter of the program's that has one limiter for all keys.
type onlyUser struct{ *userLimiter }

func (o onlyUser) TryAcquire(ctx context.Context, _ string, n int) (limiter.Lease, error) {
	return o.userLimiter.TryAcquire(ctx, n)
}

func (o onlyUser) Acquire(ctx context.Context, _ string, n int) (limiter.Lease, error) {
	return o.userLimiter.Acquire(ctx, n)
}

func (o onlyUser) Charge(ctx context.Context, _ string, n int) (limiter.Level, error) {
	return o.userLimiter.Charge(ctx, n)
}

func (o onlyUser) Peek(ctx context.Context, _ string, n int) (limiter.Lease, error) {
	return o.userLimiter.Peek(ctx, n)
}

// optional are what is called if a value has it, and that no interface or struct of the API names.
var optional = []string{
	"limiter.Limiter.Close", "pipeline.Strategy.Close", "pipeline.Hooks.OnMeasurement.ended",
	"telemetry.Options.Logger",
}
