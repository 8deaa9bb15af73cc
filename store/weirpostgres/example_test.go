package weirpostgres_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/weirpostgres"
)

// Migrate makes the tables. Every instance can call it.
func ExampleNew() {
	ctx := context.Background()
	pool := weir.Must(pgxpool.New(ctx, "postgres://postgres/shop"))
	defer pool.Close()
	if err := weirpostgres.Migrate(ctx, pool, ""); err != nil {
		fmt.Println(err)
		return
	}
	shared := weir.Must(weirpostgres.New(pool, nil))
	defer func() { _ = shared.Close() }()

	exports := weir.Must(shared.Concurrency("exports", limiter.ConcurrencyOptions{PermitLimit: 3, QueueLimit: 10}, nil))
	lease := weir.Must(exports.Acquire(ctx, 1))
	defer lease.Release()
	fmt.Println(lease.Acquired())
}
