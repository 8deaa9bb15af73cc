package reload_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/strategies/fallback"
)

// A limit of a file changes while the program runs. By default the file is looked at every few seconds; Reload does so now.
func ExampleStart() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "weir")
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "weir.yaml")
	write := func(limit int) {
		file := fmt.Sprintf("pipelines: {orders: {strategies: [rate_limiter: {fixed_window: {permit_limit: %d, window: 1h}}]}}", limit)
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			panic(err)
		}
	}
	write(1)
	r := registry.New(nil)
	defer func() { _ = r.Close(ctx) }()
	w, err := reload.Start(ctx, r, path, &reload.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	defer w.Stop()
	orders, err := r.Get("orders")
	if err != nil {
		panic(err)
	}
	call := func() {
		err := orders.Execute(ctx, func(context.Context) error { return nil })
		fmt.Println("rejected:", errors.Is(err, pipeline.ErrRejected))
	}
	call()
	call()
	write(2)
	fmt.Println("reloaded:", w.Reload(ctx))
	call() // what was taken stays taken, and one more is there
	call()
	// Output:
	// rejected: false
	// rejected: true
	// reloaded: <nil>
	// rejected: false
	// rejected: true
}

func ExampleParse() {
	_, err := reload.Parse("weir.yaml", []byte(`
limiters:
  upstream:
    token_bucket: {token_limit: 100, tokens_per_period: 0, replenishment_period: 100}
pipelines:
  orders:
    strategies:
      - retry: {max_retry: 5, backoff: expo}
      - rate_limiter: {limiter: upstraem}
`), nil)
	fmt.Println(err)
	// Output:
	// weir.yaml:4:57: limiters.upstream.token_bucket.tokens_per_period: tokens_per_period must be at least 1, got 0
	// weir.yaml:4:82: limiters.upstream.token_bucket.replenishment_period: must be a duration with its unit, such as "250ms", found the number 100
	// weir.yaml:8:17: pipelines.orders.strategies[0].retry: unknown field "max_retry", did you mean "max_retries"?
	// weir.yaml:8:40: pipelines.orders.strategies[0].retry.backoff: must be "constant", "linear" or "exponential", found the text "expo"; did you mean "exponential"?
	// weir.yaml:9:33: pipelines.orders.strategies[1].rate_limiter.limiter: there is no limiter "upstraem", did you mean "upstream"?
}

func ExampleFile_Change() {
	ctx := context.Background()
	r := registry.New(nil)
	defer r.Close(ctx)

	first, err := reload.Parse("weir.yaml", []byte(`
pipelines:
  orders: {strategies: [timeout: {timeout: 2s}]}
  reports: {strategies: [timeout: {timeout: 1m}]}
`), nil)
	if err != nil {
		panic(err)
	}
	if err := r.Apply(ctx, first.Change(nil)); err != nil {
		panic(err)
	}
	reports, err := r.Get("reports")
	if err != nil {
		panic(err)
	}

	second, err := reload.Parse("weir.yaml", []byte(`
pipelines:
  mails: {strategies: []}
  orders: {strategies: [timeout: {timeout: 2000ms}]}   # means what it meant
`), nil)
	if err != nil {
		panic(err)
	}
	change := second.Change(first)
	fmt.Println("to be built:", slices.Sorted(maps.Keys(change.Define)))
	if err := r.Apply(ctx, change); err != nil {
		panic(err)
	}
	err = reports.Execute(ctx, func(context.Context) error { return nil })
	fmt.Println("removed:", errors.Is(err, registry.ErrRemoved))
	// Output:
	// to be built: [mails]
	// removed: true
}

func ExampleFile_Explain() {
	f, err := reload.Parse("weir.yaml", []byte(`
limiters:
  upstream:
    token_bucket: {token_limit: 100, tokens_per_period: 10, replenishment_period: 100ms, queue_limit: 50}
pipelines:
  orders:
    strategies:
      - retry: {max_retries: 5, backoff: exponential, delay: 100ms, jitter: true}
      - rate_limiter: {limiter: upstream}
      - timeout: {timeout: 2s}
`), nil)
	if err != nil {
		panic(err)
	}
	_ = f.Explain(os.Stdout)
	// Output:
	// orders
	//   1. each execution: retry with max_retries: 5, backoff: exponential, delay: 100ms, jitter: true, max_retry_after: 1m
	//   2. each attempt: rate_limiter with limiter: upstream (token bucket: bursts of 100, then 10 every 100ms (100 a second); up to 50 wait)
	//   3. each attempt: timeout with timeout: 2s
}

// Maintenance are the options of a strategy that rejects everything.
type Maintenance struct {
	Name   string `yaml:"name,omitempty"`
	Reason string `yaml:"reason"`
}

