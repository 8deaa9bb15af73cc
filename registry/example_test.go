package registry_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
)

func Example() {
	ctx := context.Background()
	limit := 1 // what the program reads from its configuration

	r := registry.New(nil)
	defer r.Close(ctx)
	err := r.Define("orders", func(b *registry.Builder) error {
		slots := b.Concurrency("orders", limiter.ConcurrencyOptions{PermitLimit: limit})
		b.Add(ratelimit.New(slots, nil), timeout.New(time.Second, nil))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	orders, err := r.Get("orders") // the handle stays the same
	if err != nil {
		fmt.Println(err)
		return
	}
	two := func() error {
		return orders.Execute(ctx, func(ctx context.Context) error {
			return orders.Execute(ctx, func(context.Context) error { return nil })
		})
	}
	fmt.Println("two at once:", two())

	limit = 2
	fmt.Println("reload:", r.Reload(ctx))
	fmt.Println("two at once:", two())
	// Output:
	// two at once: ratelimit: orders/RateLimiter: rejected: no permit free
	// reload: <nil>
	// two at once: <nil>
}

// A limiter that the builder made is kept across reloads with what it has counted.
func ExampleBuilder_TokenBucket() {
	ctx := context.Background()
	var bucket *limiter.TokenBucket
	size := 10

	r := registry.New(nil)
	defer r.Close(ctx)
	_, err := r.GetOrDefine("orders", func(b *registry.Builder) error {
		bucket = b.TokenBucket("orders", limiter.TokenBucketOptions{
			TokenLimit: size, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
		})
		b.Add(ratelimit.New(bucket, nil))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := bucket.TryAcquire(ctx, 4); err != nil {
		fmt.Println(err)
	}
	fmt.Println("left:", bucket.Statistics().AvailablePermits)

	size = 7
	before := bucket
	fmt.Println("reload:", r.Reload(ctx), "the same bucket:", bucket == before)
	fmt.Println("left:", bucket.Statistics().AvailablePermits)
	// Output:
	// left: 6
	// reload: <nil> the same bucket: true
	// left: 3
}

// One definition, an instance for each tenant, and the one that Get returns.
func ExampleRegistry_GetInstance() {
	ctx := context.Background()
	r := registry.New(&registry.Options{MaxInstances: 2})
	defer r.Close(ctx)
	err := r.Define("orders", func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.Concurrency("orders/"+b.Instance, limiter.ConcurrencyOptions{PermitLimit: 5}), nil))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tenant := range []string{"ann", "bob", "eve"} {
		_, err := r.GetInstance("orders", tenant)
		fmt.Println(tenant, err)
	}
	for name, info := range r.Limiters() {
		fmt.Println(name, info.Pipelines)
	}

	bob, err := r.GetInstance("orders", "bob")
	fmt.Println(err, r.RemoveInstance("orders", "bob"))
	err = bob.Execute(ctx, func(context.Context) error { return nil })
	fmt.Println(errors.Is(err, registry.ErrRemoved), errors.Is(err, pipeline.ErrClosed))
	// Output:
	// ann <nil>
	// bob <nil>
	// eve registry: too many instances: "orders" has 2
	// orders/ [orders]
	// orders/ann [orders/ann]
	// orders/bob [orders/bob]
	// <nil> <nil>
	// true true
}

func ExampleRegistry_Apply() {
	ctx := context.Background()
	empty := func(*registry.Builder) error { return nil }
	r := registry.New(&registry.Options{
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			if e.Name == registry.EventReloadFailed {
				fmt.Println(e.Source.Pipeline, e.Err)
			}
		}),
	})
	defer r.Close(ctx)
	fmt.Println(r.Apply(ctx, registry.Change{Define: map[string]registry.BuildFunc{"orders": empty}}) == nil)
	fmt.Println(r.Apply(ctx, registry.Change{
		Define: map[string]registry.BuildFunc{
			"payments": empty,
			"refunds":  func(*registry.Builder) error { return errors.New("no such queue") },
		},
		Remove: []string{"orders"},
	}) == nil)
	for name := range r.Pipelines() {
		fmt.Println(name)
	}
	// Output:
	// true
	// refunds registry: building pipeline refunds: no such queue
	// false
	// orders
}

func ExampleRegistry_Override() {
	ctx := context.Background()
	r := registry.New(&registry.Options{
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			if o, ok := e.Result.(registry.Override); ok {
				fmt.Printf("%s: %s by %s for %s; %s\n", e.Name, o.Limiter, o.By, o.Reason, cmp.Or(o.Ended, "not ended"))
			}
		}),
	})
	defer r.Close(ctx)
	_, err := r.GetOrDefine("orders", func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.TokenBucket("orders", limiter.PerSecond(10, 10)), nil))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = r.Override(ctx, registry.Override{
		Limiter: "orders",
		Options: limiter.PerSecond(50, 50),
		Until:   time.Now().Add(2 * time.Hour),
		By:      "ann",
		Reason:  "a sale",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for name, info := range r.Limiters() {
		fmt.Println(name, info.Options.Limits.Permits,
			"instead of", info.Configured.Limits.Permits)
	}
	fmt.Println(r.EndOverride(ctx, "orders", "bob")) // or it ends by itself after two hours
	// Output:
	// OnLimiterOverridden: orders by ann for a sale; not ended
	// orders 50 instead of 10
	// OnLimiterOverrideEnded: orders by ann for a sale; ended by bob
	// <nil>
}
