package registry_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// Two instances of a service share a limiter: b.TokenBucket("logins", limits) would be each
// instance's own.
func ExampleShared() {
	ctx := context.Background()
	server := storetest.NewMemory() // where a program has Redis or PostgreSQL
	limits := limiter.TokenBucketOptions{TokenLimit: 3, TokensPerPeriod: 3, ReplenishmentPeriod: time.Hour}

	instance := func() (login *pipeline.Pipeline, end func()) {
		redis, err := store.New(server, nil)
		if err != nil {
			panic(err)
		}
		r := registry.New(nil)
		login, err = r.GetOrDefine("login", func(b *registry.Builder) error {
			logins := registry.Shared(b, redis, "logins", limits, nil)
			b.Add(ratelimit.New(logins, nil))
			return nil
		})
		if err != nil {
			panic(err)
		}
		return login, func() {
			_ = r.Close(ctx)
			_ = redis.Close() // it is the program's
		}
	}
	here, end := instance()
	defer end()
	there, end := instance()
	defer end()
	for _, login := range []*pipeline.Pipeline{here, there, here, there} {
		err := login.Execute(ctx, func(context.Context) error { return nil })
		fmt.Println("rejected:", errors.Is(err, pipeline.ErrRejected))
	}
	// Output:
	// rejected: false
	// rejected: false
	// rejected: false
	// rejected: true
}

// The limits of each user are shared. The key is found as for any limiter of a store.
func ExampleSharedPartitioned() {
	ctx := context.Background()
	redis, err := store.New(storetest.NewMemory(), nil)
	if err != nil {
		panic(err)
	}
	defer redis.Close()
	type user struct{}
	key := func(ctx context.Context) string {
		name, _ := ctx.Value(user{}).(string)
		return name
	}
	r := registry.New(nil)
	defer r.Close(ctx)
	orders, err := r.GetOrDefine("orders", func(b *registry.Builder) error {
		perUser := registry.SharedPartitioned(b, redis, "per_user",
			limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour},
			&store.LimiterOptions{Outage: store.FallBackLocally, LocalShare: 0.25})
		b.Add(ratelimit.NewPartitioned(perUser, key, nil))
		return nil
	})
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"ann", "bob", "ann"} {
		err := orders.Execute(context.WithValue(ctx, user{}, name), func(context.Context) error { return nil })
		fmt.Println(name, "is rejected:", errors.Is(err, pipeline.ErrRejected))
	}
	for name, info := range r.Limiters() {
		fmt.Printf("%s is a %s\n", name, info.Kind)
	}
	// Output:
	// ann is rejected: false
	// bob is rejected: false
	// ann is rejected: true
	// per_user is a shared partitioned fixed window
}