func (m Maintenance) Execute(context.Context, pipeline.Next) (any, error) {
	return nil, fmt.Errorf("%w: %s", pipeline.ErrRejected, m.Reason)
}

func ExampleRegisterStrategy() {
	kinds := reload.NewKinds()
	reload.RegisterStrategy(kinds, "maintenance", func(_ *registry.Builder, m Maintenance) (pipeline.Strategy, error) {
		return m, nil
	})
	f, err := reload.Parse("weir.yaml", []byte(`
pipelines:
  orders: {strategies: [maintenance: {reason: back at nine}]}
`), kinds)
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	r := registry.New(nil)
	defer r.Close(ctx)
	if err := r.Apply(ctx, f.Change(nil)); err != nil {
		panic(err)
	}
	orders, err := r.Get("orders")
	if err != nil {
		panic(err)
	}
	fmt.Println(orders.Execute(ctx, func(context.Context) error { return nil }))
	// Output: pipeline: execution rejected: back at nine
}

func ExampleRegisterLimiter() {
	// A limiter whose size depends on the machine.
	type perProcessor struct {
		Each int `yaml:"each"`
	}
	kinds := reload.NewKinds()
	reload.RegisterLimiter(kinds, "per_processor", func(b *registry.Builder, name string, o perProcessor) (limiter.Limiter, error) {
		return b.Concurrency(name, limiter.ConcurrencyOptions{PermitLimit: o.Each * runtime.GOMAXPROCS(0)}), nil
	})
	f, err := reload.Parse("weir.yaml", []byte(`
limiters:
  work: {per_processor: {each: 3}}
pipelines:
  orders: {strategies: [rate_limiter: {limiter: work}]}
`), kinds)
	if err != nil {
		panic(err)
	}
	_ = f.Explain(os.Stdout)
	// Output:
	// orders
	//   1. each execution: rate_limiter with limiter: work (per_processor with each: 3)
}

func ExampleKinds_RegisterKey() {
	type user struct{}
	kinds := reload.NewKinds()
	kinds.RegisterKey("user", func(ctx context.Context) string {
		name, _ := ctx.Value(user{}).(string)
		return name
	})
	f, err := reload.Parse("weir.yaml", []byte(`
pipelines:
  orders:
    strategies:
      - rate_limiter:
          partitioned: {key: user, max_partitions: 10000, each: {concurrency: {permit_limit: 1}}}
`), kinds)
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	r := registry.New(nil)
	defer r.Close(ctx)
	if err := r.Apply(ctx, f.Change(nil)); err != nil {
		panic(err)
	}
	orders, err := r.Get("orders")
	if err != nil {
		panic(err)
	}
	ann, bob := context.WithValue(ctx, user{}, "ann"), context.WithValue(ctx, user{}, "bob")
	_ = orders.Execute(ann, func(context.Context) error {
		nothing := func(context.Context) error { return nil }
		fmt.Println("ann again:", errors.Is(orders.Execute(ann, nothing), pipeline.ErrRejected))
		fmt.Println("bob:", orders.Execute(bob, nothing))
		return nil
	})
	// Output:
	// ann again: true
	// bob: <nil>
}

func ExampleKinds_RegisterFallback() {
	kinds := reload.NewKinds()
	kinds.RegisterFallback("no_stock", fallback.Value("sold out"))
	f, err := reload.Parse("weir.yaml", []byte(`
budgets:
  warehouse: {ratio: 0.1}
pipelines:
  stock:
    strategies:
      - fallback: {action: no_stock}
      - retry: {max_retries: 1, delay: off, budget: warehouse, ignore_retry_after: true}
      - circuit_breaker: {consecutive_failures: 2}
      - timeout: {timeout: 1s}
`), kinds)
	if err != nil {
		panic(err)
	}
	_ = f.Explain(os.Stdout)

	ctx := context.Background()
	r := registry.New(nil)
	defer r.Close(ctx)
	if err := r.Apply(ctx, f.Change(nil)); err != nil {
		panic(err)
	}
	stock, err := r.Get("stock")
	if err != nil {
		panic(err)
	}
	for range 2 {
		fmt.Println(pipeline.ExecuteValue(ctx, stock, func(context.Context) (string, error) {
			fmt.Println("asking")
			return "", errors.New("out of order")
		}))
	}
	// Output:
	// stock
	//   1. each execution: fallback with action: no_stock
	//   2. each execution: retry with max_retries: 1, delay: off, max_retry_after: 1m, ignore_retry_after: true, budget: warehouse (ratio: 0.1, min_per_second: 10, window: 10s)
	//   3. each attempt: circuit_breaker with failure_ratio: 0.1, minimum_throughput: 100, sampling_duration: 30s, consecutive_failures: 2, break_duration: 5s, half_open_probes: 1
	//   4. each attempt: timeout with timeout: 1s
	// asking
	// asking
	// sold out <nil>
	// sold out <nil>
}
