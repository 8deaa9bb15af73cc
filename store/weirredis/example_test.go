package weirredis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/weirredis"
)

// Without ContextTimeoutEnabled the deadline of a context does not end a call. With more DialerRetries, the first calls
// wait while the client dials a server that is away.
func ExampleNew() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:                 []string{"redis:6379"},
		ContextTimeoutEnabled: true,
		DialerRetries:         1,
	})
	defer func() { _ = client.Close() }()
	shared := weir.Must(weirredis.New(client, nil))
	defer func() { _ = shared.Close() }()

	logins := weir.Must(shared.PartitionedTokenBucket("logins", limiter.TokenBucketOptions{
		TokenLimit: 5, TokensPerPeriod: 1, ReplenishmentPeriod: time.Minute,
	}, nil))
	lease := weir.Must(logins.TryAcquire(context.Background(), "ann", 1))
	fmt.Println(lease.Acquired())
}

// Close the client after the backend. Nothing is sent before the backend is used.
func ExampleNewBackend() {
	client := redis.NewClient(&redis.Options{Addr: "redis:6379", ContextTimeoutEnabled: true, DialerRetries: 1})
	defer func() { _ = client.Close() }()

	b, err := weirredis.NewBackend(client, &weirredis.BackendOptions{Prefix: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Close())
	// Output: <nil>
}
