package reload_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// Two instances of a program share a limiter. Without its last line it would be each
// instance's own.
func ExampleKinds_RegisterStore() {
	const file = `
limiters:
  logins:
    token_bucket: {token_limit: 3, tokens_per_period: 3, replenishment_period: 1h}
    store: redis
pipelines:
  login: {strategies: [rate_limiter: {limiter: logins}]}
`
	ctx := context.Background()
	server := storetest.NewMemory() // where a program has Redis or PostgreSQL

	instance := func() (login *pipeline.Pipeline, end func()) {
		redis, err := store.New(server, nil)
		if err != nil {
			panic(err)
		}
		kinds := reload.NewKinds()
		kinds.RegisterStore("redis", redis)
		f, err := reload.Parse("weir.yaml", []byte(file), kinds)
		if err != nil {
			panic(err)
		}
		r := registry.New(nil)
		if err := r.Apply(ctx, f.Change(nil)); err != nil {
			panic(err)
		}
		if login, err = r.Get("login"); err != nil {
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
