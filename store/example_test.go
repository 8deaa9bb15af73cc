package store_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// Two instances of a service share a limit. A real service has weirredis or weirpostgres in place of the memory.
func ExampleStore() {
	server := storetest.NewMemory()
	login := limiter.TokenBucketOptions{TokenLimit: 3, TokensPerPeriod: 3, ReplenishmentPeriod: time.Hour}
	ctx := context.Background()
	for _, instance := range []string{"first", "second"} {
		shared := weir.Must(store.New(server, nil))
		defer func() { _ = shared.Close() }()
		logins := weir.Must(shared.PartitionedTokenBucket("logins", login, &store.LimiterOptions{Outage: store.FailOpen}))
		for range 2 {
			lease := weir.Must(logins.TryAcquire(ctx, "ann", 1))
			fmt.Println(instance, lease.Acquired())
		}
	}
	// Output:
	// first true
	// first true
	// second true
	// second false
}

// While the store is away, the outage policy decides, and the lease says why.
func ExampleLimiterOptions() {
	server := storetest.NewMemory()
	shared := weir.Must(store.New(server, nil))
	defer func() { _ = shared.Close() }()
	window := limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}
	exports := weir.Must(shared.FixedWindow("exports", window, &store.LimiterOptions{Outage: store.FallBackLocally, LocalShare: 1}))

	server.Fail(fmt.Errorf("connection refused"))
	for range 2 {
		lease := weir.Must(exports.TryAcquire(context.Background(), 1))
		reason, away := store.OutageKey.From(lease)
		fmt.Println(lease.Acquired(), away, reason)
	}
	// Output:
	// true true store: unavailable: connection refused
	// false true store: unavailable: connection refused
}

// A service learns what a request has cost when the answer is complete, perhaps in another process. It charges the cost, and
// shows what is left.
func ExamplePartitioned_Charge() {
	shared := weir.Must(store.New(storetest.NewMemory(), nil))
	defer func() { _ = shared.Close() }()
	day := limiter.FixedWindowOptions{PermitLimit: 100_000, Window: 24 * time.Hour}
	tokens := weir.Must(shared.PartitionedFixedWindow("tokens", day, nil))

	ctx := context.Background()
	for _, cost := range []int{64_000, 41_000, -7_000, 0} {
		level, err := tokens.Charge(ctx, "ann", cost)
		if err != nil {
			fmt.Println(err) // it was not counted
			return
		}
		fmt.Println(cost, level.Remaining)
	}
	// Output:
	// 64000 36000
	// 41000 -5000
	// -7000 2000
	// 0 2000
}

// One instance raises the limit for everyone for an hour. Then the limits come back, even if that instance is gone.
func ExampleLimiter_Override() {
	server := storetest.NewMemory()
	first, second := weir.Must(store.New(server, nil)), weir.Must(store.New(server, nil))
	defer func() { _ = second.Close() }()
	window := limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Minute}
	here := weir.Must(first.FixedWindow("exports", window, nil))
	there := weir.Must(second.FixedWindow("exports", window, nil))

	raised := window
	raised.PermitLimit = 50
	err := here.Override(store.Override{
		Options: raised, Until: time.Now().Add(time.Hour), By: "ann", Reason: "end of the quarter",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = first.Close()
	lease := weir.Must(there.TryAcquire(context.Background(), 30))
	o, _ := there.Overridden()
	fmt.Println(lease.Acquired(), o.By, o.Options.Limits().Permits, "instead of", o.Configured.Limits().Permits)
	fmt.Println(there.EndOverride("bob"), there.Limits().Permits)
	// Output:
	// true ann 50 instead of 10
	// <nil> 10
}
