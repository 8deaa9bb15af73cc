package weirredis_test

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/weirredis"
)

// The client stays yours: close it after what uses it. Without ContextTimeoutEnabled the deadline of a
// context does not end a call.
func ExampleNewBackend() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:                 []string{"127.0.0.1:6379"},
		ContextTimeoutEnabled: true,
	})
	defer func() { _ = client.Close() }()

	backend, err := weirredis.NewBackend(client, &weirredis.BackendOptions{Prefix: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("nothing is sent before it is needed:", backend.Close())
	// Output: nothing is sent before it is needed: <nil>
}
